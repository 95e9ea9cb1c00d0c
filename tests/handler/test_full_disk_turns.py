"""A full disk during the write of very many partitions: rolled back in slices, not in the failing turn."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from unittest import mock

import pytest

from rotunda.broker.log.committed_log import CommittedLog
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.partitions.partition_manager import PartitionManager
from rotunda.broker.partitions.storage.storage_gate import RETRY_NS
from tests.support.fakes import failing
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Sent, SteppedBroker, produced

PARTITIONS = 40
STORAGE_ERROR = 56


pytestmark = pytest.mark.stepped({"wide": PARTITIONS})


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the restored partitions, in order."""
    names: list[str] = []
    real = CommittedLog._restore

    def restore(log: CommittedLog) -> None:
        names.append(log.name.directory_name)
        real(log)

    monkeypatch.setattr(CommittedLog, "_restore", restore)
    return names


def send(broker: SteppedBroker, value: bytes) -> Sent:
    """Produce to every partition of handler 0."""
    return broker.client().produce([("wide", index, record_batch([value])) for index in broker.owned_by("wide", 0)])


def fill_the_disk(broker: SteppedBroker) -> Sent:
    """Fail one write of all partitions of handler 0 partway with a full disk."""
    real = os.pwritev

    def cut_short(fd: int, chunks: list[memoryview], position: int) -> int:
        real(fd, [bytes(chunks[0])[:40]], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rejected = send(broker, b"rejected")
    # The slices of that turn precede its commit, and those that it creates are started by a tick.
    with mock.patch.object(os, "pwritev", cut_short):
        broker.run_once(0)
    broker.drain()
    own = broker.owned_by("wide", 0)
    assert produced(rejected) == [(STORAGE_ERROR, -1)] * len(own)
    return rejected


def let_there_be_room(broker: SteppedBroker) -> None:
    """Run the handler's next check for free space, which finds some."""
    broker.clock.advance_ns(RETRY_NS + 1)
    broker.handler(0).broker.partitions.storage.tick()


def take_slices(broker: SteppedBroker) -> None:
    """Start the slices by a tick, and run them in the following turns."""
    broker.clock.advance_ms(200)
    broker.run_once(0)
    assert not broker.handler(0).slices.is_idle
    broker.settle()
    assert not manager(broker).changes


def own(broker: SteppedBroker) -> list[str]:
    return sorted(f"wide-{index}" for index in broker.owned_by("wide", 0))


def manager(broker: SteppedBroker) -> PartitionManager:
    return broker.parts(0).partitions


def test_each_slice_restores_one_log(broker: SteppedBroker, restored: list[str]) -> None:
    send(broker, b"before")
    broker.settle()
    fill_the_disk(broker)
    assert not restored
    changes = manager(broker).changes
    assert len(changes) == len(own(broker))
    work = changes.work()
    for count in range(1, 6):
        next(work)
        assert len(restored) == count
    take_slices(broker)
    assert sorted(restored) == own(broker)
    check_takes_records_again(broker)
    assert sorted(restored) == own(broker)


def check_takes_records_again(broker: SteppedBroker) -> None:
    let_there_be_room(broker)
    sent = send(broker, b"after")
    broker.settle()
    assert produced(sent) == [(0, 1)] * len(own(broker))
    for index in broker.owned_by("wide", 0):
        assert broker.values("wide", index) == [b"before", b"after"]


@pytest.mark.parametrize("slices", [0, 3])
def test_a_death_before_all_are_restored_loses_nothing_and_leaves_nothing(broker: SteppedBroker, slices: int) -> None:
    send(broker, b"before")
    broker.settle()
    fill_the_disk(broker)
    work = manager(broker).changes.work()
    for _ in range(slices):
        next(work)
    broker.replace(0)
    broker.settle()
    check_takes_records_again(broker)


def test_one_that_is_asked_for_is_restored_there_and_then(broker: SteppedBroker, restored: list[str]) -> None:
    send(broker, b"before")
    broker.settle()
    fill_the_disk(broker)
    let_there_be_room(broker)
    index = broker.owned_by("wide", 0)[-1]
    sent = broker.client().produce([("wide", index, record_batch([b"after"]))])
    with mock.patch.object(broker.handler(0).slices, "run_once", return_value=False):
        broker.run_once(0)
    broker.drain()
    assert produced(sent) == [(0, 1)]
    assert restored == [f"wide-{index}"]
    assert broker.values("wide", index) == [b"before", b"after"]


def test_a_log_that_cannot_be_restored_for_want_of_room_is_tried_again_in_slices(
    broker: SteppedBroker, restored: list[str]
) -> None:
    """Its partition is offline, with a readable reason, until there is free space."""
    fill_the_disk(broker)
    partitions, table = manager(broker), broker.context.partitions
    rows = [broker.partition("wide", index).row for index in broker.owned_by("wide", 0)]
    assert {table.fault(row) for row in rows} == {0}
    with mock.patch.object(LogSegment, "cut", failing(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))):
        partitions.changes.finish()
    assert {table.fault(row) for row in rows} == {errno.EMFILE}
    restored.clear()
    partitions.storage.tick()
    assert not partitions.changes
    let_there_be_room(broker)
    partitions.storage.tick()
    assert not restored
    assert len(partitions.changes) == len(rows)
    take_slices(broker)
    assert sorted(restored) == own(broker)
    assert {table.fault(row) for row in rows} == {0}


def test_epochs_that_could_not_be_written_are_written_in_slices(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example those of all partitions after a start on a full disk."""
    partitions = manager(broker)
    logs = [owned.log for owned in partitions.owned.values()]
    for log in logs:
        log._epochs.is_stored = False
    written: list[CommittedLog] = []
    real: Callable[[CommittedLog], None] = CommittedLog._write_epochs

    def write(log: CommittedLog) -> None:
        written.append(log)
        real(log)

    monkeypatch.setattr(CommittedLog, "_write_epochs", write)
    partitions.storage.tick()
    assert not written
    assert len(partitions.changes) == len(logs)
    partitions.changes.finish()
    assert len(written) == len(logs)
    assert not any(log.needs_catch_up for log in logs)
