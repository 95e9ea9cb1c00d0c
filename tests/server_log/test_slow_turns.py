"""Slow turns: the counted ones, and their log line."""

from __future__ import annotations

import logging

import pytest

from rotunda.broker.server_log.slow_turns import MAINTENANCE, SLOW_TURN_NS, SlowTurns
from tests.support.fakes import FakeClock

MS = 1_000_000


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def turns(clock: FakeClock) -> SlowTurns:
    return SlowTurns(logging.getLogger(__name__), clock.monotonic_ns, lambda: 0)


def test_a_slow_turn_is_counted_and_its_line_says_what_took_longest(
    turns: SlowTurns, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    turns.begin(clock.monotonic_ns())
    for took_ms, doing in ((10, MAINTENANCE), (220, ("CREATE_TOPICS", "admin")), (20, ("METADATA", "reader"))):
        clock.advance_ms(took_ms)
        turns.spent(clock.monotonic_ns(), doing)
    turns.end(clock.monotonic_ns())
    assert (turns.count, turns.longest_ns) == (1, 250 * MS)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    told = "a turn took 250 ms, at most 0 ms of CPU; other requests waited"
    assert record.getMessage() == f"{told}; 220 ms for CREATE_TOPICS of client admin"


def test_a_turn_of_the_limit_is_not_slow(turns: SlowTurns, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        turns.begin(clock.monotonic_ns())
        clock.advance_ms(SLOW_TURN_NS // MS)
        turns.end(clock.monotonic_ns())
    turns.took(SLOW_TURN_NS, 5)
    assert (turns.count, turns.longest_ns, caplog.records) == (0, SLOW_TURN_NS, [])


def test_time_that_nobody_has_put_down_to_anything_is_the_rest_of_the_turn(
    turns: SlowTurns, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Time of an earlier turn is not included."""
    turns.begin(clock.monotonic_ns())
    clock.advance_ms(40)
    turns.spent(clock.monotonic_ns(), MAINTENANCE)
    turns.end(clock.monotonic_ns())
    turns.begin(clock.monotonic_ns())
    clock.advance_ms(70)
    turns.end(clock.monotonic_ns())
    assert "70 ms for the rest of the turn" in caplog.text


def test_a_processors_turn_is_told_with_what_had_asked_for_it(
    turns: SlowTurns, caplog: pytest.LogCaptureFixture
) -> None:
    turns.took(75 * MS, 1200)
    assert turns.count == 1
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert "a turn took 75 ms" in caplog.text
    assert "connections and bells ready: 1200" in caplog.text


@pytest.mark.parametrize(("used_ms", "busy"), [(12, 0), (49, 0), (51, 1), (200, 1)])
def test_a_slow_turn_says_how_much_of_it_was_the_processs_own(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, used_ms: int, busy: int
) -> None:
    """CPU used before, in 10 ms of tasks or more, is not attributed to this turn."""
    used_ns = 5 * MS
    turns = SlowTurns(logging.getLogger(__name__), clock.monotonic_ns, lambda: used_ns)
    for _ in range(2):
        turns.begin(clock.monotonic_ns())
        clock.advance_ms(11)
        used_ns += 11 * MS
        turns.end(clock.monotonic_ns())
    turns.begin(clock.monotonic_ns())
    clock.advance_ms(300)
    used_ns += used_ms * MS
    turns.end(clock.monotonic_ns())
    assert turns.counters() == {"slow_turns": 1, "busy_turns": busy}
    assert f"a turn took 300 ms, at most {used_ms} ms of CPU; other requests waited" in caplog.text
