"""Messages to a service manager, from a broker that it has started and from the supervisor's part alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.supervisor.service_manager import ServiceManager
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield the socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(deadline_s())
        yield receiver


def test_a_broker_is_ready_alive_and_stopping(manager: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000000"}
    broker = BrokerProcess(tmp_path / "broker", environment=environment)
    (tmp_path / "broker").mkdir()
    broker.start()
    received = [manager.recv(1000).decode() for _ in range(3)]
    assert f"READY=1\nSTATUS=serves {broker.bootstrap}" in received
    assert received.count("WATCHDOG=1") == 2
    broker.stop()
    while (last := manager.recv(1000)) == b"WATCHDOG=1":
        pass
    assert last.startswith(b"STOPPING=1")


def test_the_watchdog_of_another_process_gets_nothing(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}
    service = ServiceManager(environment)
    service.alive()
    service.ready("serves")
    assert manager.recv(1000) == b"READY=1\nSTATUS=serves"


def test_sockets_without_a_file_have_names_that_begin_with_a_zero_byte() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0rotunda-test-{os.getpid()}")
        receiver.settimeout(deadline_s())
        ServiceManager({"NOTIFY_SOCKET": f"@rotunda-test-{os.getpid()}"}).stopping()
        assert receiver.recv(1000).startswith(b"STOPPING=1")


def test_a_manager_that_has_gone_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "1"})
    service.ready("serves")
    service.alive()
    assert caplog.text.count("cannot reach") == 1
    ServiceManager({}).ready("serves")
