"""Large partitions of the internal topics are reloaded in slices: others are served, and their own clients wait."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any
from unittest import mock

import pytest

from rotunda.broker.coordinator import coordinator_loader
from rotunda.broker.coordinator.coordinators import STEPS_AT_ONCE
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.offsets import offset_expiration
from rotunda.broker.coordinator.offsets.offset_expiration import STEPS_AT_ONCE as STEPS_WHILE_ASKED
from rotunda.broker.coordinator.offsets.offset_records import offset_key, offset_value
from rotunda.broker.coordinator.offsets.offsets import OFFSETS_AT_ONCE, CommittedOffset
from rotunda.broker.coordinator.records import Record
from rotunda.broker.coordinator.share_state.records import SharePlace
from rotunda.broker.coordinator.transaction.records import encode_key, encode_value
from rotunda.broker.coordinator.transaction.shard import TransactionShard
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.routing import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC, coordinator_partition
from rotunda.broker.scheduling import timers
from rotunda.shm.tables.process_slots import PROCESSOR
from tests.support.groups.requests import GROUP_PARTITIONS, Member, call, committed, groups_of
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.stepped_share_consumer import SteppedShareConsumer, initialize, response_to
from tests.support.transactional import answer_of, committed_offset, offset_errors, send, settled, started

GROUP, ID, PLACE = "group", "id", ("topic", 0)
LOADING = 14
RECORDS = 3_000

#: The number of records read while a partition is opened.
AT_ONCE = STEPS_AT_ONCE * coordinator_loader.RECORDS_AT_ONCE


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limit loading to one step per turn; return the number of loaded records."""
    monkeypatch.setattr(timers, "AT_ONCE_NS", 0)
    taken = [0]
    for shard in (GroupShard, TransactionShard):

        def counted(*args: Any, real: Any = shard.replay) -> Any:
            taken[0] += 1
            return real(*args)

        monkeypatch.setattr(shard, "replay", counted)
    return taken


def others(count: int) -> list[str]:
    """Return ids of groups in the same partition as `GROUP`."""
    partition = coordinator_partition(GROUP, GROUP_PARTITIONS)
    names = (f"other-{number}" for number in itertools.count())
    return list(islice((name for name in names if coordinator_partition(name, GROUP_PARTITIONS) == partition), count))


def offsets(count: int, topic_id: bytes = bytes(16)) -> Iterator[Record]:
    info = CommittedOffset(5, -1, "", 0, topic_id=topic_id)
    for group_id in others(count):
        yield offset_key(group_id, "topic", 0), offset_value(info)


def transactional_ids(count: int, now_ms: int) -> Iterator[Record]:
    for number in range(count):
        metadata = TransactionMetadata(1_000 + number, 0, 60_000, now_ms)
        yield encode_key(f"other-{number}"), encode_value(metadata, 0)


def filled(broker: SteppedBroker, topic: str, name: str, records: list[Record]) -> int:
    """Write records to the partition of an id; return its handler."""
    partition = coordinator_partition(name, broker.context.coordinators.of(topic))
    owner = broker.partition(topic, partition).owner
    log = broker.parts(owner).coordinators.logs[topic, partition]
    for start in range(0, len(records), 500):
        log.append(records[start : start + 500], lambda _: None)
        broker.run_once(owner)
    return owner


def turned_until_loaded(broker: SteppedBroker, owner: int, replays: list[int]) -> int:
    """Run a handler until it has loaded; return the number of records in its longest turn."""
    coordinators = broker.parts(owner).coordinators
    longest = 0
    while coordinators.loading:
        before = replays[0]
        broker.run_once(owner)
        longest = max(longest, replays[0] - before)
    return longest


