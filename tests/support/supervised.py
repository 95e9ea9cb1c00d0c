"""Starts the broker of `tests.support.fake_roles` and looks at it from outside."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment
from rotunda.shm.segment import attach
from tests.support.broker_process import status_of
from tests.support.deadline import deadline_s, wait_until

REPOSITORY = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at only


class Supervised:
    """One instance in `directory`; a context manager that leaves no process running."""

    def __init__(self, directory: Path, fault: str = "", **settings: object) -> None:
        self.run_dir = directory / "run"
        self.log = directory / "log"
        self._out = directory / "out"
        command = [sys.executable, "-m", "tests.support.fake_roles", str(self.run_dir), str(directory / "data")]
        command += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        with self._out.open("wb") as out, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=out, stderr=log, env={**os.environ, "FAULT": fault}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ready(self) -> Self:
        wait_until(lambda: self._out.read_text() or self.process.poll() is not None, "the broker is ready")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def complete(self) -> Self:
        """Wait until those run too that the broker is ready without."""
        self.ready()
        for role in ("cleaner", "recorder"):
            wait_until(lambda role=role: self.slot(role)["state"] == "running", f"the {role} runs")
        return self

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def ports(self) -> list[int]:
        """Return the port of each listener."""
        return [int(each.rpartition(":")[2]) for each in self._out.read_text().strip().split(",")]

    def connect(self, port: int | None = None) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port or self.port), timeout=deadline_s())

    def status(self) -> dict[str, Any]:
        return status_of(self.run_dir)

    def slot(self, role: str, index: int = 0) -> dict[str, Any]:
        found = [each for each in self.status()["processes"] if (each["role"], each["index"]) == (role, index)]
        return found[0]

    def metric(self, role: int, name: str, label: str = "", index: int = 0) -> int:
        """Return the present value of a process's counter."""
        status = self.status()
        segment = attach(f"/rotunda-{status['instance']}-metrics")
        page = MetricsSegment(segment.view, status["most_processors"], status["most_handlers"]).page(role, index)
        value = MetricsReader(page).read().values[name, label]
        page.release()
        segment.close()
        return value

    def wait(self) -> int:
        return self.process.wait(deadline_s(60))

    def terminate(self, signum: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.wait()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def shared_memory(self) -> list[Path]:
        """Return the segments and semaphores that carry this broker's name."""
        return [path for path in SHARED_MEMORY.iterdir() if f"rotunda-{self.process.pid}." in path.name]


def ask(client: socket.socket) -> str:
    """Return `index.generation` of the processor that holds the connection."""
    client.sendall(b"?")
    return client.recv(64).decode().strip()
