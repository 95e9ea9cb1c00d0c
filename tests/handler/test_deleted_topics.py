"""Deleted topics in processes that have missed the deletion or were dead meanwhile.

Rows of the partition table are reused, and so are names: nothing of a deleted topic may appear in its successor.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from rotunda.broker.log import log_manager
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.partition_log import PartitionName
from rotunda.broker.log.segments import segment_files
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.protocol.routing import owner_of, topic_hash
from rotunda.shm.tables.partitions import STATE_CLOSED
from tests.support.fakes import failing
from tests.support.groups.requests import OFFSET_FETCH, Member, groups_of
from tests.support.interruptions import interrupted_at_line
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Killed, SteppedBroker, died_at_line, produced
from tests.support.transactional import (
    answer_of,
    committed_offset,
    offset_errors,
    open_coordinator_topics,
    send,
    settled,
    started,
)
from tests.support.wire_messages import FETCH, fetch_body, read_fetch

OWNER, OTHER, CONTROLLER = 0, 1, 2
UNKNOWN_TOPIC, NOT_LEADER = 3, 6


def named_for(owner: int, partition: int, prefix: str) -> str:
    """Return a topic name with a given partition owned by a handler."""
    names = (f"{prefix}{number}" for number in range(1000))
    return next(name for name in names if owner_of(topic_hash(name.encode()), partition, 2) == owner)


INVALID_PARTITIONS = 37

#: The files that a fetch runs through.
FETCHING = (
    "broker/partitions/fetch/fetch.py",
    "broker/partitions/fetch/fetch_reader.py",
    "broker/partitions/fetch/pending_fetch.py",
)


def announce_new(broker: SteppedBroker, name: str, partitions: int) -> None:
    """Create a topic that no handler knows yet."""
    assert error_of_new(broker, name, partitions) == 0


def error_of_new(broker: SteppedBroker, name: str, partitions: int) -> int:
    """Create a topic that no handler knows yet; return the error."""
    [outcome] = broker.controller.create_topics([NewTopic(name, partitions)])
    broker.announce_metadata()
    return outcome.error_code


def let_rows_be_used_again(broker: SteppedBroker) -> None:
    """Run the turns in which rows of deleted topics become free."""
    for _ in range(3):
        broker.clock.advance_ms(101)
        broker.settle(5)


# ---- logs -----------------------------------------------------------------------------------------------------------


def die_when_the_files_have_gone(broker: SteppedBroker, name: str) -> None:
    """Delete a topic, kill the owner, and kill its replacement halfway through the deletion at its start."""
    delete = LogManager.delete

    def delete_and_die(manager: LogManager, name: PartitionName) -> None:
        delete(manager, name)
        raise Killed

    broker.controller.delete_topics([broker.topic(name)])
    broker.kill(OWNER)
    with mock.patch.object(LogManager, "delete", delete_and_die), suppress(Killed):
        broker.boot(OWNER)
    broker.kill(OWNER)


@pytest.mark.stepped({}, settings={"max.partitions": "1"})
@pytest.mark.parametrize("how", ["announced", "used again", "half deleted"])
def test_a_fetch_during_deletion_never_gets_offset_out_of_range(broker: SteppedBroker, how: str) -> None:
    """Its consumer would reset its offset. The log is deleted before each line of the fetch in turn."""
    doomed, heir = named_for(OWNER, 0, "doomed"), named_for(OWNER, 0, "heir")
    errors: Counter[int] = Counter()

    def go() -> None:
        if how == "half deleted":
            die_when_the_files_have_gone(broker, doomed)
            return
        broker.delete(doomed)
        broker.run_once(OWNER)
        if how == "used again":
            # The row is not free while a handler is in the middle of a fetch of it.
            assert error_of_new(broker, heir, 1) == INVALID_PARTITIONS

    def is_interrupted(line: int) -> bool:
        let_rows_be_used_again(broker)
        broker.create(doomed)
        broker.client().produce([(doomed, 0, record_batch([b"x"] * 3))])
        broker.settle()
        # The file remains open from here on, so that its records are readable after the deletion.
        broker.client().send(FETCH, 11, fetch_body(doomed, 0, 0), OTHER)
        broker.settle()
        asked = broker.client().send(FETCH, 11, fetch_body(doomed, 0, 1), OTHER)
        done = interrupted_at_line(line, broker.handler(OTHER).run_once, go, FETCHING)
        broker.drain()
        if done and how == "half deleted":
            broker.boot(OWNER)
            broker.announce()
        broker.settle()
        [part] = read_fetch(asked.answer.payload[8:])
        errors[part.error_code] += 1
        broker.forget_clients()
        return done

    line = 1
    while is_interrupted(line):
        line += 1
    assert errors.keys() <= {0, UNKNOWN_TOPIC, NOT_LEADER}
    assert errors[NOT_LEADER] > 5


@pytest.mark.stepped({}, settings={"max.partitions": "1"})
@pytest.mark.parametrize("slow", [OWNER, OTHER])
@pytest.mark.parametrize("dead", [False, True])
def test_a_row_is_not_used_again_before_every_handler_has_noticed(broker: SteppedBroker, slow: int, dead: bool) -> None:
    """A handler may be blocked or dead for any time: each of them may write to the row."""
    gone, fresh = named_for(OWNER, 0, "gone"), named_for(OTHER, 0, "fresh")
    broker.create(gone)
    if dead:
        broker.kill(slow)
    broker.delete(gone)
    for _ in range(4):
        for index in {OWNER, OTHER, CONTROLLER} - {slow}:
            broker.clock.advance_ms(60_000)
            broker.run_once(index)
        assert error_of_new(broker, fresh, 1) == INVALID_PARTITIONS
    if dead:
        broker.boot(slow)
    let_rows_be_used_again(broker)
    broker.create(fresh)
    sent = broker.client().produce([(fresh, 0, record_batch([b"kept"]))])
    broker.settle()
    assert produced(sent) == [(0, 0)]
    assert broker.values(fresh, 0) == [b"kept"]


@pytest.mark.stepped({}, settings={"max.partitions": "2"})
def test_a_row_is_not_used_again_while_a_message_about_it_may_be_on_its_way(broker: SteppedBroker) -> None:
    """A handler without the deletion forwards records by the row; its owner reads them much later."""
    gone, fresh = named_for(OWNER, 0, "gone"), named_for(OWNER, 0, "fresh")
    broker.create(gone, 2)
    first = next(index for index in range(2) if broker.partition(gone, index).owner == OTHER)
    other = next(index for index in range(2) if broker.partition(gone, index).owner == OWNER)
    broker.delete(gone)
    broker.run_once(OWNER)
    forwarded = broker.client().produce(
        [(gone, first, record_batch([b"stale"])), (gone, other, record_batch([b"stale"]))]
    )
    handler = broker.handler(OTHER)
    # It reads the request before the metadata changes.
    with mock.patch.object(handler, "_refresh_metadata", return_value=False):
        broker.run_once(OTHER)
    for _ in range(4):
        broker.clock.advance_ms(200)
        broker.run_once(OTHER)
        broker.run_once(CONTROLLER)
        # The owner has applied the deletion, but has had no turn since.
        assert error_of_new(broker, fresh, 2) == INVALID_PARTITIONS
    let_rows_be_used_again(broker)
    broker.create(fresh, 2)
    broker.settle()
    assert [broker.values(fresh, index) for index in range(2)] == [[], []]
    assert any(code for code, _ in produced(forwarded))


@pytest.mark.stepped({}, settings={"max.partitions": "4"})
def test_a_row_that_a_predecessor_has_closed_is_let_be(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row is not reused before the replacement has processed the deletion."""
    delete = LogManager.delete
    gone, fresh = named_for(OWNER, 0, "gone"), named_for(OTHER, 0, "fresh")
    was_here: list[PartitionName] = []

    def delete_late(manager: LogManager, name: PartitionName) -> None:
        assert error_of_new(broker, fresh, 4) == INVALID_PARTITIONS
        was_here.append(name)
        delete(manager, name)

    broker.create(gone, 4)
    rows = {broker.partition(gone, p).row for p in broker.owned_by(gone, OWNER)}
    broker.delete(gone)
    broker.settle()
    broker.kill(OWNER)
    monkeypatch.setattr(LogManager, "delete", delete_late)
    broker.boot(OWNER)
    assert len(was_here) == len(rows) == 2
    let_rows_be_used_again(broker)
    broker.create(fresh, 4)
    kept = broker.owned_by(fresh, OTHER)
    broker.client().produce([(fresh, p, record_batch([b"kept"])) for p in kept])
    broker.settle()
    assert [broker.values(fresh, p) for p in kept] == [[b"kept"]] * len(kept)
    more = broker.client().produce([(fresh, p, record_batch([b"more"])) for p in kept])
    broker.settle()
    assert produced(more) == [(0, 1)] * len(kept)


