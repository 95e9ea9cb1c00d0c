"""The slow-turn lines that a campaign parses are those that the broker logs."""

from __future__ import annotations

import logging

import pytest

from ops.reliability.turns import Turns
from rotunda.broker.server_log.slow_turns import MAINTENANCE, SlowTurns
from tests.support.fakes import FakeClock

MS = 1_000_000


def test_a_campaign_finds_slow_turns_and_which_were_busy(caplog: pytest.LogCaptureFixture) -> None:
    clock, used_ns = FakeClock(), 0
    turns = SlowTurns(logging.getLogger(__name__), clock.monotonic_ns, lambda: used_ns)
    for used_ms in (3, 70):
        turns.begin(clock.monotonic_ns())
        clock.advance_ms(320)
        used_ns += used_ms * MS
        turns.spent(clock.monotonic_ns(), MAINTENANCE)
        turns.end(clock.monotonic_ns())
    found = Turns.of(caplog.text.splitlines())
    assert (found.lines, found.worst_ms, found.worst_own_ms, len(found.busy)) == (2, 320, 70, 1)
    assert "70 ms" in str(found)
    assert str(Turns.of(["something else"])).startswith("No turn")