def test_groups_are_loaded_in_slices_and_asked_for_again(broker: SteppedBroker, replays: list[int]) -> None:
    assert Member(broker, GROUP).commit({PLACE: 7}) == [0]
    owner = filled(broker, GROUP_TOPIC, GROUP, list(offsets(RECORDS)))
    replays[0] = 0
    broker.replace(owner)
    assert AT_ONCE <= replays[0] < 2 * GROUP_PARTITIONS * AT_ONCE
    # One turn each: requests meanwhile get a response, with an error for groups that are not loaded yet.
    served = broker.owned_by("topic", owner)[0]
    sent = broker.client().produce([batch_for(served, b"beside")])
    asked = Member(broker, GROUP)
    commit = asked.commit_request({PLACE: 8})
    broker.run_once(owner)
    broker.drain()
    assert produced(sent)[0][0] == 0
    assert asked.answer(commit).topics[0].partitions[0].error_code == LOADING
    values = {"states_filter": (), "types_filter": ()}
    listed = call(broker, broker.client(), ApiKey.LIST_GROUPS, 5, values)
    assert (listed.error_code, listed.groups) == (LOADING, ())
    assert 0 < turned_until_loaded(broker, owner, replays) <= 2 * coordinator_loader.RECORDS_AT_ONCE
    assert committed(broker, GROUP, [PLACE]) == [(7, 0)]
    assert committed(broker, others(RECORDS)[-1], [PLACE]) == [(5, 0)]
    listed = call(broker, broker.client(), ApiKey.LIST_GROUPS, 5, values)
    assert listed.error_code == 0
    assert len(listed.groups) == RECORDS + 1


@pytest.mark.parametrize(("max_wait_ms", "error"), [(0, LOADING), (60_000, 0)])
def test_a_share_fetch_waits_for_the_state_of_its_group(broker: SteppedBroker, max_wait_ms: int, error: int) -> None:
    """Its load wakes it: a client repeats a rejected one at once."""
    topic = broker.topic("topic")
    broker.context.slots.set_generation(PROCESSOR, 0, 1)
    member = SteppedShareConsumer(broker, topic.topic_id, "m")
    initialize(broker, topic.topic_id)
    broker.client().produce([batch_for(0, b"a record")])
    partition = coordinator_partition(member.group, broker.context.coordinators.of(SHARE_TOPIC))
    owner = broker.partition(SHARE_TOPIC, partition).owner
    shard = broker.parts(owner).coordinators.share_states.shard_of(member.group)
    for _ in range(RECORDS):
        shard.store(member.group, SharePlace(topic.topic_id, 0), 0, 0, [])
        broker.run_once(owner)
    broker.replace(owner)
    sent = member.send(max_wait_ms=max_wait_ms)
    while broker.parts(owner).coordinators.loading:
        assert max_wait_ms == 0 or not sent.answers
        broker.run_once(owner)
        broker.drain()
    broker.settle()
    assert response_to(sent).error_code == error


def test_a_handler_that_dies_while_loading_is_replaced_by_one_that_loads_again(broker: SteppedBroker) -> None:
    assert Member(broker, GROUP).commit({PLACE: 7}) == [0]
    owner = filled(broker, GROUP_TOPIC, GROUP, list(offsets(RECORDS)))
    for _ in range(2):
        broker.replace(owner)
        broker.run_once(owner)
    turned_until_loaded(broker, owner, [0])
    assert committed(broker, GROUP, [PLACE]) == [(7, 0)]


def test_a_partition_that_is_deleted_while_it_is_loaded_is_forgotten(broker: SteppedBroker) -> None:
    owner = filled(broker, GROUP_TOPIC, GROUP, list(offsets(RECORDS)))
    broker.replace(owner)
    coordinators = broker.parts(owner).coordinators
    [place] = coordinators.loading
    coordinators.close_partition(*place)
    turned_until_loaded(broker, owner, [0])
    broker.settle()
    assert place not in coordinators.logs
    assert place[1] not in {shard.partition for shard in coordinators.groups.shards()}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("turns", [0, 5, 10, 20])
def test_a_marker_written_while_a_group_is_loaded_counts(broker: SteppedBroker, turns: int, commit: bool) -> None:
    producer = started(broker, ID)
    assert offset_errors(settled(broker, producer.commit_offset(GROUP, "topic", 33))) == [0]
    owner = filled(broker, GROUP_TOPIC, GROUP, list(offsets(RECORDS)))
    broker.replace(owner)
    for _ in range(turns):
        broker.run_once(owner)
    ended = producer.end(commit=commit)
    broker.settle(rounds=400)
    assert answer_of(ended).error_code == 0
    turned_until_loaded(broker, owner, [0])
    assert committed_offset(broker, GROUP, "topic") == (33 if commit else -1)