# ---- offsets of groups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_an_offset_of_an_open_transaction_is_not_inherited_by_a_later_topic(
    stepped: SteppedBroker, at_once: bool
) -> None:
    """With or without a notice of the deletion before the topic exists again; also after a death."""
    open_coordinator_topics(stepped)
    producer = started(stepped)
    assert offset_errors(settled(stepped, producer.commit_offset("group", "topic", 777))) == [0]
    stepped.delete("topic")
    if not at_once:
        stepped.settle()
    announce_new(stepped, "topic", 4)
    stepped.settle()
    assert producer.take(settled(stepped, producer.end(commit=True))) == 0
    assert committed_offset(stepped, "group", "topic") == -1
    for handler in (OWNER, OTHER):
        stepped.replace(handler)
    assert committed_offset(stepped, "group", "topic") == -1


def test_a_replacement_knows_no_offset_of_a_topic_that_was_deleted_meanwhile(broker: SteppedBroker) -> None:
    """From its first turn on, with the responses to waiting requests."""
    [group] = groups_of(broker, OWNER, 1)
    assert Member(broker, group).commit({("topic", 0): 777}) == [0]
    broker.kill(OWNER)
    broker.delete("topic")
    broker.run_once(OTHER)
    announce_new(broker, "topic", 4)
    broker.run_once(OTHER)
    broker.boot(OWNER)
    topics = [{"name": "topic", "partition_indexes": [0]}]
    asked = send(broker.client(), OFFSET_FETCH, 5, {"group_id": group, "topics": topics})
    broker.run_once(OWNER)
    broker.drain()
    assert [part.committed_offset for part in answer_of(asked).topics[0].partitions] == [-1]


