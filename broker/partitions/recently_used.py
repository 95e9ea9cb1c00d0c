"""A map whose entries go when they have not been used for a while.

Runs in handler processes. No message reaches a handler when a connection has closed, so what it remembers of
connections has to end by itself. There are two generations: an entry of the older one that is used goes back to the
newer one, and what is left in the older one when a period is over, or when the newer one is full, is let go of.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Entries used within the last one or two periods, and at most twice ``most`` of them."""

    __slots__ = ("_before", "_most", "_period_ns", "_until_ns", "recent")

    def __init__(self, most: int, period_ns: int) -> None:
        self._most = most
        self._period_ns = period_ns
        self._until_ns = 0
        #: Who needs an entry looks here first, by itself: it is one look-up in a dictionary.
        self.recent: dict[K, V] = {}
        self._before: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self.recent) + len(self._before)

    def recall(self, key: K) -> V | None:
        """Return an entry that has not been used lately, or None; from now on it has been."""
        value = self._before.pop(key, None)
        if value is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep an entry, in the place of another of that key."""
        if len(self.recent) >= self._most:
            self._age()
        self._before.pop(key, None)
        self.recent[key] = value

    def forget(self, key: K) -> None:
        """Let go of an entry, if there is one."""
        self.recent.pop(key, None)
        self._before.pop(key, None)

    def clear(self) -> None:
        """Let go of everything."""
        self.recent.clear()
        self._before.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Let go of what was not used in the last period, if it is over. Called now and then."""
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + self._period_ns
            self._age()

    def _age(self) -> None:
        self.recent, self._before = {}, self.recent
