"""A broker whose /dev/shm is really full when more processes are requested (issue 13; `A28`, `E04`)."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker
from tests.support.deadline import wait_until
from tests.support.own_mounts import fill, held, may_mount, with_shared_memory
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce, read_partition

PARTITIONS = 4
SETTINGS = {"num.network.threads": 2, "num.io.threads": 2}
#: Room for all that this broker is to have, once.
SIZE_BYTES = 256 << 20
ROLES = {"num.network.threads": "processor", "num.io.threads": "handler"}


@pytest.mark.skipif(not may_mount(), reason="a mount of one's own takes root")
def test_a28_e04_a_resize_beyond_a_full_dev_shm_is_rejected_until_there_is_room(
    broker_directory: Path, topic: str
) -> None:
    """The broker serves all the time, dead processes are replaced meanwhile, and nothing is left over."""
    with_shared_memory(SIZE_BYTES, lambda: _in_a_broker(BrokerProcess(broker_directory, SETTINGS), topic))


def _in_a_broker(broker: BrokerProcess, topic: str) -> None:
    broker.start()
    try:
        _grow_in_full_memory(broker, topic)
    finally:
        broker.stop()
    assert not held()


def _grow_in_full_memory(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.port) as wire:
        create_topic(wire, topic, PARTITIONS)
    before = held()
    filler = fill()
    for name, role in ROLES.items():
        refused = broker.command("config", "set", f"{name}=4")
        assert refused.returncode == 1
        assert re.search(rf"{name}=4: /dev/shm lacks \d+ bytes; free some", refused.stderr)
        assert len(broker.processes(role)) == 2
        broker.kill(role, 0)
    _serves(broker, topic, 1)
    assert {name: size for name, size in held().items() if name != filler.name} == before
    filler.unlink()
    for name in ROLES:
        set_on_broker(broker.bootstrap, name, "4")
    wait_until(lambda: all(_runs(broker, role, 4) for role in ROLES.values()), "four of each")
    _serves(broker, topic, 2)
    _memory_goes_before_it_is_taken(broker, topic)


def _memory_goes_before_it_is_taken(broker: BrokerProcess, topic: str) -> None:
    """Others use the room when the number has been set already: it stays as it is until another one is set."""
    os.kill(broker.pid(), signal.SIGSTOP)
    try:
        set_on_broker(broker.bootstrap, "num.network.threads", "6")
        # Enough for a part of one more process.
        filler = fill(leave_bytes=256 << 10)
    finally:
        os.kill(broker.pid(), signal.SIGCONT)
    wait_until(
        lambda: "the number of processors stays 4, not 6: shared memory" in broker.log_text(), "the log says why"
    )
    assert len(broker.processes("processor")) == 4
    _serves(broker, topic, 3)
    filler.unlink()
    set_on_broker(broker.bootstrap, "num.network.threads", "5")
    wait_until(lambda: _runs(broker, "processor", 5), "five processors")
    _serves(broker, topic, 4)


def _runs(broker: BrokerProcess, role: str, count: int) -> bool:
    return [row["state"] for row in broker.processes(role)] == ["running"] * count


def _serves(broker: BrokerProcess, topic: str, records: int) -> None:
    """Write the next record to every partition, and read all of it."""
    with WireClient(broker.port) as wire:
        for partition in range(PARTITIONS):
            value = f"{partition}-{records}".encode()
            assert produce(wire, topic, partition, record_batch([value])).error_code == 0
            assert len(read_partition(wire, topic, partition)) == records
