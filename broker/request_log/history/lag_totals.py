"""The lag of each group, from the events that its coordinator sends when it changes.

Runs in the recorder. Groups are chosen by clients, so their number is bounded.
"""

from __future__ import annotations

from typing import Any, Final

from rotunda.broker.request_log.history.largest import largest, total

#: Most groups whose lag is kept.
MOST_GROUPS: Final = 1000


def longer(one: int, other: int) -> int:
    """Return the longer of two lags."""
    return max(one, other)


_COMBINE: Final = {"records": total, "lagUs": longer}


class LagTotals:
    """The last known lag by group and topic: unread records, and the time of the oldest in µs if known."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, tuple[int, int | None]]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Add an event of a group's lag. Of too many groups the one without a change for longest is dropped."""
        topics = self._groups.pop(event["group"], {})
        self._groups[event["group"]] = topics
        if event["records"]:
            age_us = event["durationUs"]
            topics[event["topic"]] = event["records"], None if age_us is None else event["time"] - age_us
        else:
            topics.pop(event["topic"], None)
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]

    def rows(self, end_us: int) -> list[dict[str, Any]]:
        """Return the rows of the groups with the longest lags, at this time: the age of unread records grows."""
        rows = []
        for group, topics in self._groups.items():
            ages = [max(0, end_us - oldest_us) for _, oldest_us in topics.values() if oldest_us is not None]
            unread = sum(records for records, _ in topics.values())
            lag_us = max(ages, default=None if unread else 0)
            rows.append({"kind": "group", "name": group, "records": unread, "lagUs": lag_us})
        return largest(rows, _COMBINE)
