"""The clock: the only module that imports `time`, so that every deadline can be tested with a fake one.

Any process uses it; a hot loop binds `clock.monotonic_ns` to a local name, which costs one C call per
reading.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The broker's clock: one reading to measure spans with and one to put into records."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary moment; never decreases; the same in every process of a machine."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC; may jump."""

    def wall_s(self) -> float:
        """Seconds since the epoch, UTC; may jump. Cheaper, where a moment is only compared with others."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    monotonic_ns = staticmethod(time.monotonic_ns)

    #: Processor time that the calling thread has used; a system call.
    thread_ns = staticmethod(time.thread_time_ns)

    wall_s = staticmethod(time.time)

    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000
