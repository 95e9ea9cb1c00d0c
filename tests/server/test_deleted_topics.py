"""What is still known of a topic when it is deleted, by whoever has not heard of it or was dead meanwhile.

Rows of the partition table are used again, and names as well: nothing of a deleted topic may show in what comes after.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from broker.log.log_manager import LogManager
from broker.log.partition_log import PartitionName
from broker.protocol.routing import owner_of, topic_hash
from broker.topic_rules import NewTopic
from tests.support.group_requests import OFFSET_FETCH, Member, groups_of
from tests.support.interruptions import interrupted_at_line
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Killed, SteppedBroker, produced
from tests.support.transactional import (
    TransactionalProducer,
    answer_of,
    committed_offset,
    offset_errors,
    open_coordinator_topics,
    send,
)
from tests.support.wire_messages import FETCH, fetch_body, read_fetch

OWNER, OTHER, CONTROLLER = 0, 1, 2
UNKNOWN_TOPIC, NOT_LEADER = 3, 6


def named_for(owner: int, partition: int, prefix: str) -> str:
    """Return a name for a topic of which a handler owns a partition."""
    names = (f"{prefix}{number}" for number in range(1000))
    return next(name for name in names if owner_of(topic_hash(name.encode()), partition, 2) == owner)


def announce_new(broker: SteppedBroker, name: str, partitions: int) -> None:
    """Create a topic; nobody has heard of it yet."""
    state = broker.state(CONTROLLER)
    assert state.controller is not None
    [outcome] = state.controller.create_topics([NewTopic(name, partitions)])
    assert outcome.error_code == 0, outcome
    state.announce_metadata()


# ---- logs ------------------------------------------------------------------------------------------------------------


def die_when_the_files_have_gone(broker: SteppedBroker, name: str) -> None:
    """Delete a topic that its owner's replacement finds deleted before anybody is told; it dies half-way, too."""
    delete = LogManager.delete

    def delete_and_die(manager: LogManager, name: PartitionName) -> None:
        delete(manager, name)
        raise Killed

    state = broker.state(CONTROLLER)
    topic = state.metadata.topic(name)
    assert state.controller is not None
    assert topic is not None
    state.controller.delete_topics([topic])
    broker.kill(OWNER)
    with mock.patch.object(LogManager, "delete", delete_and_die), suppress(Killed):
        broker.boot(OWNER)
    broker.kill(OWNER)


@pytest.mark.parametrize("how", ["announced", "used again", "half deleted"])
def test_a_fetch_of_a_log_that_goes_meanwhile_is_never_told_that_its_offset_is_out_of_range(
    tmp_path: Path, how: str
) -> None:
    """Its consumer would begin anew, wherever it is told to. The log goes before each line of the fetch in turn."""
    broker = SteppedBroker(tmp_path, settings={"max.partitions": "1"})
    doomed, heir = named_for(OWNER, 0, "doomed"), named_for(OWNER, 0, "heir")
    errors: Counter[int] = Counter()

    def go() -> None:
        if how == "half deleted":
            die_when_the_files_have_gone(broker, doomed)
            return
        broker.delete(doomed)
        broker.turn(OWNER)
        if how == "used again":
            announce_new(broker, heir, 1)
            broker.turn(OWNER)

    def is_interrupted(line: int) -> bool:
        broker.create(doomed)
        broker.client().produce([(doomed, 0, record_batch([b"x"] * 3))])
        broker.settle()
        # The file stays open from here on, so that its records can be read though it has gone.
        broker.client().send(FETCH, 11, fetch_body(doomed, 0, 0), OTHER)
        broker.settle()
        asked = broker.client().send(FETCH, 11, fetch_body(doomed, 0, 1), OTHER)
        done = interrupted_at_line(line, broker.handler(OTHER).turn, go, ("broker/server/fetch.py",))
        broker.drain()
        if done and how == "half deleted":
            broker.boot(OWNER)
            broker.announce()
        broker.settle()
        [part] = read_fetch(asked.answer.payload[8:])
        errors[part.error_code] += 1
        broker.forget_clients()
        if done and how == "used again":
            broker.delete(heir)
            broker.settle()
        return done

    try:
        line = 1
        while is_interrupted(line):
            line += 1
        assert errors.keys() <= {0, UNKNOWN_TOPIC, NOT_LEADER}
        assert errors[NOT_LEADER] > 5
    finally:
        broker.close()


