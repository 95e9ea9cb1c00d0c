"""The window of a share partition compared with a model with an entry per offset, and its rules one by one."""

from __future__ import annotations

import random
import time
import tracemalloc
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.partitions.share.delivery import (
    ACCEPT,
    ENDED,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    DeliveryState,
    StateBatch,
    merge_batches,
)
from rotunda.broker.partitions.share.share_session import ShareSession
from rotunda.broker.partitions.share.share_window import (
    AcknowledgementBatch,
    Acquired,
    AcquireTerms,
    DeliveryTerms,
    LogBatch,
    ShareWindow,
)
from rotunda.broker.protocol.error_codes import ErrorCode

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACQUIRED,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)
TERMS = DeliveryTerms(lock_ns=1000, count_limit=5, most_in_flight=60)
MEMBERS = ("a", "b", "c")
LOG_END = 400


def log_of(seed: random.Random) -> list[LogBatch]:
    """Return a log's batches: some offsets are missing, some transactions aborted."""
    batches, at = [], 0
    while at < LOG_END:
        at += seed.choice((0, 0, 0, 0, 3))
        size = seed.choice((1, 1, 5, 10, 20))
        batches.append(LogBatch(at, at + size - 1, seed.random() < 0.1))
        at += size
    return batches


@dataclass
class Offset:
    """The state of one offset by the responses that clients received."""

    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: int = 0
    #: Archived because the log has no record there, or an aborted one: after a crash that is found again.
    is_missing: bool = False


