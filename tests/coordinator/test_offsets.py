"""Committed offsets: the effective commit, pending commits of transactions, and expiration by retention."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from rotunda.broker.coordinator.offsets.commits import CommitTime, apply_commit
from rotunda.broker.coordinator.offsets.offset_expiration import Pace, delete_offsets, expire_offsets
from rotunda.broker.coordinator.offsets.offsets import (
    NO_EXPIRY,
    CommitPartition,
    CommitPartitions,
    CommittedOffset,
    OffsetStore,
)
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import finished
from tests.support.feeds import random_seed
from tests.support.groups.coordinator import GROUP, Coordinator, commit_part
from tests.support.groups.members import leave, stable_group

KEY = (GROUP, "topic", 0)


def committed(offset: int, commit_ms: int = 0) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms)


def offset_of(store: OffsetStore) -> int:
    found = store.of_group(GROUP).get("topic", {}).get(0)
    return -1 if found is None else found.offset


# ---- transactions ---------------------------------------------------------------------------------------------------


def test_a_deleted_offset_is_not_brought_back_by_a_transaction() -> None:
    store = OffsetStore()
    store.put_pending(7, *KEY, committed(5))
    store.remove(*KEY)
    store.end_transaction(7, commit=True)
    assert offset_of(store) == -1


def test_any_order_of_commits_leaves_the_last_written_offset() -> None:
    """A model: of all effective commits, the offset of the last one written."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choice = random.Random(seed)
    for _ in range(300):
        store, written, ended = OffsetStore(), {}, {}
        open_producers: dict[int, list[int]] = {}
        # Of several members, one after the other.
        commits = [CommitPartitions(GROUP, [CommitPartition("topic", 0, -1, "", bytes(16))]) for _ in range(3)]
        for number in range(12):
            producer = choice.choice([None, None, 1, 2])
            if choice.random() < 0.4 and open_producers:
                ending = choice.choice(list(open_producers))
                commit = choice.random() < 0.6
                store.end_transaction(ending, commit=commit)
                last = max(open_producers.pop(ending))
                if commit:
                    ended[last] = True
            elif producer is None:
                if choice.random() < 0.5:
                    store.put(*KEY, committed(number))
                else:
                    store.restore(choice.choice(commits), [number], 0)
                written[number] = True
            else:
                store.put_pending(producer, *KEY, committed(number))
                open_producers.setdefault(producer, []).append(number)
        assert offset_of(store) == max([*written, *ended], default=-1)


def all_reported(store: OffsetStore, groups: Sequence[str], topics: Sequence[str]) -> list[object]:
    return [
        {group: {topic: dict(parts) for topic, parts in store.of_group(group).items()} for group in groups},
        {group: store.keys_of(group) for group in groups},
        finished(store.settle_all()),
        {topic: set(store.readers_of(topic)) for topic in topics},
        set(store.topics()),
        [store.has_any(group) for group in groups],
        [store.is_pending(group, topic, index) for group in groups for topic in topics for index in (0, 1)],
    ]


