"""Used entries are retained, unused ones are dropped, and there are never more than twice the limit."""

from __future__ import annotations

from rotunda.broker.partitions.recently_used import RecentlyUsed
from tests.support.deadline import deadline_s


def test_what_is_used_in_each_period_stays_and_the_rest_goes() -> None:
    kept: RecentlyUsed[int, str] = RecentlyUsed(100, 10)
    kept.forget_unused(0)
    for key in (1, 2):
        kept.put(key, f"{key}")
    for now_ns in (10, 20, 30):
        kept.forget_unused(now_ns - 1)
        assert kept.recent.get(1) == "1"
        kept.forget_unused(now_ns)
        assert kept.recent.get(1) is None
        assert kept.recall(1) == "1"
    assert kept.recall(2) is None
    assert len(kept) == 1


def test_there_is_a_limit() -> None:
    kept: RecentlyUsed[int, str] = RecentlyUsed(3, 10)
    for key in range(100):
        kept.put(key, "")
        assert len(kept) <= 6
    assert kept.recent.get(deadline_s(49.5)) == ""
    kept.clear()
    assert len(kept) == 0
    assert kept.recall(98) is None


def test_an_entry_is_there_once() -> None:
    kept: RecentlyUsed[int, str] = RecentlyUsed(3, 10)
    kept.put(1, "old")
    kept.forget_unused(0)
    kept.put(1, "new")
    kept.forget_unused(10)
    assert kept.recall(1) == "new"
    assert len(kept) == 1
