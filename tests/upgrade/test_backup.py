"""A backup is restored, as in operations.md: of a stopped broker, and an atomic snapshot of one under load."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.groups.libraries import read_to_end
from tests.upgrade.content import SETTINGS, assert_is_served, write_more
from tests.upgrade.make_directory import write

pytestmark = pytest.mark.slow


def test_a_copy_of_a_stopped_broker_is_restored(broker_directory: Path, tmp_path: Path) -> None:
    """Changes after the copy are gone."""
    content = write(REPOSITORY, broker_directory, SETTINGS)
    data, backup = broker_directory / "data", tmp_path / "backup"
    shutil.copytree(data, backup)
    broker = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    write_more(broker.bootstrap, "more")
    broker.stop()
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    broker.start()
    try:
        assert_is_served(broker, content)
        assert "more" not in broker.command("topic", "list").stdout
        write_more(broker.bootstrap, "more")
    finally:
        broker.stop()


def test_a_snapshot_of_a_running_broker_is_restored(broker_directory: Path, tmp_path: Path) -> None:
    """It has every record that was acknowledged before it, once."""
    content = write(REPOSITORY, broker_directory, SETTINGS)
    broker = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    restored = BrokerProcess(tmp_path / "restored", SETTINGS, ephemeral=False)
    acknowledged: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 10})
    try:
        for number in range(20_000):
            producer.produce(
                "load", str(number), on_delivery=lambda _, message: acknowledged.append(int(message.value() or b""))
            )
        while len(acknowledged) < 1000:
            producer.poll(0.1)
        before = set(acknowledged)
        snapshot(broker, restored.data_dir)
        assert producer.flush(deadline_s()) == 0
    finally:
        broker.stop()
    restored.start()
    try:
        assert_is_served(restored, content)
        found = [int(message.value() or b"") for message in read_to_end(restored.bootstrap, "load", 1)]
        assert before <= set(found)
        assert found == list(range(len(found)))
        write_more(restored.bootstrap, "more")
    finally:
        restored.stop()


def snapshot(broker: BrokerProcess, to: Path) -> None:
    """Copy the data while all processes are stopped: to them it is one moment."""
    pids = [broker.pid(), *broker.child_pids()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        shutil.copytree(broker.data_dir, to)
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