def test_transactional_ids_are_loaded_in_slices_and_asked_for_again(broker: SteppedBroker, replays: list[int]) -> None:
    producer = started(broker, ID)
    now_ms = broker.clock.wall_ms()
    owner = filled(broker, TRANSACTION_TOPIC, ID, list(transactional_ids(RECORDS, now_ms)))
    broker.replace(owner)
    early = producer.init()
    broker.run_once(owner)
    broker.drain()
    assert answer_of(early).error_code == LOADING
    values = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}
    assert call(broker, broker.client(), ApiKey.LIST_TRANSACTIONS, 2, values).error_code == LOADING
    assert 0 < turned_until_loaded(broker, owner, replays) <= 2 * coordinator_loader.RECORDS_AT_ONCE
    assert producer.take(settled(broker, producer.init())) == 0
    assert producer.epoch == 1
    listed = call(broker, broker.client(), ApiKey.LIST_TRANSACTIONS, 2, values)
    assert len(listed.transaction_states) == RECORDS + 1


def test_ids_that_have_expired_are_forgotten_in_slices(broker: SteppedBroker) -> None:
    owner = filled(broker, TRANSACTION_TOPIC, ID, list(transactional_ids(RECORDS, broker.clock.wall_ms())))
    broker.replace(owner)
    turned_until_loaded(broker, owner, [0])
    broker.settle()
    known = broker.parts(owner).coordinators.transactions
    broker.clock.advance_ms(8 * 86_400_000)
    left = [sum(1 for _ in known.transactions())]
    assert left == [RECORDS]
    while left[-1]:
        broker.run_once(owner)
        left.append(sum(1 for _ in known.transactions()))
    assert max(before - after for before, after in pairwise(left)) <= 256
    broker.replace(owner)
    turned_until_loaded(broker, owner, [0])
    assert not list(broker.parts(owner).coordinators.transactions.transactions())