def test_a_row_that_a_predecessor_has_closed_is_let_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another partition's by the time that the replacement comes to it, with records in it."""
    broker = SteppedBroker(tmp_path, settings={"max.partitions": "4"})
    delete = LogManager.delete
    gone, fresh = named_for(OWNER, 0, "gone"), named_for(OTHER, 0, "fresh")
    was_here: list[PartitionName] = []

    def delete_late(manager: LogManager, name: PartitionName) -> None:
        if not was_here:
            announce_new(broker, fresh, 4)
            broker.turn(OTHER)
            broker.client().produce([(fresh, p, record_batch([b"kept"])) for p in broker.owned_by(fresh, OTHER)])
            broker.turn(OTHER)
        was_here.append(name)
        delete(manager, name)

    try:
        broker.create(gone, 4)
        rows = {broker.partition(gone, p).row for p in broker.owned_by(gone, OWNER)}
        broker.delete(gone)
        broker.settle()
        broker.kill(OWNER)
        monkeypatch.setattr(LogManager, "delete", delete_late)
        broker.boot(OWNER)
        broker.settle()
        kept = broker.owned_by(fresh, OTHER)
        assert {broker.partition(fresh, p).row for p in kept} == rows
        assert len(was_here) == len(rows) == 2
        assert [broker.values(fresh, p) for p in kept] == [[b"kept"]] * len(kept)
        more = broker.client().produce([(fresh, p, record_batch([b"more"])) for p in kept])
        broker.settle()
        assert produced(more) == [(0, 1)] * len(kept)
    finally:
        broker.close()


# ---- offsets of groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_an_offset_of_an_open_transaction_is_not_inherited_by_a_later_topic(
    stepped: SteppedBroker, at_once: bool
) -> None:
    """Whether or not anybody hears of the deletion before the topic is there again; also not after a death."""
    open_coordinator_topics(stepped)
    producer = TransactionalProducer(stepped, "id", newest=True)
    sent = producer.init()
    stepped.settle()
    assert producer.take(sent) == 0
    committed = producer.commit_offset("group", "topic", 777)
    stepped.settle()
    assert offset_errors(committed) == [0]
    stepped.delete("topic")
    if not at_once:
        stepped.settle()
    announce_new(stepped, "topic", 4)
    stepped.settle()
    ended = producer.end(commit=True)
    stepped.settle()
    assert producer.take(ended) == 0
    assert committed_offset(stepped, "group", "topic") == -1
    for handler in (OWNER, OTHER):
        stepped.replace(handler)
    assert committed_offset(stepped, "group", "topic") == -1


def test_a_replacement_knows_no_offset_of_a_topic_that_was_deleted_meanwhile(broker: SteppedBroker) -> None:
    """From its first turn on, in which it answers what has waited for it."""
    [group] = groups_of(broker, OWNER, 1)
    assert Member(broker, group).commit({("topic", 0): 777}) == [0]
    broker.kill(OWNER)
    broker.delete("topic")
    broker.turn(OTHER)
    announce_new(broker, "topic", 4)
    broker.turn(OTHER)
    broker.boot(OWNER)
    topics = [{"name": "topic", "partition_indexes": [0]}]
    asked = send(broker.client(), OFFSET_FETCH, 5, {"group_id": group, "topics": topics})
    broker.turn(OWNER)
    broker.drain()
    assert [part.committed_offset for part in answer_of(asked).topics[0].partitions] == [-1]
