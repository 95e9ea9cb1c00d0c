"""The cleaner's throttler: log.cleaner.io.max.bytes.per.second, for reads and writes together.

Runs in the cleaner process. Long tasks check in their pauses whether the process must stop.
"""

from __future__ import annotations

from rotunda.broker.cleaner.owner_client import OwnerClient
from rotunda.broker.clock import Clock

#: Bytes between two polls of the rings and the stop flag.
LOOK_BYTES = 1024 * 1024

#: Smaller debts are carried over instead of a sleep.
_SMALLEST_SLEEP_NS = 20_000_000

_NS_PER_S = 1_000_000_000


class Throttler:
    """Accounts for bytes and sleeps while more were used than `bytes_per_second` allows."""

    def __init__(self, owners: OwnerClient, clock: Clock) -> None:
        self._owners = owners
        self._clock = clock
        self._paid_until_ns = 0
        self._since_look = LOOK_BYTES
        self.bytes_per_second = float("inf")

    def use(self, size_bytes: int) -> None:
        """Account for bytes that were read or written; 0 at the end of a task. Raises Stopped."""
        now_ns = self._clock.monotonic_ns()
        self._paid_until_ns = max(self._paid_until_ns, now_ns) + int(size_bytes * _NS_PER_S / self.bytes_per_second)
        self._since_look += size_bytes
        if not size_bytes or self._since_look >= LOOK_BYTES:
            self._since_look = 0
            self._owners.look()
        while (owed_ns := self._paid_until_ns - self._clock.monotonic_ns()) > _SMALLEST_SLEEP_NS:
            self._owners.wait(owed_ns / _NS_PER_S)