def test_offsets_of_a_deleted_topic_are_deleted_in_slices_and_never_returned(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even between two slices, nor for a recreated topic; commits to the new topic remain."""
    owner = filled(broker, GROUP_TOPIC, GROUP, list(offsets(1_000, bytes(range(16)))))
    shard = broker.parts(owner).coordinators.groups.shard_of(GROUP)
    searched = [0]
    delete_offset = offset_expiration.delete_offset

    def counted(*args: Any) -> Any:
        searched[0] += 1
        return delete_offset(*args)

    monkeypatch.setattr(offset_expiration, "delete_offset", counted)
    broker.delete("topic")
    broker.run_once(owner)
    broker.create("topic", 4)
    longest = 0
    groups = others(1_000)
    for group in groups[-2:]:
        assert committed(broker, group, [("topic", 0)]) == [(-1, 0)]
        assert Member(broker, group).commit({PLACE: 7}) == [0]
    while shard.offsets.searches:
        before = searched[0]
        broker.run_once(owner)
        longest = max(longest, searched[0] - before)
    assert longest <= 2 * OFFSETS_AT_ONCE
    asked = [committed(broker, group, [PLACE])[0][0] for group in (*groups[-2:], *groups[:2])]
    assert asked == [7, 7, -1, -1]
    assert len(shard.offsets.readers_of("topic")) == 2


@pytest.mark.parametrize("broker", [{"max.partitions": "500"}], indirect=True)
@pytest.mark.parametrize("topics", [1, 175])
def test_offsets_of_one_group_are_deleted_in_slices_while_requests_must_retry(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    """It may have read very many partitions of one topic, or very many topics: all of them are deleted together."""
    at_once = 16
    monkeypatch.setattr(offset_expiration, "OFFSETS_AT_ONCE", at_once)
    partitions = 350
    each = partitions // topics
    broker.controller.create_topics([NewTopic(f"read-{number}", each) for number in range(topics)])
    broker.announce()
    broker.settle()
    places = [(f"read-{number}", index) for number in range(topics) for index in range(each)]
    value = offset_value(CommittedOffset(5, -1, "", 0))
    owner = filled(broker, GROUP_TOPIC, GROUP, [(offset_key(GROUP, *place), value) for place in places])
    broker.replace(owner)
    turned_until_loaded(broker, owner, [0])
    shard = broker.parts(owner).coordinators.groups.shard_of(GROUP)
    assert len(shard.offsets.keys_of(GROUP)) == partitions
    metadata = broker.parts(broker.context.handlers).metadata
    gone = [metadata.topic(f"read-{number}") for number in range(topics)]
    broker.controller.delete_topics([topic for topic in gone if topic is not None])
    broker.announce_metadata()
    left = [partitions]
    while left[-1] == partitions:
        broker.run_once(owner)
        left.append(len(shard.offsets.keys_of(GROUP)))
    values = {"group_id": GROUP, "topics": [], "require_stable": False}
    assert call(broker, broker.client(), ApiKey.OFFSET_FETCH, 7, values).error_code == LOADING
    left.append(len(shard.offsets.keys_of(GROUP)))
    while left[-1]:
        broker.run_once(owner)
        left.append(len(shard.offsets.keys_of(GROUP)))
    steps = sorted([before - after for before, after in pairwise(left)])
    assert steps[-1] <= (STEPS_WHILE_ASKED + 4) * at_once
    assert steps[-2] <= 2 * at_once
    broker.settle()
    assert committed(broker, GROUP, places[-1:]) == [(-1, 0)]
    assert not shard.offsets.topics()


def test_offsets_of_one_group_expire_in_slices_and_new_commits_stay(broker: SteppedBroker) -> None:
    count = 1_000
    # Missing partitions of an existing topic.
    value = offset_value(CommittedOffset(5, -1, "", 0))
    records = [(offset_key(GROUP, "topic", index), value) for index in range(count)]
    owner = filled(broker, GROUP_TOPIC, GROUP, records)
    broker.replace(owner)
    turned_until_loaded(broker, owner, [0])
    coordinator = broker.parts(owner).coordinators.groups
    shard = coordinator.shard_of(GROUP)
    coordinator.classic.create(shard, GROUP)
    left = [count]
    for _ in coordinator.expiration.expire(shard):
        left.append(len(shard.offsets.keys_of(GROUP)))
        if len(left) == 3:
            now = CommittedOffset(7, -1, "", broker.clock.wall_ms())
            shard.offsets.put(GROUP, "topic", count - 1, now)
            shard.offsets.put(GROUP, "topic", count, now)
    assert max(before - after for before, after in pairwise(left)) <= OFFSETS_AT_ONCE
    assert len(left) > count // OFFSETS_AT_ONCE
    assert shard.offsets.keys_of(GROUP) == {("topic", count - 1), ("topic", count)}
    assert GROUP in shard.groups


def test_failed_partitions_are_closed_and_loaded_again_in_slices(broker: SteppedBroker, replays: list[int]) -> None:
    """A full disk fails the writes to all of them in one turn; meanwhile no response denies that groups exist."""
    owner = broker.partition(GROUP_TOPIC, 0).owner
    own = broker.owned_by(GROUP_TOPIC, owner)
    coordinators = broker.parts(owner).coordinators
    groups = coordinators.groups
    names = groups_of(broker, owner, 900)
    for number, name in enumerate(names):
        groups.classic.create(groups.shard_of(name), name)
        if not number % 100:
            broker.run_once(owner)
    assert Member(broker, names[0]).commit({PLACE: 7}) == [0]
    shards = list(groups.shards())
    assert len(shards) == len(own)
    for shard in shards:
        shard.append([(offset_key("x", "topic", 0), None)], lambda _: None)
    with mock.patch.object(LogSegment, "write", side_effect=OSError(errno.ENOSPC, "full")):
        broker.run_once(owner)
    replays[0] = 0
    release, read, opened = [len(names)], [0], [0]
    values = {"states_filter": (), "types_filter": ()}
    early = None
    while early is None or coordinators.loading:
        broker.run_once(1 - owner)
        broker.run_once(owner)
        release.append(sum(len(shard.groups) for shard in shards))
        read.append(replays[0])
        opened.append(len(coordinators.logs))
        early = early or send(broker.client(), ApiKey.LIST_GROUPS, 5, values)
    assert not release[-1]
    assert max(before - after for before, after in pairwise(release)) <= 256
    assert max(after - before for before, after in pairwise(read)) <= 2 * coordinator_loader.RECORDS_AT_ONCE
    assert max(after - before for before, after in pairwise(opened[1:])) == 1
    broker.settle()
    assert answer_of(early).error_code == LOADING
    listed = call(broker, broker.client(), ApiKey.LIST_GROUPS, 5, values)
    assert (listed.error_code, len(listed.groups)) == (0, len(names))
    assert committed(broker, names[0], [PLACE]) == [(7, 0)]