# ---- directories -----------------------------------------------------------------------------------------------------


DELETING = ("broker/log/segments/segment_files.py", "broker/log/log_manager.py", "broker/log/committed_log.py")


def left(broker: SteppedBroker, topic: str) -> list[str]:
    return sorted(path.name for path in broker.config.data_dir.iterdir() if path.name.startswith(topic))


def deleted(broker: SteppedBroker, topic: str) -> list[int]:
    """Create a topic with some records, delete it, and return the rows of its partitions."""
    broker.create(topic, 4)
    rows = [broker.partition(topic, index).row for index in range(4)]
    for index in range(4):
        broker.client().produce([(topic, index, record_batch([b"x"]))])
    broker.settle()
    broker.delete(topic)
    return rows


def finish(broker: SteppedBroker) -> None:
    for _ in range(3):
        broker.clock.advance_ms(1_100)
        broker.settle(10)


def test_a_death_at_any_line_of_a_deletion_leaves_no_directory(stepped: SteppedBroker) -> None:
    line, died = 1, True
    while died:
        topic = f"doomed{line}"
        deleted(stepped, topic)
        died = died_at_line(line, lambda: [stepped.run_once(OWNER) for _ in range(6)], DELETING)
        stepped.replace(OWNER)
        finish(stepped)
        assert left(stepped, topic) == [], f"line {line}"
        line += 3
    assert line > 30


def test_a_death_while_files_are_removed_leaves_no_directory(stepped: SteppedBroker) -> None:
    deleted(stepped, "doomed")

    def dies(directory: Path) -> None:
        next(directory.iterdir()).unlink()
        raise Killed

    def run_once() -> None:
        for _ in range(6):
            stepped.run_once(OWNER)

    with mock.patch.object(segment_files.shutil, "rmtree", dies), pytest.raises(Killed):
        run_once()
    stepped.replace(OWNER)
    finish(stepped)
    assert left(stepped, "doomed") == []


@pytest.mark.parametrize("step", ["rename", "rmtree"])
def test_a_directory_that_cannot_be_removed_is_tried_again_and_keeps_its_row(stepped: SteppedBroker, step: str) -> None:
    rows = deleted(stepped, "doomed")
    where = {"rename": (log_manager.Path, "rename"), "rmtree": (shutil, "rmtree")}[step]
    with mock.patch.object(*where, failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))):
        finish(stepped)
        assert len(left(stepped, "doomed")) == len(rows)
        assert not any(stepped.context.partitions.state(row) == STATE_CLOSED for row in rows)
    finish(stepped)
    assert left(stepped, "doomed") == []
    # A new topic of the same name keeps its directories.
    stepped.create("doomed", 4)
    assert len(left(stepped, "doomed")) == 4
