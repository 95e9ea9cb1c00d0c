"""Kafka's arithmetic of rates and buckets of tokens, by its own examples and by simulations over several owners."""

from __future__ import annotations

import math

import pytest

from rotunda.broker.quotas.entities import Limit
from rotunda.broker.quotas.meters import NS_PER_PERCENT, Book, RateMeter, TokenMeter
from rotunda.shm.quota_layout import QUOTA_TABLE
from rotunda.shm.tables.quota_rates import Windows
from rotunda.shm.tables.quota_tables import QuotaTables, QuotaTableWriter

MS = 1_000_000
START_NS = 1_000_000 * MS
MEGABYTE = 1_000_000
WINDOWS = Windows(11, 1000)


def tables(owners: int = 1) -> QuotaTables:
    return QuotaTables(memoryview(bytearray(QuotaTables.bytes_needed(WINDOWS.number, owners))), WINDOWS.number, owners)


def book(all_tables: QuotaTables, owner: int = 0) -> Book:
    return Book(QuotaTableWriter(all_tables.of(owner)), all_tables.but(owner), WINDOWS)


def produce(of: Book, limit: float) -> RateMeter:
    return RateMeter(of, "producer_byte_rate", Limit("", "app", limit))


def test_e11_a_burst_of_15_mb_at_1_mb_a_second_is_throttled_for_5_s() -> None:
    """E11: (rate - limit) / limit x window, where windows before the first count as full and empty; not capped."""
    assert produce(book(tables()), MEGABYTE).charge(15 * MEGABYTE, START_NS) == 5_000


def test_e11_what_fits_into_the_windows_is_not_throttled() -> None:
    meter = produce(book(tables()), MEGABYTE)
    assert meter.charge(10 * MEGABYTE, START_NS) == 0
    assert meter.charge(1, START_NS) == 0
    assert meter.charge(MEGABYTE, START_NS + MS) == 999


def test_e11_who_waits_as_told_stays_at_the_limit() -> None:
    """E11: over a minute a client that sends at once whenever it may gets its limit, after the first windows."""
    meter = produce(book(tables()), MEGABYTE)
    now_ns, sent, from_ns = START_NS, 0, START_NS + 30_000 * MS
    while now_ns < START_NS + 90_000 * MS:
        if now_ns >= from_ns:
            sent += 250_000
        now_ns += max(1, meter.charge(250_000, now_ns)) * MS
    assert 0.95 <= sent / (60 * MEGABYTE) <= 1.05


def test_the_rate_of_a_client_is_one_number_over_all_owners() -> None:
    """E11: charges of three owners in turn are throttled like those of one."""
    alone = produce(book(tables()), MEGABYTE)
    shared = tables(3)
    meters = [produce(book(shared, owner), MEGABYTE) for owner in range(3)]
    for number in range(60):
        now_ns = START_NS + number * 100 * MS
        expected = alone.charge(500_000, now_ns)
        given = meters[number % 3].charge(500_000, now_ns)
        assert abs(given - expected) <= 1000, f"request {number}: {given} ms, by one owner {expected} ms"
    assert given > 10_000


def test_a_successor_continues_with_what_was_recorded() -> None:
    all_tables = tables()
    produce(book(all_tables), MEGABYTE).charge(15 * MEGABYTE, START_NS)
    assert produce(book(all_tables), MEGABYTE).charge(MEGABYTE, START_NS) == 6_000


def test_what_is_far_below_its_limit_is_recorded_now_and_then() -> None:
    all_tables = tables()
    meter = produce(book(all_tables), MEGABYTE)
    for number in range(2000):
        assert meter.charge(100, START_NS + number * MS) == 0
    [use] = all_tables.uses()
    recorded = sum(used for _, _, used in use.samples)
    assert 2000 * 100 - recorded <= MEGABYTE / 100
    assert (use.quota, use.user, use.client_id, use.limit) == ("producer_byte_rate", "", "app", MEGABYTE * 1000)


def test_e12_a_throttled_fetch_is_not_charged() -> None:
    meter = RateMeter(book(tables()), "consumer_byte_rate", Limit("", "app", MEGABYTE))
    assert meter.most_at_once == 10 * MEGABYTE
    assert meter.charge_unless_throttled(10 * MEGABYTE, START_NS) == 0
    assert meter.charge_unless_throttled(MEGABYTE, START_NS) == 1_000
    assert meter.charge_unless_throttled(MEGABYTE, START_NS) == 1_000
    assert meter.charge_unless_throttled(MEGABYTE, START_NS + 11_000 * MS) == 0


def test_e12_what_is_larger_than_all_windows_passes_alone() -> None:
    """E12: progress is possible: Kafka would never send a first batch that is larger."""
    meter = RateMeter(book(tables()), "consumer_byte_rate", Limit("", "app", 1000))
    assert meter.charge_unless_throttled(50_000, START_NS) == 0
    assert meter.charge_unless_throttled(50_000, START_NS + 1) > 0


def test_e13_time_is_a_percentage_of_one_thread_and_throttled_for_a_window_at_most() -> None:
    meter = RateMeter(book(tables()), "request_percentage", Limit("", "app", 1), NS_PER_PERCENT, most_ms=1000)
    assert meter.charge(100 * MS, START_NS) == 0
    assert meter.charge(5 * MS, START_NS) == 500
    assert meter.charge(1_000 * MS, START_NS) == 1000


def test_e15_a_bucket_of_55_of_which_60_are_taken_is_throttled_for_a_second() -> None:
    """E15: limit 5: full at 55; -5 left is 1,000 ms."""
    meter = TokenMeter(book(tables()), "controller_mutation_rate", Limit("", "app", 5))
    assert meter.throttle_ms(START_NS) == 0
    meter.take(60, START_NS)
    assert meter.throttle_ms(START_NS) == 1000
    assert meter.throttle_ms(START_NS + 400 * MS) == 600
    assert meter.throttle_ms(START_NS + 1000 * MS) == 0


def test_e15_a_bucket_fills_up_to_its_brim() -> None:
    meter = TokenMeter(book(tables()), "controller_mutation_rate", Limit("", "app", 5))
    meter.take(55, START_NS)
    meter.take(60, START_NS + 3_600_000 * MS)
    assert meter.throttle_ms(START_NS + 3_600_000 * MS) == 1000


@pytest.mark.parametrize("limit", [5e-324, 1e-306, 1e-7, 2.0**63, 1e300, math.inf])
def test_limits_of_any_size_are_reckoned_with(limit: float) -> None:
    """E11, E15: the largest possible one means no limit; under the smallest a throttle time fits into a response."""
    of = book(tables())
    most_ms = 2**31 - 1
    expected = 0 if limit > MEGABYTE else most_ms
    assert produce(of, limit).charge(15 * MEGABYTE, START_NS) == expected
    bucket = TokenMeter(of, "controller_mutation_rate", Limit("", "app", limit))
    bucket.take(1000, START_NS)
    assert bucket.throttle_ms(START_NS) == expected


def test_what_a_killed_owner_has_not_said_its_replacement_says() -> None:
    """A slot that was assigned just before a SIGKILL counts for the others as soon as there is a replacement."""
    both = tables(2)
    others = produce(book(both, 1), MEGABYTE)
    assert others.charge(1, START_NS) == 0
    killed = book(both)
    assert produce(killed, MEGABYTE).charge(15 * MEGABYTE, START_NS) > 0
    killed.writer.words[QUOTA_TABLE.word("changes")] -= 1
    book(both)
    assert others.charge(1, START_NS + 2_000 * MS) > 0