class Twins:
    """Two stores: one receives repeated commits as such, the other each of their offsets separately."""

    GROUPS, TOPICS, PRODUCERS = ("first", "second", "third"), ("a", "b"), range(3)

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.noting, self.putting = OffsetStore(), OffsetStore()
        self.commits = [
            CommitPartitions(choice.choice(self.GROUPS), [self.partition() for _ in range(choice.randint(1, 3))])
            for _ in range(5)
        ]

    def partition(self) -> CommitPartition:
        choice = self.choice
        return CommitPartition(choice.choice(self.TOPICS), choice.randrange(2), choice.randrange(9), "text", bytes(16))

    def both(self, change: Callable[[OffsetStore], object]) -> None:
        for store in (self.noting, self.putting):
            change(store)

    def restore(self, number: int) -> None:
        commit = self.choice.choice(self.commits)
        offsets = [number + index for index in range(len(commit.parts))]
        self.noting.restore(commit, offsets, number)
        for (topic, index, leader_epoch, text, topic_id), offset in zip(commit.parts, offsets, strict=True):
            value = CommittedOffset(offset, leader_epoch, text, number, NO_EXPIRY, topic_id)
            self.putting.put(commit.group_id, topic, index, value)

    def step(self, number: int) -> None:
        choice = self.choice
        place = choice.choice(self.GROUPS), choice.choice(self.TOPICS), choice.randrange(2)
        producer, commit = choice.choice(self.PRODUCERS), choice.random() < 0.5
        steps: dict[Callable[[], None], int] = {
            lambda: self.restore(number): 9,
            lambda: self.both(lambda store: store.put(*place, committed(number))): 2,
            lambda: self.both(lambda store: store.put_pending(producer, *place, committed(number))): 3,
            lambda: self.both(lambda store: store.end_transaction(producer, commit=commit)): 2,
            lambda: self.both(lambda store: store.remove(*place)): 2,
            lambda: self.compare(place[:1], place[1:2]): 1,
        }
        choice.choices(list(steps), list(steps.values()))[0]()

    def compare(self, groups: Sequence[str] = GROUPS, topics: Sequence[str] = TOPICS) -> None:
        assert all_reported(self.noting, groups, topics) == all_reported(self.putting, groups, topics)


def is_empty(store: OffsetStore) -> bool:
    """Return whether all maps of a store are empty."""
    return not any(each for each in vars(store).values() if isinstance(each, dict | list | set))


def test_noted_offsets_are_the_same_as_stored_ones_and_leave_nothing() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    choice = random.Random(seed)
    for _ in range(200):
        twins = Twins(choice)
        for number in range(choice.randrange(1, 40)):
            twins.step(number)
        twins.compare()
        for producer in twins.PRODUCERS:
            twins.both(lambda store, producer=producer: store.end_transaction(producer, commit=True))
        twins.compare()
        store = twins.noting
        for group in twins.GROUPS:
            for topic, index in store.keys_of(group):
                store.remove(group, topic, index)
        assert is_empty(store)


def test_notes_of_an_unread_group_are_bounded() -> None:
    """Each topic change replaces the cached commits of members; offsets remain noted in at most 256 old entries."""
    store = OffsetStore()
    noted: list[CommitPartitions] = []
    part = CommitPartition("topic", 0, -1, "", bytes(16))
    for offset in range(1000):
        noted.append(CommitPartitions(GROUP, [part]))
        store.restore(noted[-1], [offset], 0)
        assert sum(each.offsets is not None for each in noted) <= 256
    assert store.of_group(GROUP)["topic"][0].offset == 999


