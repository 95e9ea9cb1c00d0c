"""The stored state of share groups: what is loaded is what was written, whatever mixture of records it is in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.coordinator.records import Record
from rotunda.broker.coordinator.share_state.records import SharePlace, StoredState
from rotunda.broker.coordinator.share_state.shard import ShareCounts, ShareGroup, ShareStateShard
from rotunda.broker.partitions.share.delivery import StateBatch
from rotunda.broker.partitions.share.share_window import AcquireTerms, DeliveryTerms, LogBatch
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.timers import Timers
from tests.support.fakes import FakeClock
from tests.support.results import present

A, B = (bytes([number]) * 16 for number in (1, 2))
PLACES = [SharePlace(A, 0), SharePlace(A, 1), SharePlace(B, 0)]


class Log:
    """A log that commits at once."""

    partition = 0
    has_failed = False

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Sequence[Record], done: Callable[[int], None]) -> None:
        self.records += records
        done(0)

    def when_committed(self, done: Callable[[int], None]) -> None:
        done(0)


class Store:
    """A shard over a log, at a time."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.log = Log()
        self.now_ms = 0
        self.updates = updates_per_snapshot
        self.shard = self._new(self.log)
        self.errors: list[int] = []

    def _new(self, log: Log) -> ShareStateShard:
        return ShareStateShard(
            log,  # type: ignore[arg-type]
            lambda _: None,
            lambda: self.updates,
            lambda: self.now_ms,
            lambda: len(log.records),
        )

    def initialize(self, group: str, places: Sequence[SharePlace], epoch: int = 1, start: int = 0) -> None:
        self.shard.initialize(group, places, epoch, start, self.errors.append)

    def loaded(self, first: int = 0) -> dict[str, dict[SharePlace, tuple[object, ...]]]:
        """Return the content of a shard that has loaded the log from an offset on."""
        shard = self._new(Log())
        for key, value in self.log.records[first:]:
            shard.replay(key, value, -1)
        return content(shard)


def content(shard: ShareStateShard) -> dict[str, dict[SharePlace, tuple[object, ...]]]:
    return {
        group: {
            place: (each.state_epoch, each.snapshot_epoch, each.start_offset, each.complete_count, each.batches)
            for place, each in states.items()
        }
        for group, states in shard.states.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_loaded_state_is_the_written_one_also_after_pruning(seed: int) -> None:
    """S91, S93, S95."""
    source, store = random.Random(seed), Store()
    for group in ("g", "h"):
        store.initialize(group, PLACES)
    starts = dict.fromkeys([(group, place) for group in ("g", "h") for place in PLACES], 0)
    for step in range(200):
        store.now_ms += 1
        group, place = source.choice(list(starts))
        starts[group, place] += source.randrange(3)
        first = starts[group, place] + source.randrange(20)
        batch = StateBatch(first, first + source.randrange(5), source.choice((0, 2, 4)), source.randrange(1, 4))
        store.shard.store(group, place, starts[group, place], step, [batch])
        if source.random() < 0.02:
            store.shard.delete(group, [B], store.errors.append)
            store.initialize(group, [SharePlace(B, 0)])
            starts[group, SharePlace(B, 0)] = 0
        if source.random() < 0.05:
            store.shard.refresh(50)
        assert store.loaded(store.shard.oldest_needed()) == store.loaded() == content(store.shard)
    assert set(store.errors) <= {0}


@pytest.mark.parametrize(("most", "versions"), [(3, [0, 1, 1, 1, 0, 1]), (0, [0, 0, 0, 0, 0, 0])])
def test_a_snapshot_follows_a_number_of_updates(most: int, versions: list[int]) -> None:
    """S93."""
    store = Store(most)
    store.initialize("g", PLACES[:1])
    for start in range(5):
        store.shard.store("g", PLACES[0], start, 0, [])
    assert [int.from_bytes(key[:2], "big") for key, _ in store.log.records] == versions


def test_snapshots_are_not_repeated_while_nothing_is_written() -> None:
    """S95."""
    store = Store()
    store.initialize("g", PLACES)
    store.shard.store("g", PLACES[0], 9, 0, [])
    store.now_ms += 100
    store.shard.refresh(50)
    assert store.shard.oldest_needed() == 4
    records = len(store.log.records)
    store.now_ms += 100
    store.shard.refresh(50)
    assert len(store.log.records) == records


def test_an_older_state_epoch_is_fenced_and_a_newer_one_discards_the_state() -> None:
    """S92."""
    store = Store()
    store.initialize("g", PLACES[:1], epoch=3, start=10)
    store.shard.store("g", PLACES[0], 12, 1, [StateBatch(14, 14, 2, 1)])
    store.initialize("g", PLACES[:2], epoch=2)
    assert store.errors == [0, ErrorCode.FENCED_STATE_EPOCH]
    store.initialize("g", PLACES[:1], epoch=3, start=5)
    assert store.loaded()["g"] == {PLACES[0]: (3, 1, 5, 0, []), PLACES[1]: (2, 0, 0, 0, [])}


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 4, 2, 1), StateBatch(-2, 4, 2, 1), StateBatch(4, 4, 1, 1), StateBatch(4, 4, 7, 1)]
)
@pytest.mark.parametrize("is_snapshot", [True, False])
def test_an_impossible_record_is_rejected_and_changes_nothing(batch: StateBatch, *, is_snapshot: bool) -> None:
    store = Store()
    store.initialize("g", PLACES[:1])
    before = content(store.shard)
    wrong = StoredState(1, 3, 0, 0)
    wrong.batches = [batch]
    key, value = wrong.snapshot("g", PLACES[0], 0) if is_snapshot else wrong.update("g", PLACES[0], [batch])
    with pytest.raises(ValueError, match="impossible"):
        store.shard.replay(key, value, -1)
    assert content(store.shard) == before