class Run:
    """A window under random calls, and a model of it; `stored` is what a crash leaves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = log_of(self.random)
        self.window = ShareWindow(0)
        self.now = 0
        self.offsets: dict[int, Offset] = {}
        self.stored: list[StateBatch] = []
        self.stored_start = 0
        self.deliveries: dict[int, int] = {}
        self.crashes = 0

    def of(self, offset: int) -> Offset:
        return self.offsets.setdefault(offset, Offset())

    def store(self) -> None:
        self.stored_start = self.window.start_offset
        self.stored = merge_batches(self.stored, self.window.drain_changes(), self.stored_start)

    def acquire(self) -> None:
        offset = self.window.fetch_offset(TERMS.most_in_flight)
        if offset < 0:
            assert self.window.in_flight >= TERMS.most_in_flight
            return
        limits = AcquireTerms(
            self.random.choice(MEMBERS), self.random.choice((1, 7, 30)), 5, is_strict=self.random.random() < 0.3
        )
        read = [batch for batch in self.log if batch.last >= offset]
        acquired = self.window.acquire(iter(read), limits, TERMS, self.now)
        for one, following in pairwise(acquired):
            assert one.last < following.first
        total = 0
        for each in acquired:
            for at in range(each.first, each.last + 1):
                known = self.of(at)
                assert at >= self.stored_start
                assert known.state == AVAILABLE, (at, known)
                known.state, known.count, known.member = ACQUIRED, known.count + 1, limits.member
                known.deadline = self.now + TERMS.lock_ns
                assert known.count == each.delivery_count
                self.deliveries[at] = self.deliveries.get(at, 0) + 1
                total += 1
        if limits.is_strict:
            assert total <= limits.max_records
        most_at_once = max(following.last - one.last for one, following in pairwise(self.log))
        assert self.window.in_flight < TERMS.most_in_flight + most_at_once

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        held = sorted(at for at, known in self.offsets.items() if known.state == ACQUIRED and known.member == member)
        if not held:
            return
        first = last = self.random.choice(held)
        while last + 1 in held and self.random.random() < 0.8:
            last += 1
        kinds = [self.random.choice((GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)) for _ in range(first, last + 1)]
        if self.random.random() < 0.7:
            kinds = kinds[:1]
        batches = [AcknowledgementBatch(first, last, kinds)]
        assert self.window.acknowledge(member, batches, TERMS, self.now) == 0
        for at in range(first, last + 1):
            kind, known = kinds[at - first if len(kinds) > 1 else 0], self.of(at)
            if kind == RENEW:
                known.deadline = self.now + TERMS.lock_ns
            elif kind == RELEASE:
                self.fail(known)
            else:
                known.state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
        self.store()

    def acknowledge_wrongly(self) -> None:
        before = self.window.batches()
        held_by_others = [at for at, known in self.offsets.items() if known.state == ACQUIRED and known.member != "a"]
        if held_by_others:
            at = self.random.choice(held_by_others)
            error = self.window.acknowledge("a", [AcknowledgementBatch(at, at, [ACCEPT])], TERMS, self.now)
            assert error == ErrorCode.INVALID_RECORD_STATE
        assert self.window.batches() == before

    def fail(self, known: Offset) -> None:
        known.state = AVAILABLE if known.count < TERMS.count_limit else ARCHIVED

    def release(self) -> None:
        member = self.random.choice(MEMBERS)
        self.window.release(member, TERMS)
        for known in self.offsets.values():
            if known.state == ACQUIRED and known.member == member:
                self.fail(known)
        self.store()

    def expire(self) -> None:
        self.now += self.random.choice((100, 600, 2000))
        self.window.expire(self.now, TERMS)
        for known in self.offsets.values():
            if known.state == ACQUIRED and known.deadline <= self.now:
                self.fail(known)
        self.store()

    def crash(self) -> None:
        if self.random.random() < 0.7:
            return
        self.crashes += 1
        self.window = ShareWindow(self.stored_start, self.stored)
        for known in self.offsets.values():
            if known.state == ACQUIRED:
                known.state, known.count = AVAILABLE, known.count - 1
            elif known.is_missing:
                known.state, known.is_missing = AVAILABLE, False

    def check(self) -> None:
        """Check that the window covers its offsets without holes, in the states of the model."""
        at = self.window.start_offset
        for batch in self.window.batches():
            assert batch.first == at
            assert batch.last >= batch.first
            at = batch.last + 1
            for offset in range(batch.first, batch.last + 1):
                known = self.of(offset)
                if batch.state == ARCHIVED and known.state == AVAILABLE:
                    known.state, known.is_missing = ARCHIVED, True
                assert (batch.state, batch.delivery_count) == (known.state, known.count), (offset, known, batch)
        assert at == self.window.next_offset
        assert not self.window.batches() or self.window.batches()[0].state not in ENDED
        complete = sum(each.last - each.first + 1 for each in self.window.batches() if each.state in ENDED)
        assert self.window.complete_count == complete


@pytest.mark.parametrize("seed", range(60))
def test_random_calls_leave_the_window_as_a_model_of_single_offsets(seed: int) -> None:
    """S63, S64, S66-S68, S73, S74, S82, S85, S89, S98: the model is checked after each of 300 calls."""
    run = Run(seed)
    steps = (run.acquire, run.acquire, run.acknowledge, run.acknowledge_wrongly, run.release, run.expire, run.crash)
    for _ in range(300):
        run.random.choice(steps)()
        run.check()
    for at, deliveries in run.deliveries.items():
        assert deliveries <= TERMS.count_limit + run.crashes, at


@pytest.mark.parametrize("seed", range(20))
def test_every_record_is_accepted_once_in_the_end(seed: int) -> None:
    """S77, S78, S98: records of aborted transactions and missing offsets are left out."""
    run = Run(seed)
    accepted: list[int] = []
    for _ in range(3000):
        offset = run.window.fetch_offset(TERMS.most_in_flight)
        read = [batch for batch in run.log if batch.last >= offset >= 0]
        for each in run.window.acquire(iter(read), AcquireTerms("a", 10, 10), TERMS, run.now):
            batches = [AcknowledgementBatch(each.first, each.last, [ACCEPT])]
            assert run.window.acknowledge("a", batches, TERMS, run.now) == 0
            accepted += range(each.first, each.last + 1)
        if offset > run.log[-1].last:
            break
    records = [at for batch in run.log if not batch.is_aborted for at in range(batch.first, batch.last + 1)]
    assert accepted == records
    assert run.window.in_flight == 0


def batches_of(draw_from: random.Random) -> StateBatch:
    first = draw_from.randrange(40)
    return StateBatch(first, first + draw_from.randrange(10), draw_from.choice((0, 2, 4)), draw_from.randrange(1, 4))


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_merged_batches_are_as_a_model_of_single_offsets(seed: int, updates: int) -> None:
    """S94."""
    source = random.Random(seed)
    merged: list[StateBatch] = []
    model: dict[int, tuple[int, int]] = {}
    start = 0
    for _ in range(updates):
        written = [batches_of(source) for _ in range(source.randrange(4))]
        start = max(start, source.randrange(30))
        merged = merge_batches(merged, written, start)
        for batch in written:
            for at in range(batch.first, batch.last + 1):
                model[at] = max(model.get(at, (0, 0)), (batch.delivery_count, batch.state))
        found = {at: (each.delivery_count, each.state) for each in merged for at in range(each.first, each.last + 1)}
        assert found == {at: value for at, value in model.items() if at >= start}
        for one, following in pairwise(merged):
            assert one.last < following.first
            assert one.last + 1 < following.first or one[2:] != following[2:]


def test_changes_of_a_long_window_are_merged_within_a_turn() -> None:
    stored = [StateBatch(at, at, ACKNOWLEDGED if at % 2 else AVAILABLE, 1) for at in range(1, 10_000)]
    written = [StateBatch(at, at, ACKNOWLEDGED, 2) for at in range(2, 10_000, 4)]
    begin = time.process_time()
    assert len(merge_batches(stored, written, 0)) == len(stored)
    # About 0.02 s; 1.4 s if the stored batches are walked for each of the others.
    assert time.process_time() - begin < 0.4


def window_of(*sizes: int) -> tuple[ShareWindow, list[LogBatch]]:
    """Return an empty window and a log with batches of these sizes."""
    batches, at = [], 0
    for size in sizes:
        batches.append(LogBatch(at, at + size - 1))
        at += size
    return ShareWindow(0), batches


def read(
    window: ShareWindow, log: list[LogBatch], member: str = "a", records: int = 500, **terms: bool
) -> list[Acquired]:
    offset = window.fetch_offset(TERMS.most_in_flight)
    found = [batch for batch in log if batch.last >= offset]
    return window.acquire(found, AcquireTerms(member, records, 0, **terms), TERMS, 0)


def answer(window: ShareWindow, kind: int, acquired: list[Acquired], member: str = "a") -> int:
    batches = [AcknowledgementBatch(each.first, each.last, [kind]) for each in acquired]
    return window.acknowledge(member, batches, TERMS, 0)


def test_a_soft_limit_ends_with_the_batch_and_a_strict_one_at_the_record() -> None:
    """S70, S72."""
    window, log = window_of(10, 10, 10)
    assert read(window, log, records=11) == [(0, 19, 1)]
    window, log = window_of(10, 10, 10)
    assert read(window, log, records=11, is_strict=True) == [(0, 10, 1)]
    assert read(window, log, records=11, is_strict=True) == [(11, 21, 1)]


@pytest.mark.parametrize(
    ("sizes", "batch_size", "pieces"),
    [
        ((4, 4, 4), 5, [(0, 7), (8, 11)]),
        ((4, 4, 4), 4, [(0, 3), (4, 7), (8, 11)]),
        ((2, 2, 2, 2), 3, [(0, 3), (4, 7)]),
        ((10,), 3, [(0, 9)]),
        ((4, 4, 4), 0, [(0, 11)]),
    ],
)
def test_acquired_records_are_split_between_batches(
    sizes: tuple[int, ...], batch_size: int, pieces: list[tuple[int, int]]
) -> None:
    """S71: as observed with Kafka 4.4.0. S72: a strict limit of records does not split."""
    window, log = window_of(*sizes)
    assert window.acquire(log, AcquireTerms("a", 500, batch_size), TERMS, 0) == [(*each, 1) for each in pieces]
    window, log = window_of(*sizes)
    whole = [(0, sum(sizes) - 1, 1)]
    assert window.acquire(log, AcquireTerms("a", 500, batch_size, is_strict=True), TERMS, 0) == whole


def test_no_more_records_are_in_flight_than_allowed() -> None:
    """S65."""
    window, log = window_of(*[25] * 8)
    assert read(window, log) == [(0, 74, 1)]
    assert read(window, log) == []
    assert answer(window, RELEASE, [Acquired(5, 9, 1)]) == 0
    assert read(window, log, "b") == [(5, 9, 2)]


def test_a_full_window_moves_over_records_that_compaction_has_removed() -> None:
    """S65, S78."""
    window, log = window_of(*[20] * 6)
    acquired = read(window, log)
    assert acquired == [(0, 59, 1)]
    assert answer(window, RELEASE, [Acquired(0, 39, 1)]) == 0
    assert read(window, log[3:], "b") == []
    assert window.start_offset == 40
    assert read(window, log[3:], "b") == [(60, 99, 1)]


def test_a_batch_that_fails_is_delivered_in_ever_smaller_parts() -> None:
    """S75, S84."""
    window, log = window_of(40, 20)
    for count in (1, 2, 3):
        first = read(window, log, records=40)
        assert first == [(0, 39, count)]
        assert answer(window, RELEASE, first) == 0
    parts = [read(window, log) for _ in range(2)]
    assert parts == [[(0, 19, 4)], [(20, 39, 4)]]
    assert answer(window, RELEASE, [Acquired(0, 19, 4)]) == 0
    assert read(window, log) == [(0, 0, 5)]
    assert answer(window, RELEASE, [Acquired(0, 0, 5)]) == 0
    assert read(window, log) == [(1, 1, 5)]
    assert window.start_offset == 1


def test_acknowledgements_of_one_request_apply_together_or_not_at_all() -> None:
    """S85, S8B."""
    window, log = window_of(10, 10)
    read(window, log, records=10)
    read(window, log, "b")
    batches = [AcknowledgementBatch(0, 9, [ACCEPT]), AcknowledgementBatch(10, 19, [ACCEPT])]
    assert window.acknowledge("a", batches, TERMS, 0) == ErrorCode.INVALID_RECORD_STATE
    assert window.start_offset == 0
    beyond = [AcknowledgementBatch(0, 20, [ACCEPT])]
    assert window.acknowledge("a", beyond, TERMS, 0) == ErrorCode.INVALID_REQUEST
    assert answer(window, ACCEPT, [Acquired(15, 19, 1)], "b") == 0
    assert answer(window, ACCEPT, [Acquired(15, 19, 1)], "b") == ErrorCode.INVALID_RECORD_STATE
    assert answer(window, ACCEPT, [Acquired(0, 9, 1)]) == 0
    assert answer(window, ACCEPT, [Acquired(0, 9, 1)]) == 0  # before the start offset
    assert answer(window, ACCEPT, [Acquired(10, 14, 1)], "b") == 0
    assert (window.start_offset, window.in_flight) == (20, 0)
    assert answer(window, ACCEPT, [Acquired(20, 20, 1)]) == ErrorCode.INVALID_RECORD_STATE


def test_renewal_begins_a_lock_anew_unless_the_group_forbids_it() -> None:
    """S83, S89."""
    window, log = window_of(10)
    read(window, log)
    renewal = [AcknowledgementBatch(0, 3, [RENEW])]
    assert window.acknowledge("a", renewal, TERMS._replace(is_renewable=False), 900) == ErrorCode.INVALID_RECORD_STATE
    assert window.acknowledge("a", renewal, TERMS, 900) == 0
    assert window.drain_changes() == []
    assert window.expire(1000, TERMS) == 6
    assert window.drain_changes() == [StateBatch(4, 9, AVAILABLE, 1)]
    assert window.expire(1900, TERMS) == 4
    assert window.next_deadline_ns is None


def test_renewals_need_no_memory_until_their_end() -> None:
    window, log = window_of(50)
    read(window, log)
    renewal = [AcknowledgementBatch(at, at, [RENEW]) for at in range(50)]
    tracemalloc.start()
    try:
        for now in range(200):
            assert window.acknowledge("a", renewal, TERMS._replace(lock_ns=10**9), now) == 0
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 100_000
    assert window.expire(199 + 10**9 - 1, TERMS) == 0
    assert window.expire(199 + 10**9, TERMS) == 50


def test_the_start_offset_moves_to_the_start_of_the_log() -> None:
    """S79: also over acquired records, whose acknowledgements have no effect; the limit counts those after it."""
    window, log = window_of(20, 20, 20, 20)
    read(window, log, records=20)
    read(window, log, "b", records=20)
    read(window, log, "c", records=20)
    assert answer(window, RELEASE, [Acquired(0, 19, 1)]) == 0
    assert window.log_start_moved(25)
    assert not window.log_start_moved(25)
    assert (window.start_offset, window.in_flight, window.waiting) == (25, 35, 0)
    assert answer(window, REJECT, [Acquired(20, 29, 1)], "b") == 0
    assert window.drain_changes() == []
    assert (window.start_offset, window.drain_letters()) == (30, [])
    assert read(window, log, "b") == [(60, 79, 1)]
    assert window.log_start_moved(100)
    assert (window.start_offset, window.next_offset, window.in_flight) == (100, 100, 0)
    assert window.expire(10**9, TERMS) == 0
    assert answer(window, ACCEPT, [Acquired(40, 59, 1)], "c") == 0


def test_rejected_records_wait_for_the_dead_letter_topic() -> None:
    """S99, S103, S106: also after a load of what was stored."""
    window, log = window_of(10)
    terms = TERMS._replace(has_dead_letters=True)
    acquired = read(window, log)
    batches = [AcknowledgementBatch(each.first, each.last, [REJECT]) for each in acquired]
    assert window.acknowledge("a", batches, terms, 0) == 0
    assert window.drain_letters() == [(0, 9, 1, True)]
    assert ShareWindow(0, window.drain_changes()).drain_letters() == [(0, 9, 1, True)]
    assert window.start_offset == 0
    window.archived(0, 9)
    assert window.start_offset == 10


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_an_epoch_rises_with_each_request_and_begins_again_with_one() -> None:
    """S53."""
    session = ShareSession("m", 5, "ab")
    epochs = [session.epoch]
    session.update((), ())
    epochs.append(session.epoch)
    session.epoch = 2**31 - 1
    session.rise()
    assert [*epochs, session.epoch] == [1, 2, 1]


def test_partitions_are_added_before_others_are_forgotten() -> None:
    """S53, S55: the next response has the added ones."""
    session = ShareSession("m", 5, "ab")
    session.due.clear()
    session.update("bcd", "ad")
    assert (list(session.places), session.due) == (["b", "c"], {"c"})


def test_each_request_begins_with_another_partition() -> None:
    """S54."""
    session = ShareSession("m", 5, "abc")
    orders = []
    for _ in range(3):
        orders.append("".join(session.rotated()))
        session.rise()
    assert orders == ["bca", "cab", "abc"]


def test_partitions_that_gave_records_follow_the_others() -> None:
    """S54."""
    session = ShareSession("m", 5, "abc")
    session.served(["a"])
    assert list(session.places) == ["b", "c", "a"]
