"""Slow turns: which are counted, and what their line says."""

from __future__ import annotations

import logging

import pytest

from broker.server_log.slow_turns import SLOW_TURN_NS, UPKEEP, SlowTurns
from tests.support.fakes import FakeClock

MS = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def turns(clock: FakeClock) -> SlowTurns:
    return SlowTurns(logging.getLogger(__name__), clock.monotonic_ns)


def test_a_slow_turn_is_counted_and_its_line_says_what_took_longest(
    turns: SlowTurns, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    turns.begin(clock.monotonic_ns())
    for took_ms, doing in ((10, UPKEEP), (60, ("CREATE_TOPICS", "admin")), (20, ("METADATA", "reader"))):
        clock.advance_ms(took_ms)
        turns.spent(clock.monotonic_ns(), doing)
    turns.end(clock.monotonic_ns())
    assert (turns.count, turns.longest_ns) == (1, 90 * MS)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    line = "a turn took 90 ms, in which nobody else was served; 60 ms of them: CREATE_TOPICS of client admin"
    assert record.getMessage() == line


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
    """What an earlier turn did is not blamed."""
    turns.begin(clock.monotonic_ns())
    clock.advance_ms(40)
    turns.spent(clock.monotonic_ns(), UPKEEP)
    turns.end(clock.monotonic_ns())
    turns.begin(clock.monotonic_ns())
    clock.advance_ms(70)
    turns.end(clock.monotonic_ns())
    assert "70 ms of them: the rest of the turn" in caplog.text


def test_a_processors_turn_is_told_with_what_had_asked_for_it(
    turns: SlowTurns, caplog: pytest.LogCaptureFixture
) -> None:
    turns.took(75 * MS, 1200)
    assert turns.count == 1
    assert "a turn took 75 ms" in caplog.text
    assert "1200 connections and bells had asked for attention" in caplog.text
