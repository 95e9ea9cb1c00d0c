"""Used requests stay in the cache, unused ones are dropped, and their memory is bounded."""

from __future__ import annotations

from rotunda.broker.partitions.request_cache import CACHED_NS, CachedRequest, RecentlyUsed


class Entry(CachedRequest):
    """A request of a given size."""

    __slots__ = ("_size",)

    def __init__(self, size: int = 1) -> None:
        self._size = size

    @property
    def size_bytes(self) -> int:
        return self._size

    def varying(self, view: memoryview, start: int, end: int) -> None:
        """Equal no request."""


def test_entries_used_in_each_period_stay_and_the_rest_expire() -> None:
    kept: RecentlyUsed[int, Entry] = RecentlyUsed(100)
    kept.forget_unused(0)
    first = Entry()
    kept.put(1, first)
    kept.put(2, Entry())
    for now_ns in (CACHED_NS, 2 * CACHED_NS, 3 * CACHED_NS):
        kept.forget_unused(now_ns - 1)
        assert kept.recent.get(1) is first
        kept.forget_unused(now_ns)
        assert kept.recent.get(1) is None
        assert kept.recall(1) is first
    assert kept.recall(2) is None
    assert len(kept) == 1


def test_their_memory_is_bounded() -> None:
    kept: RecentlyUsed[int, Entry] = RecentlyUsed(30)
    for key in range(100):
        kept.put(key, Entry(10))
        assert len(kept) <= 6
    for size in (1, 20, 10, 5):
        # Only the present entry of a key counts.
        kept.put(99, Entry(size))
    assert len(kept) > 3
    kept.put(99, Entry(31))
    assert kept.recent.get(99) is None
    kept.clear()
    assert len(kept) == 0
    assert kept.recall(98) is None


def test_an_entry_is_there_once() -> None:
    kept: RecentlyUsed[int, Entry] = RecentlyUsed(3)
    kept.put(1, Entry())
    kept.forget_unused(0)
    new = Entry()
    kept.put(1, new)
    kept.forget_unused(CACHED_NS)
    assert kept.recall(1) is new
    assert len(kept) == 1
