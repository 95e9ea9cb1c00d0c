"""Totals by role of the broker's processes, and their growth as rows of the history.

Runs in the recorder. Reads metrics pages and the system's counters; imports nothing that a recorder waiting for its
first rows has not loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.request_log.process_usage import Usage, growth, usage_of
from rotunda.broker.request_log.role_counts import COUNTS, Values, idle_share
from rotunda.shm.recorder_layout import THROTTLED_BY

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsReader
    from rotunda.shm.tables.process_slots import ProcessSlots

#: (role, index)
Place = tuple[str, int]
Row = dict[str, Any]

_COUNTS = {each.column: each for each in COUNTS}
#: Columns of the row of the broker: the counted column, and the role that counts it.
_OF_BROKER = {
    "requests": ("requests", "processor"),
    "bytesIn": ("bytesReceived", "processor"),
    "bytesOut": ("bytesSent", "processor"),
    "connectionsOpened": ("connectionsOpened", "acceptor"),
    "connectionsClosed": ("connectionsClosed", "acceptor"),
    "connectionsRefused": ("connectionsRefused", "acceptor"),
}
_NS_PER_US = 1000


class ProcessTotals(NamedTuple):
    """Totals of all processes since the broker started."""

    pages: Mapping[Place, Values]
    used: Mapping[Place, Usage]

    @property
    def requests(self) -> int:
        """Number of requests received."""
        return sum(values["requests_received", ""] for (role, _), values in self.pages.items() if role == "processor")


def process_totals(pages: Mapping[Place, MetricsReader], slots: ProcessSlots) -> ProcessTotals:
    """Return the present totals."""
    used = {(each.role, each.index): usage_of(each.pid) for each in slots.statuses() if each.pid}
    return ProcessTotals({place: page.values() for place, page in pages.items()}, used)


def role_rows(before: ProcessTotals, after: ProcessTotals, peaks: Mapping[Place, float]) -> Iterator[Row]:
    """Yield a row for each role with a process; `peaks` has the highest fill of a ring by the process that reads it."""
    cpu_us: dict[str, int] = defaultdict(int)
    for place, used in after.used.items():
        earlier = before.used.get(place, Usage(0))
        cpu_us[place[0]] += growth(earlier.cpu_us, used.cpu_us, is_same=earlier.pid == used.pid) or 0
    for role, used_us in cpu_us.items():
        shares = [
            idle_share(role, before.pages.get(place, {}), values)
            for place, values in after.pages.items()
            if place[0] == role
        ]
        busy = [1 - share for share in shares if share is not None]
        yield {
            "kind": "role",
            "name": role,
            "utilisation": max(busy, default=None),
            "utilisationMean": sum(busy) / len(busy) if busy else None,
            "ringFillPeak": max((fill for place, fill in peaks.items() if place[0] == role), default=None),
            "cpuTimeUs": used_us,
        }


def throttle_rows(before: ProcessTotals, after: ProcessTotals) -> Iterator[Row]:
    """Yield a row for each quota that throttled requests."""
    for quota in THROTTLED_BY:
        count, spent_ns = (_grown(before, after, name, quota) for name in ("quota_throttled", "quota_throttle_ns"))
        if count:
            yield {"kind": "throttle", "name": quota, "requests": count, "throttleTimeUs": spent_ns // _NS_PER_US}


def broker_row(before: ProcessTotals, after: ProcessTotals) -> Row:
    """Return the row of the broker, without its disk."""
    row: Row = {"kind": "broker", "name": "broker"}
    for column, (counted, role) in _OF_BROKER.items():
        row[column] = sum(
            _COUNTS[counted].growth(role, before.pages.get(place, {}), values) or 0
            for place, values in after.pages.items()
            if place[0] == role
        )
    row["connections"] = sum(
        values["connections", ""] for (role, _), values in after.pages.items() if role == "processor"
    )
    return row


def _grown(before: ProcessTotals, after: ProcessTotals, name: str, label: str) -> int:
    return sum(
        values[name, label] - before.pages.get(place, {}).get((name, label), 0)
        for place, values in after.pages.items()
        if place[0] == "processor"
    )