# ---- the text of a commit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x" * 8, 0),
        ("x" * 9, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\u20ac" * 8, 0),
        ("\u20ac" * 9, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 4, 0),
        ("\U0001f600" * 4 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_the_text_of_a_commit_is_limited_in_utf_16_units(text: str, error: int, producer_id: int) -> None:
    """Kafka compares the length of a Java string with offset.metadata.max.bytes."""
    shard = Coordinator().shard
    time = CommitTime(0, most_metadata=8)
    responses = apply_commit(shard, GROUP, ("t", bytes(16), 1), [commit_part(0, 5, text)], time, [], producer_id)
    assert [each["error_code"] for each in responses] == [error]


# ---- retention ------------------------------------------------------------------------------------------------------


def expire(coordinator: Coordinator, retention_ms: int = 1000) -> int:
    """Return how many offsets have expired."""
    now_ms = coordinator.clock.wall_ms()
    return finished(expire_offsets(coordinator.shard, coordinator.group, (now_ms, retention_ms), Pace()))


def commit(coordinator: Coordinator, topic: str, expire_ms: int = -1) -> None:
    time = CommitTime(coordinator.clock.wall_ms(), expire_ms)
    apply_commit(coordinator.shard, GROUP, (topic, bytes(16), 1), [commit_part(0, 5)], time, [])


def test_offsets_of_a_group_without_members_are_kept_from_the_day_the_last_one_left() -> None:
    coordinator = Coordinator()
    members = stable_group(coordinator)
    commit(coordinator, "topic")
    coordinator.advance_ms(5000)
    assert expire(coordinator) == 0
    leave(coordinator, *[(member, None) for member in members])
    coordinator.advance_ms(999)
    assert expire(coordinator) == 0
    coordinator.advance_ms(1)
    assert expire(coordinator) == 1


def test_offsets_of_a_simple_group_are_kept_from_their_commit() -> None:
    coordinator = Coordinator()
    coordinator.classic.create(coordinator.shard, GROUP)
    commit(coordinator, "topic")
    coordinator.advance_ms(999)
    assert expire(coordinator) == 0
    coordinator.advance_ms(1)
    assert expire(coordinator) == 1


def test_offsets_of_topics_without_readers_expire_while_others_stay() -> None:
    coordinator = Coordinator()
    subscription = b"\x00\x00\x00\x00\x00\x01\x00\x04mine" + b"\xff" * 4
    stable_group(coordinator, [(("range", subscription),)])
    commit(coordinator, "mine")
    commit(coordinator, "other")
    coordinator.advance_ms(1000)
    assert expire(coordinator) == 1
    assert list(coordinator.shard.offsets.of_group(GROUP)) == ["mine"]


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    coordinator = Coordinator()
    coordinator.classic.create(coordinator.shard, GROUP)
    commit(coordinator, "topic")
    coordinator.shard.offsets.put_pending(7, *KEY, committed(5))
    coordinator.advance_ms(2000)
    assert expire(coordinator) == 0


@pytest.mark.parametrize(("expire_in_ms", "gone"), [(500, 1), (5000, 0)])
def test_an_old_client_sets_the_retention_of_its_offset(expire_in_ms: int, gone: int) -> None:
    coordinator = Coordinator()
    coordinator.classic.create(coordinator.shard, GROUP)
    commit(coordinator, "topic", coordinator.clock.wall_ms() + expire_in_ms)
    coordinator.advance_ms(1500)
    assert expire(coordinator) == gone


def test_all_offsets_of_a_group_are_deleted_with_it_pending_ones_included() -> None:
    coordinator = Coordinator()
    coordinator.classic.create(coordinator.shard, GROUP)
    commit(coordinator, "topic")
    coordinator.shard.offsets.put_pending(7, GROUP, "other", 3, committed(5))
    records = delete_offsets(coordinator.shard, GROUP)
    assert len(records) == 2
    assert all(value is None for _, value in records)
    coordinator.shard.end_transaction(7, commit=True)
    assert not coordinator.shard.offsets.has_any(GROUP)


def test_a_group_record_has_the_time_at_which_the_group_became_empty() -> None:
    """Otherwise the retention would start over with every replacement of a handler."""
    coordinator = Coordinator()
    members = stable_group(coordinator)
    coordinator.advance_ms(777)
    leave(coordinator, *[(member, None) for member in members])
    since = coordinator.group.state_ms
    coordinator.clock.advance_ms(5000)
    coordinator.replace()
    assert coordinator.group.state_ms == since


def test_a_topic_has_a_reader_until_its_last_offset_is_deleted() -> None:
    store = OffsetStore()
    store.put(GROUP, "topic", 0, committed(1))
    store.put(GROUP, "topic", 1, committed(1))
    store.remove(GROUP, "topic", 0)
    assert store.readers_of("topic") == [GROUP]
    store.put_pending(5, GROUP, "topic", 1, committed(1))
    store.remove(GROUP, "topic", 1)
    store.put_pending(5, GROUP, "topic", 1, committed(1))
    assert store.readers_of("topic") == [GROUP]
    store.end_transaction(5, commit=True)
    assert store.readers_of("topic") == [GROUP]
