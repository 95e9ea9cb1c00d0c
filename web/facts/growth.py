"""The growth of values between two readings. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rotunda.web.facts.readings import Reading


class Growth:
    """How counters grew from an earlier reading to a later one; None everywhere without an earlier one."""

    def __init__(self, earlier: Reading | None, now: Reading) -> None:
        self._earlier = earlier
        self._now = now
        self.ns = now.time_ns - earlier.time_ns if earlier is not None else 0

    def of(self, role: str, index: int, name: str, label: str = "") -> int | None:
        """Return the increase of a counter."""
        if self._earlier is None or self.ns <= 0:
            return None
        before, after = self._earlier.pages.get((role, index)), self._now.pages.get((role, index))
        if before is None or after is None or (name, label) not in after.values:
            return None
        return max(0, after.values[name, label] - before.values.get((name, label), 0))

    def per_s(self, role: str, index: int, name: str, label: str = "") -> float | None:
        """Return a counter's growth per second."""
        return self.rate(self.of(role, index, name, label))

    def share(self, role: str, index: int, of: str, besides: str) -> float | None:
        """Return the first counter's share of the growth of two counters together."""
        one, other = self.of(role, index, of), self.of(role, index, besides)
        if one is None or other is None:
            return None
        # Neither counter of a process that slept all the time has grown.
        return one / (one + other) if one + other else 1.0

    def rate(self, growth: float | None) -> float | None:
        """Return a growth in this time, per second."""
        return None if growth is None or self.ns <= 0 else growth * 1e9 / self.ns

    def sum_per_s(self, role: str, count: int, name: str) -> float | None:
        """Return the growth per second of a counter of several processes."""
        return total(self.per_s(role, index, name) for index in range(count))


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None without one."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None
