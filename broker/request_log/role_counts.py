"""The columns that the dataset roles takes from metrics pages: which metric of which role, and how it is counted.

Pure; runs in the recorder. A page's counters only grow, so what happened in an interval is the difference of two
readings; a role without the metric has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from rotunda.shm.metrics.catalogue import MUTE_CAUSES

#: A reading of one page: counters and gauges by name and label's value.
Values = Mapping[tuple[str, str], int]

_NS_PER_US: Final = 1000


class Count(NamedTuple):
    """A column that counts: ``metrics`` by role; of a metric with labels one value, or all of them taken together."""

    column: str
    metrics: Mapping[str, str]
    label: str | None = None
    unit: int = 1
    together: Callable[[Iterable[int]], int] = sum

    def growth(self, role: str, before: Values, after: Values) -> int | None:
        """Return what has come to it between two readings of a page; None if the role does not count it."""
        name = self.metrics.get(role)
        if name is None:
            return None
        keys = [key for key in after if key[0] == name and self.label in (None, key[1])]
        # Each end is rounded by itself, so that the intervals add up.
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

#: By role, the counters of time that it had nothing to do, and of time that it had.
_TIMES: Final = {
    "processor": ("io_wait_ns", "io_ns"),
    "handler": ("idle_ns", "busy_ns"),
    "controller": ("idle_ns", "busy_ns"),
}


def idle_share(role: str, before: Values, after: Values) -> float | None:
    """Return the share of the time between two readings in which a loop had nothing to do; None if nobody knows."""
    if role not in _TIMES:
        return None
    idle_ns, busy_ns = (after[name, ""] - before.get((name, ""), 0) for name in _TIMES[role])
    total_ns = idle_ns + busy_ns
    return idle_ns / total_ns if total_ns > 0 else None


def gauges(role: str, values: Values) -> dict[str, int | None]:
    """Return the columns of states as they are now."""
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
