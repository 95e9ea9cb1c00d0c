"""The clocks: the machine's runs on, the fake one advances on command."""

from rotunda.broker.clock import Clock, SystemClock
from tests.support.fakes import FakeClock


def test_system_clock_never_goes_back_and_knows_the_year() -> None:
    clock: Clock = SystemClock()
    first = clock.monotonic_ns()
    assert clock.monotonic_ns() >= first
    assert clock.wall_ms() > 1_700_000_000_000


def test_fake_clock_moves_both_readings_when_told() -> None:
    clock = FakeClock(monotonic_ns=5, wall_ms=1000)
    assert (clock.monotonic_ns(), clock.wall_ms()) == (5, 1000)
    clock.advance_ms(3)
    assert (clock.monotonic_ns(), clock.wall_ms()) == (3_000_005, 1003)
