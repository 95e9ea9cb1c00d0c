"""Changes of many partitions: worked off in slices, each name in its order, and at once where somebody asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.server.partition_changes import OwnedPartitions, PartitionChanges
from broker.topic_rules import NewTopic
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced

PARTITIONS = 40


class Log:
    """Steps that say that they were taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.changes = PartitionChanges()

    def add(self, place: tuple[str, int], name: str, opens: int | None = None) -> None:
        self.changes.add(place, lambda: self.taken.append(name), opens=opens)


def test_the_steps_of_one_place_are_taken_in_their_order() -> None:
    log = Log()
    log.add(("a", 0), "delete a-0")
    log.add(("a", 1), "delete a-1")
    log.add(("a", 0), "open a-0", opens=7)
    assert not log.changes.open_now(8)
    assert log.changes.open_now(7)
    assert log.taken == ["delete a-0", "open a-0"]
    assert not log.changes.open_now(7)
    log.changes.finish()
    assert log.taken == ["delete a-0", "open a-0", "delete a-1"]
    assert not log.changes


def test_each_slice_takes_the_steps_of_one_partition() -> None:
    log = Log()
    for index in range(5):
        log.add(("a", index), str(index), opens=index)
    work = log.changes.work()
    for count in range(1, 6):
        next(work)
        assert len(log.taken) == count


def test_what_was_deleted_before_it_was_opened_is_opened_for_nobody() -> None:
    log = Log()
    owned = OwnedPartitions(log.changes)
    log.add(("a", 0), "open", opens=3)
    log.changes.cancel_opening(3)
    log.add(("a", 0), "delete")
    assert owned.get(3) is None
    assert log.taken == []
    log.changes.finish()
    assert log.taken == ["open", "delete"]


@pytest.fixture
def broker(tmp_path: Path) -> SteppedBroker:
    return SteppedBroker(tmp_path)


def test_a_partition_that_is_asked_for_is_opened_there_and_then(broker: SteppedBroker) -> None:
    """It is among many that have just been made, and most of them are still to be opened."""
    try:
        controller = broker.state(2).controller
        assert controller is not None
        controller.create_topics([NewTopic("wide", PARTITIONS)])
        broker.state(2).announce_metadata()
        state = broker.state(0)
        state.take_metadata()
        [*_, last] = broker.owned_by("wide", 0)
        waiting = len(state.changes)
        assert waiting > 10
        sent = broker.client().produce([("wide", last, record_batch([b"at once"]))])
        frames = broker.handler(0)
        frames._slices.turn()
        assert len(state.changes) == waiting
        broker.settle()
        assert produced(sent) == [(0, 0)]
        # What was not asked for waits for its slices, which nothing has begun in this test.
        assert len(state.changes) == waiting - 1
        state.changes.finish()
        assert set(broker.owned_by("wide", 0)) == {
            partition.index for partition in state.metadata.topic("wide").partitions if partition.row in state.owned
        }
    finally:
        broker.close()


def test_a_topic_that_is_made_again_at_once_has_none_of_its_former_records(broker: SteppedBroker) -> None:
    try:
        broker.create("again", 4)
        index = broker.owned_by("again", 0)[0]
        broker.client().produce([("again", index, record_batch([b"before"]))])
        broker.settle()
        controller, state = broker.state(2).controller, broker.state(0)
        assert controller is not None
        topic = broker.state(2).metadata.topic("again")
        assert topic is not None
        controller.delete_topics([topic])
        controller.create_topics([NewTopic("again", 4)])
        broker.state(2).announce_metadata()
        state.take_metadata()
        sent = broker.client().produce([("again", index, record_batch([b"after"]))])
        broker.settle()
        assert produced(sent) == [(0, 0)]
        assert broker.values("again", index) == [b"after"]
    finally:
        broker.close()