def test_a_start_offset_never_decreases_but_by_a_reset() -> None:
    """S93."""
    store = Store()
    store.initialize("g", PLACES[:1])
    store.shard.store("g", PLACES[0], 9, 0, [])
    store.shard.store("g", PLACES[0], 4, 0, [])
    assert present(store.shard.state("g", PLACES[0])).start_offset == 9


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    store = Store()
    store.initialize("g", PLACES)
    store.shard.delete("g", [A], store.errors.append)
    assert list(store.loaded()["g"]) == [PLACES[2]]
    store.shard.delete("g", [B], store.errors.append)
    assert store.loaded() == {}
    assert store.shard.oldest_needed() == len(store.log.records)


# ---- groups in use ------------------------------------------------------------------------------------------------


class InUse:
    """A group in use: one window over the log's first 20 records, and the timers of its locks."""

    def __init__(self) -> None:
        self.store, self.clock = Store(), FakeClock()
        self.timers = Timers(self.clock.monotonic_ns)
        self.store.initialize("g", PLACES[:1])
        self.terms = DeliveryTerms(lock_ns=20_000, count_limit=5, most_in_flight=2000)
        memory: Any = SimpleNamespace(add=lambda _: None)
        shard = self.store.shard
        self.group = ShareGroup("g", shard, lambda _: self.terms, self.timers, lambda *_: None, ShareCounts(), memory)
        shard.groups["g"] = self.group
        self.window = self.group.begin(PLACES[0], 0, [])

    def acquire(self, batch: LogBatch) -> None:
        self.window.acquire([batch], AcquireTerms("a", 500, 0), self.terms, self.clock.monotonic_ns())
        self.group.watch_locks(PLACES[0])

    def advance_ns(self, nanoseconds: int) -> None:
        self.clock.advance_ns(nanoseconds)
        self.timers.run_due(self.clock.monotonic_ns())


def test_a_lowered_lock_duration_ends_later_locks_before_earlier_ones() -> None:
    """S8A: it is that of the acquisition, and not that of the group's first lock."""
    use = InUse()
    use.acquire(LogBatch(0, 9))
    use.terms = use.terms._replace(lock_ns=1000)
    use.acquire(LogBatch(10, 19))
    use.advance_ns(999)
    assert use.window.waiting == 0
    use.advance_ns(1)
    assert use.window.batches() == [StateBatch(0, 9, 1, 1), StateBatch(10, 19, 0, 1)]
    use.advance_ns(19_000)
    assert use.window.waiting == 20


def test_the_window_of_a_deleted_topic_ends_with_its_locks() -> None:
    """S69."""
    use = InUse()
    use.acquire(LogBatch(0, 9))
    use.store.shard.delete("g", [A], use.store.errors.append)
    assert (use.group.windows, use.timers.next_deadline_ns()) == ({}, None)
