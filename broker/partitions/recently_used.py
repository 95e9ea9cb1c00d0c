"""A map that expires entries which have not been used for a while.

Runs in handler processes. A handler gets no message when a connection closes, so its per-connection state has to
expire. There are two generations: using an entry of the older one moves it to the newer one, and the older generation
is dropped when a period ends or when the newer one is full.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Entries used within the last one or two periods; at most twice ``most`` entries."""

    __slots__ = ("_before", "_most", "_period_ns", "_until_ns", "recent")

    def __init__(self, most: int, period_ns: int) -> None:
        self._most = most
        self._period_ns = period_ns
        self._until_ns = 0
        #: Callers look here first, directly: a single dictionary lookup.
        self.recent: dict[K, V] = {}
        self._before: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self.recent) + len(self._before)

    def recall(self, key: K) -> V | None:
        """Return an entry of the older generation, or None; moves it to the newer one."""
        value = self._before.pop(key, None)
        if value is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Add an entry, or replace the one of that key."""
        if len(self.recent) >= self._most:
            self._age()
        self._before.pop(key, None)
        self.recent[key] = value

    def forget(self, key: K) -> None:
        """Remove an entry, if present."""
        self.recent.pop(key, None)
        self._before.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self.recent.clear()
        self._before.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Drop the entries not used in the last period, if it is over. Called periodically."""
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + self._period_ns
            self._age()

    def _age(self) -> None:
        self.recent, self._before = {}, self.recent
