"""The rate of connections, by Kafka's arithmetic (`A11`)."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.network.acceptor.connection_rate import ConnectionRate, Windows


def arrivals(limit: int, count: int) -> list[tuple[int, int]]:
    """Return (arrival time, delay) of connections that each arrive after the delay of the previous one."""
    rate, now_ms, found = ConnectionRate(Windows()), 0, []
    for _ in range(count):
        rate.record(1, now_ms)
        delay_ms = rate.delay_ms(limit, now_ms)
        found.append((now_ms, delay_ms))
        now_ms += delay_ms
    return found


def test_a11_the_exact_vector() -> None:
    """Limit 5: 50 are free, 5 wait 200 ms each, 11 a second each; at 12 s the burst has expired: 40 wait 0 ms."""
    arrived = arrivals(5, 125)
    assert arrived[:50] == [(0, 0)] * 50
    assert arrived[50:55] == [(200 * number, 200) for number in range(5)]
    assert arrived[55:66] == [(1000 * number, 1000) for number in range(1, 12)]
    assert arrived[66:106] == [(12_000, 0)] * 40
    assert arrived[106:111] == [(12_000 + 200 * number, 200) for number in range(5)]
    assert arrived[111] == (13_000, 1000)


def test_a10_a_limit_of_0_is_a_window_for_each() -> None:
    assert arrivals(0, 3) == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_a10_a_wait_is_a_window_at_most() -> None:
    rate = ConnectionRate(Windows(samples=2, length_ms=300))
    rate.record(1_000_000, 0)
    assert rate.delay_ms(1, 0) == 300


def test_an_undone_record_leaves_no_trace() -> None:
    rate = ConnectionRate(Windows())
    for _ in range(50):
        rate.record(1, 0)
    for _ in range(1000):
        rate.record(1, 10)
        assert rate.delay_ms(5, 10) == 190
        rate.record(-1, 10)
    assert rate.delay_ms(5, 10) == 0


def test_after_a_pause_nothing_is_left() -> None:
    rate = ConnectionRate(Windows())
    rate.record(500, 0)
    assert rate.delay_ms(5, 10_999) > 0
    assert rate.delay_ms(5, 11_000) == 0


@pytest.mark.parametrize("seed", [random.randrange(2**32)])
def test_a11_over_a_long_time_the_limit_is_kept(seed: int) -> None:
    """The rate is a saw-tooth: in any 10 s at most the limit plus a burst of the same size."""
    print("seed", seed)
    chance = random.Random(seed)
    limit = chance.randrange(1, 50)
    arrived = arrivals(limit, limit * 60)
    for _ in range(200):
        begin_ms = chance.randrange(arrived[-1][0] + 1)
        within = sum(begin_ms <= at < begin_ms + 10_000 for at, _ in arrived)
        assert within <= 2 * limit * 10
