"""The columns of the dataset roles that are computed from metrics pages: the metric by role, and the aggregation.

Pure; runs in the recorder. A page's counters only grow, so the count of an interval is the difference of two readings;
a role without the metric has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from rotunda.shm.metrics.catalogue import MUTE_CAUSES

#: A reading of one page: counters and gauges by name and label's value.
Values = Mapping[tuple[str, str], int]

_NS_PER_US: Final = 1000


class Count(NamedTuple):
    """A counter column: ``metrics`` by role; for a metric with labels, one label's value or the aggregate of all."""

    column: str
    metrics: Mapping[str, str]
    label: str | None = None
    unit: int = 1
    together: Callable[[Iterable[int]], int] = sum

    def growth(self, role: str, before: Values, after: Values) -> int | None:
        """Return the growth between two readings of a page; None if the role does not count it."""
        name = self.metrics.get(role)
        if name is None:
            return None
        keys = [key for key in after if key[0] == name and self.label in (None, key[1])]
        # Each end is rounded separately, so that the intervals add up.
        return self.together(after[key] // self.unit - before.get(key, 0) // self.unit for key in keys)


def _of_processor(metric: str) -> dict[str, str]:
    return {"processor": metric}


def _of_targets(metric: str) -> dict[str, str]:
    return {"handler": metric, "controller": metric}


def column_of_mutes(cause: str) -> str:
    """Return the column that counts the mutes of a cause."""
    return "mutes" + "".join(word.capitalize() for word in cause.split("_"))


COUNTS: Final = (
    Count("arenaDepletedUs", _of_processor("arena_depleted_ns"), unit=_NS_PER_US),
    Count("connectionsOpened", {"acceptor": "connections_accepted", "processor": "connections_opened"}),
    Count("connectionsClosed", {"acceptor": "connections_closed", "processor": "connections_closed"}),
    Count("connectionsRefused", {"acceptor": "connections_refused"}),
    Count("blockedUs", {"acceptor": "blocked_ns"}, unit=_NS_PER_US, together=max),
    Count("requests", {**_of_processor("requests_received"), **_of_targets("requests_handled")}),
    Count("errors", _of_targets("errors")),
    Count("bytesReceived", _of_processor("bytes_received")),
    Count("bytesSent", _of_processor("bytes_sent")),
    Count("recordsAppended", _of_targets("records_appended")),
    Count("bytesAppended", _of_targets("bytes_appended")),
    Count("commits", _of_targets("commits")),
    Count("commitTimeUs", _of_targets("commit_ns"), unit=_NS_PER_US),
    Count("fetchesParked", _of_targets("fetches_parked")),
    Count("slowTurns", {**_of_processor("slow_turns"), **_of_targets("slow_turns")}),
    *(Count(column_of_mutes(cause), _of_processor("mutes"), label=cause) for cause in MUTE_CAUSES),
)

#: By role, the counters of idle time and of busy time.
_TIMES: Final = {
    "processor": ("io_wait_ns", "io_ns"),
    "handler": ("idle_ns", "busy_ns"),
    "controller": ("idle_ns", "busy_ns"),
}


def idle_share(role: str, before: Values, after: Values) -> float | None:
    """Return the idle share of a loop between two readings; None if unknown."""
    if role not in _TIMES:
        return None
    idle_ns, busy_ns = (after[name, ""] - before.get((name, ""), 0) for name in _TIMES[role])
    total_ns = idle_ns + busy_ns
    return idle_ns / total_ns if total_ns > 0 else None


def gauges(role: str, values: Values) -> dict[str, int | None]:
    """Return the columns of present states."""
    used, free = values.get(("arena_used_bytes", "")), values.get(("arena_free_bytes", ""))
    connections = values.get(("connections", "")) if role == "processor" else None
    if role == "acceptor":
        connections = _total(values, "connections_accepted") - _total(values, "connections_closed")
    return {
        "arenaUsedBytes": used,
        "arenaBytes": None if used is None or free is None else used + free,
        "connections": connections,
    }


def _total(values: Values, name: str) -> int:
    return sum(value for key, value in values.items() if key[0] == name)
