"""Fakes under the control of a test."""

from collections.abc import Callable
from typing import Any


class FakeClock:
    """A clock that only advances on command."""

    def __init__(self, monotonic_ns: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ns = monotonic_ns
        #: The duration of one reading of the monotonic clock.
        self.reading_ns = 0
        self._wall_ns = wall_ms * 1_000_000

    def monotonic_ns(self) -> int:
        """Return nanoseconds, as far as they were advanced."""
        self._monotonic_ns += self.reading_ns
        return self._monotonic_ns

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, as far as they were advanced."""
        return self._wall_ns // 1_000_000

    def wall_s(self) -> float:
        """Return the same in seconds."""
        return self._wall_ns / 1_000_000_000

    def advance_ns(self, nanoseconds: int) -> None:
        """Advance both readings."""
        self._monotonic_ns += nanoseconds
        self._wall_ns += nanoseconds

    def set_wall(self, step_ms: int) -> None:
        """Set the wall clock ahead, or back."""
        self._wall_ns += step_ms * 1_000_000

    def advance_ms(self, milliseconds: int) -> None:
        """Advance both readings."""
        self.advance_ns(milliseconds * 1_000_000)


def failing(error: BaseException) -> Callable[..., Any]:
    """Return a function, of any arguments, that raises an error."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail
