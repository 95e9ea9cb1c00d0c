"""Changes of many partitions: applied in slices, in order per partition, and immediately on access."""

from __future__ import annotations

import errno
import logging
import os
from typing import Any
from unittest import mock

import pytest

from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.partition_log import PartitionLog
from rotunda.broker.metadata import metadata_cache
from rotunda.broker.metadata.configs.config_changes import TOPIC, Alteration, ConfigChange, Operation
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.partitions.partition_changes import OwnedPartitions, PartitionChanges
from rotunda.broker.partitions.partition_manager import PROGRESS_NS
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN
from tests.support.fakes import failing
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Sent, SteppedBroker, produced
from tests.support.wire_messages import PRODUCE, produce_body

PARTITIONS = 40


class Log:
    """Steps that record their execution."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.changes = PartitionChanges()

    def add(self, place: tuple[str, int], name: str, opens: int | None = None) -> None:
        self.changes.add(place, lambda: self.taken.append(name), opens=opens)


def test_a_partition_deleted_before_it_was_opened_stays_closed() -> None:
    log = Log()
    owned = OwnedPartitions(log.changes)
    log.add(("a", 0), "open", opens=3)
    log.changes.cancel(3)
    log.add(("a", 0), "delete")
    assert owned.get(3) is None
    assert log.taken == []
    log.changes.finish()
    assert log.taken == ["open", "delete"]


pytestmark = pytest.mark.stepped({})


def test_a_partition_that_is_asked_for_is_opened_there_and_then(broker: SteppedBroker) -> None:
    """It is one of many new partitions, most of which are not open yet."""
    controller = broker.controller
    controller.create_topics([NewTopic("wide", PARTITIONS)])
    broker.announce_metadata()
    partitions = broker.parts(0).partitions
    partitions.take_metadata()
    [*_, last] = broker.owned_by("wide", 0)
    waiting = len(partitions.changes)
    assert waiting > 10
    sent = broker.client().produce([("wide", last, record_batch([b"at once"]))])
    frames = broker.handler(0)
    frames.slices.run_once()
    assert len(partitions.changes) == waiting
    # The other partitions wait for their slices, which are not started here.
    with mock.patch.object(partitions.changes, "begin"):
        broker.settle()
    assert produced(sent) == [(0, 0)]
    assert len(partitions.changes) == waiting - 1
    partitions.changes.finish()
    assert set(broker.owned_by("wide", 0)) == {
        partition.index
        for partition in partitions.metadata.topic("wide").partitions
        if partition.row in partitions.owned
    }


def alter(broker: SteppedBroker, name: str, configs: dict[str, str]) -> None:
    """Change settings of a topic as the controller does before its response."""
    settings = tuple(ConfigChange(key, Operation.SET, value) for key, value in configs.items())
    broker.controller.alter_configs(TOPIC, name, Alteration(settings, replaces=True), validate_only=False)
    broker.announce_metadata()


@pytest.mark.parametrize("by_its_connection", [False, True], ids=["first request", "like the one before"])
def test_a_setting_applies_to_requests_after_the_response(broker: SteppedBroker, by_its_connection: bool) -> None:
    """The owner finds the change and the Produce in the same turn."""
    too_large, client = 10, broker.client()
    broker.create("set", 4)
    index = broker.owned_by("set", 0)[0]
    if by_its_connection:
        client.produce([("set", index, record_batch([bytes(2000)]))])
        broker.settle()
    alter(broker, "set", {"max.message.bytes": "1000"})
    refused = client.produce([("set", index, record_batch([bytes(2000)]))])
    broker.settle()
    assert produced(refused) == [(too_large, -1)]
    alter(broker, "set", {})
    taken = client.produce([("set", index, record_batch([bytes(2000)]))])
    broker.settle()
    assert produced(taken) == [(0, int(by_its_connection))]


def test_a_topic_that_is_altered_before_it_is_opened_has_its_last_settings(broker: SteppedBroker) -> None:
    controller, partitions = broker.controller, broker.parts(0).partitions
    controller.create_topics([NewTopic("wide", PARTITIONS)])
    broker.announce_metadata()
    partitions.take_metadata()
    alter(broker, "wide", {"max.message.bytes": "1000"})
    first, *_ = broker.owned_by("wide", 0)
    sent = broker.client().produce([("wide", first, record_batch([bytes(2000)]))])
    broker.settle()
    assert produced(sent) == [(10, -1)]
    partitions.changes.finish()
    logs = [each.log for each in partitions.owned.values() if each.log.directory.name.startswith("wide-")]
    assert {log.config.max_message_bytes for log in logs} == {1000}


def test_a_deleted_partition_is_closed_in_slices_and_at_once_if_its_row_is_asked_for(broker: SteppedBroker) -> None:
    """A handler without the deletion forwards records by the row: they are rejected."""
    broker.create("gone", PARTITIONS)
    broker.settle()
    partitions, table = broker.parts(0).partitions, broker.context.partitions
    first, *_, last = (broker.partition("gone", index) for index in broker.owned_by("gone", 0))
    own = broker.owned_by("gone", 1)[0]
    broker.delete("gone")
    partitions.take_metadata()
    assert [table.state(each.row) for each in (first, last)] == [STATE_OPEN] * 2
    with mock.patch.object(broker.handler(1), "_refresh_metadata", return_value=False):
        parts = [("gone", own, record_batch([b"here"])), ("gone", last.index, record_batch([b"stale"]))]
        sent = broker.client().send(PRODUCE, 7, produce_body(parts, 1), target=1)
        broker.run_once(1)
    peer_rpc = broker.handler(0)._peer_rpc
    assert not peer_rpc.take(broker.handler(0)._peers.receive(), broker.clock.monotonic_ns() + 1)
    assert table.state(last.row) == STATE_CLOSED
    assert table.state(first.row) == STATE_OPEN
    broker.settle()
    assert [error for error, _ in produced(sent)][1] != 0
    partitions.changes.finish()
    assert table.state(first.row) == STATE_CLOSED


def test_a_topic_that_is_made_again_at_once_has_none_of_its_former_records(broker: SteppedBroker) -> None:
    broker.create("again", 4)
    index = broker.owned_by("again", 0)[0]
    broker.client().produce([("again", index, record_batch([b"before"]))])
    broker.settle()
    controller, partitions = broker.controller, broker.parts(0).partitions
    topic = broker.topic("again")
    controller.delete_topics([topic])
    controller.create_topics([NewTopic("again", 4)])
    broker.announce_metadata()
    partitions.take_metadata()
    sent = broker.client().produce([("again", index, record_batch([b"after"]))])
    broker.settle()
    assert produced(sent) == [(0, 0)]
    assert broker.values("again", index) == [b"after"]


def test_changes_added_during_steps_are_made_too() -> None:
    """Settings that change while logs are opened do not wait for the next change."""
    log = Log()
    altered: list[int] = []
    log.add(("a", 0), "open a-0", opens=7)
    log.add(("a", 1), "open a-1", opens=8)
    work = log.changes.work()
    next(work)
    log.changes.alter([7, 8], altered.append)
    list(work)
    assert (log.taken, altered) == (["open a-0", "open a-1"], [7, 8])
    assert not log.changes


def test_requests_wait_until_all_announced_changes_are_applied(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of many topics are applied over several turns; later requests and messages are read after the last."""
    monkeypatch.setattr(metadata_cache, "ELEMENTS_AT_ONCE", 1)
    handler, partitions = broker.handler(0), broker.parts(0).partitions
    broker.controller.create_topics([NewTopic(f"many-{number}", 1) for number in range(8)])
    broker.controller.create_topics([NewTopic("last", 8)])
    broker.announce_metadata()
    index = broker.owned_by("last", 0)[0]
    sent = broker.client().produce([("last", index, record_batch([b"sent"]))])
    # Simulate a step that uses the whole budget of a turn.
    real = partitions.take_metadata
    monkeypatch.setattr(partitions, "take_metadata", lambda _: real(0))
    turns = 0
    while not sent_is_taken(broker, sent):
        assert broker.run_once(0)
        turns += 1
        assert turns < 100
        if partitions.is_taking:
            assert partitions.is_behind
            assert handler.has_more
            assert not sent_is_taken(broker, sent)
    assert turns > 8
    broker.settle()
    assert produced(sent) == [(0, 0)]


