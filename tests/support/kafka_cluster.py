"""Nodes of Apache Kafka 4.4, each broker and controller, which may be killed and started again on their data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ops.benchmarks.kafka import JAVA_OPTIONS, LOGGING, PROPERTIES
from ops.compatibility import preparation
from ops.free_ports import free_ports
from rotunda.broker.log.data_dir import random_uuid

_SMALL = ["-Xmx256M" if each == "-Xmx1G" else "-Xms256M" if each == "-Xms1G" else each for each in JAVA_OPTIONS]
_FORMAT_S = 90


class KafkaCluster:
    """The nodes, for a test that needs Kafka."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self._directory = directory
        ports = free_ports(2 * nodes)
        self._ports, self._controller_ports = ports[:nodes], ports[nodes:]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
        cluster = random_uuid()
        numbers = range(1, nodes + 1)
        controllers = [f"{node}@127.0.0.1:{self._controller_ports[node - 1]}:{random_uuid()}" for node in numbers]
        for node in numbers:
            self._prepare(node)
            self._run(node, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._file(node)),
                      "--initial-controllers", ",".join(controllers))  # fmt: skip
            self.start(node)

    @property
    def bootstrap(self) -> str:
        """The addresses of all."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self, node: int) -> None:
        """Start a node, which serves a while later."""
        command = ["java", *_SMALL, f"-Dlog4j2.configurationFile={self._file(node).with_suffix('.log4j')}"]
        command += ["-cp", self._classes, "kafka.Kafka", str(self._file(node))]
        with (self._directory / f"output-{node}").open("ab") as output:
            self.processes[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def kill(self, node: int) -> None:
        """End a node without a word."""
        self.processes[node].kill()
        self.processes[node].wait()

    def stop(self) -> None:
        """End all."""
        for node in self.processes:
            self.kill(node)

    def _file(self, node: int) -> Path:
        return self._directory / f"server-{node}.properties"

    def _prepare(self, node: int) -> None:
        port, controller_port = self._ports[node - 1], self._controller_ports[node - 1]
        text = PROPERTIES.format(port=port, controller_port=controller_port, data=self._directory / f"data-{node}")
        replicas = len(self._ports)
        text += f"node.id={node}\ndefault.replication.factor={replicas}\nbroker.session.timeout.ms=3000\n"
        text += "controller.quorum.bootstrap.servers="
        text += ",".join(f"127.0.0.1:{each}" for each in self._controller_ports) + "\n"
        self._file(node).write_text(text)
        self._file(node).with_suffix(".log4j").write_text(LOGGING.format(log=self._directory / f"log-{node}"))

    def _run(self, node: int, *command: str) -> None:
        logging = f"-Dlog4j2.configurationFile={self._file(node).with_suffix('.log4j')}"
        done = subprocess.run(
            ["java", logging, "-cp", self._classes, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=_FORMAT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
