"""Brokers that die while clients write and read: of ours each process in turn, of Apache Kafka its only one.

A test requests the next kill, and continues meanwhile.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import cycle
from pathlib import Path

from ops.free_ports import free_ports
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import wait_until
from tests.support.kafka_cluster import KafkaCluster

#: The supervisor's death is that of the whole broker, which is started again on its data.
ROLES = ("handler", "processor", "controller", "acceptor", "recorder", "cleaner", "web", "supervisor")
STRIKES = len(ROLES)


class DyingRotunda:
    """Ours, of which one process after the other is killed."""

    def __init__(self, directory: Path) -> None:
        [port] = free_ports(1)
        settings = {**PAGE, "process.restart.limit": 1_000_000, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        self._broker = BrokerProcess(directory, settings, ephemeral=False).start()
        self._victims = cycle(ROLES)
        self.address = self._broker.bootstrap
        self.killed: Counter[str] = Counter()

    def strike(self) -> None:
        """Send SIGKILL to the next role's processes; to the supervisor: and start the broker again."""
        role = next(self._victims)
        if role == "supervisor":
            os.kill(self._broker.pid(), signal.SIGKILL)
            self._broker.assert_no_process_left()
            self._broker.start()
        else:
            wait_until(lambda: all(row["state"] == "running" for row in self._broker.processes(role)), f"{role} back")
            self._broker.kill(role, wait=False)
        self.killed[role] += 1

    def stop(self) -> None:
        """End it; every role has died."""
        self._broker.stop()
        assert set(self.killed) == set(ROLES)


class DyingKafka:
    """A node of Kafka, which is killed once, in the midst of a round of strikes, and started again on its data."""

    def __init__(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, nodes=1)
        self.address = self._cluster.bootstrap
        self._strikes = 0

    def strike(self) -> None:
        """Kill it if it is time."""
        self._strikes += 1
        if self._strikes == STRIKES // 2:
            self._cluster.kill(1)
            self._cluster.start(1)

    def stop(self) -> None:
        """End it."""
        self._cluster.stop()


DyingBroker = DyingRotunda | DyingKafka