def sent_is_taken(broker: SteppedBroker, sent: Sent) -> bool:
    broker.drain()
    return bool(sent.answers)


def test_partitions_without_descriptors_are_opened_in_slices_later(broker: SteppedBroker) -> None:
    """Not all in one turn; and a partition is opened immediately on access, like a new one."""
    broker.create("wide", PARTITIONS)
    broker.settle()
    own = broker.owned_by("wide", 0)
    with mock.patch.object(LogManager, "open", failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))):
        broker.replace(0)
        broker.settle()
    partitions = broker.parts(0).partitions
    rows = {index: broker.partition("wide", index).row for index in own}
    assert not partitions.owned
    refused = broker.client().produce([("wide", own[0], record_batch([b"refused"]))])
    broker.settle(10)
    assert produced(refused) != [(0, 0)]
    broker.clock.advance_ms(1_100)
    with mock.patch.object(broker.handler(0).slices, "run_once", return_value=False):
        broker.run_once(0)
        broker.clock.advance_ms(200)
        broker.run_once(0)
    assert not partitions.owned
    assert len(partitions.changes) == len(own)
    sent = broker.client().produce([("wide", own[-1], record_batch([b"at once"]))])
    assert partitions.own("wide", own[-1]) is not None
    assert list(partitions.owned) == [rows[own[-1]]]
    broker.settle()
    assert produced(sent) == [(0, 0)]
    assert set(partitions.owned) == set(rows.values())
    assert not partitions.changes


def test_opening_many_partitions_at_a_start_is_logged(broker: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create("a", 12)
    target = broker.partition("a", 0).owner
    count = len(broker.parts(target).partitions.log_manager.logs)
    assert count > 4
    opened, open_log = 0, LogManager.open

    def open_slowly(*arguments: Any) -> PartitionLog:
        nonlocal opened
        opened += 1
        broker.clock.advance_ns(PROGRESS_NS if opened in {2, 4} else 0)
        return open_log(*arguments)

    caplog.set_level(logging.INFO)
    with mock.patch.object(LogManager, "open", open_slowly):
        broker.replace(target)
    lines = [line for line in caplog.messages if line.startswith("opened ")]
    assert lines == [f"opened {number} of {count} partitions" for number in (2, 4)]
