"""The rows of the dataset roles: how each process has done, interval by interval while there are requests.

Runs in the recorder. Reads what the processes publish anyway and what the system knows of them, so it costs them
nothing. An interval begins when requests are noticed, and ends with a row for each process; the first without a request
is the last. Knows nothing of files, and imports nothing that a recorder which waits for its first rows has not loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.recorder.process_usage import Usage, cpus, growth, pss_bytes, usage_of
from broker.recorder.role_counts import COUNTS, Values, gauges, idle_share

if TYPE_CHECKING:
    from shm.metrics import MetricsReader
    from shm.process_slots import ProcessSlots, ProcessStatus
    from shm.recorder_rings import RecorderRings
    from shm.ring_fill import RingShare

#: How often at least the rings are looked at in an interval.
LOOK_NS: Final = 250_000_000

#: (role, index)
Place = tuple[str, int]

Row = dict[str, Any]


class RoleSources(NamedTuple):
    """What is read: slots, pages by process, and by process the rings that it reads."""

    slots: ProcessSlots
    pages: dict[Place, MetricsReader]
    rings: dict[Place, list[RingShare]]


class RoleRows:
    """The interval under way, if there is one."""

    def __init__(self, sources: RoleSources, rings: RecorderRings) -> None:
        self._slots, self._pages, self._rings = sources
        self._settings = rings.settings()
        self._account = rings.account(rings.recorder)
        self._counted = self._read_pages()
        self._begun_ns: int | None = None
        self._timed: dict[Place, Values] = {}
        self._used: dict[Place, Usage] = {}
        self._peaks: dict[Place, float] = {}
        #: Rows in each set.
        self.size = len(self._slots.statuses())

    @property
    def is_under_way(self) -> bool:
        """Whether an interval has begun."""
        return self._begun_ns is not None

    @property
    def has_traffic(self) -> bool:
        """Whether requests have come that no row tells of, and are to be told of."""
        return self._settings.roles_interval_ns > 0 and self._requests() != _requests_in(self._counted)

    def due_ns(self, now_ns: int) -> int | None:
        """Return when to turn again, on the monotonic clock; None when that is not before requests come."""
        if self._begun_ns is None:
            return None
        return min(self._begun_ns + self._settings.roles_interval_ns, now_ns + LOOK_NS)

    def turn(self, now_ns: int, now_us: int, *, is_last: bool = False) -> list[Row]:
        """Look, and return the rows of an interval that ends here: when it is over, or nothing more is asked for.

        The time is given on the monotonic clock, and as it stands in the rows.
        """
        interval_ns = self._settings.roles_interval_ns
        if self._begun_ns is None:
            if not is_last and self.has_traffic:
                self._begin(now_ns)
            return []
        self._look_at_rings()
        if now_ns - self._begun_ns < interval_ns and not is_last:
            return []
        found = self._rows(now_us, (now_ns - self._begun_ns) // 1000)
        if found[0]["traffic"] and interval_ns and not is_last:
            self._begin(now_ns)
        else:
            self._begun_ns = None
        return found

    def _begin(self, now_ns: int) -> None:
        # Before anything is known of them: a recorder that is killed meanwhile leaves these rows to be missed.
        self._account.add("events_pushed", self.size)
        self._begun_ns = now_ns
        self._timed = self._read_pages()
        self._used = {_place(each): usage_of(each.pid) for each in self._slots.statuses()}
        self._peaks = {}
        self._look_at_rings()

    def _look_at_rings(self) -> None:
        for place, fill in self._fills().items():
            self._peaks[place] = max(fill, self._peaks.get(place, 0.0))

    def _fills(self) -> dict[Place, float]:
        """Return the fill of the fullest ring that each process reads."""
        return {place: max(ring.read() for ring in rings) for place, rings in self._rings.items()}

    def _rows(self, now_us: int, interval_us: int) -> list[Row]:
        pages, fills = self._read_pages(), self._fills()
        common = {
            "time": now_us,
            "intervalUs": interval_us,
            "traffic": _requests_in(pages) != _requests_in(self._counted),
            "cpus": cpus(),
        }
        found = []
        for status in self._slots.statuses():
            place = _place(status)
            row = common | self._of_process(status) | self._of_page(place, pages.get(place, {}))
            found.append(row | {"ringFill": fills.get(place), "ringFillPeak": self._peaks.get(place)})
        self._counted = pages
        return found

    def _of_process(self, status: ProcessStatus) -> Row:
        before, after = self._used.get(_place(status), Usage(0)), usage_of(status.pid)
        is_same = before.pid == after.pid
        return {
            "role": status.role,
            "index": status.index,
            "generation": status.generation,
            "restarts": status.restarts,
            "state": status.state,
            "pid": status.pid or None,
            "cpuTimeUs": growth(before.cpu_us, after.cpu_us, is_same=is_same),
            "runQueueTimeUs": growth(before.run_queue_us, after.run_queue_us, is_same=is_same),
            "pssBytes": pss_bytes(status.pid),
        }

    def _of_page(self, place: Place, values: Values) -> Row:
        role, counted = place[0], self._counted.get(place, {})
        counts = {each.column: each.growth(role, counted, values) if values else None for each in COUNTS}
        share = idle_share(role, self._timed.get(place, {}), values) if values else None
        return {**counts, **gauges(role, values), "idleShare": share}

    def _read_pages(self) -> dict[Place, Values]:
        return {place: page.values() for place, page in self._pages.items()}

    def _requests(self) -> int:
        return _requests_in({place: page.values() for place, page in self._pages.items() if place[0] == "processor"})


def _place(status: ProcessStatus) -> Place:
    return status.role, status.index


def _requests_in(pages: dict[Place, Values]) -> int:
    """Return how many requests have been received since the broker started."""
    return sum(values["requests_received", ""] for (role, _), values in pages.items() if role == "processor")
