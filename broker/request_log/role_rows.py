"""The rows of the dataset roles: the usage of each process, interval by interval while there are requests.

Runs in the recorder. Reads published data of the processes and the system's counters, so it costs the processes
nothing. An interval begins before the requests that cause it, and ends with a row for each process; the first without a
request is the last. Knows nothing of files, and imports nothing that a recorder waiting for its first rows has not
loaded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.request_log.process_usage import Usage, cpus, growth, pss_bytes, usage_of
from rotunda.broker.request_log.role_counts import COUNTS, Values, gauges, idle_share
from rotunda.shm.tables.process_slots import ROLES, SUPERVISOR

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsReader
    from rotunda.shm.rings.recorder_rings import RecorderRings
    from rotunda.shm.rings.ring_fill import RingShare
    from rotunda.shm.tables.process_slots import ProcessSlots, ProcessStatus

#: Longest interval between two samples of the rings.
LOOK_NS: Final = 250_000_000

#: Delay of published counters. A sample of a process that is about to publish requests may be of the time after their
#: arrival, but a sample older than this delay is not.
PUBLISHED_NS: Final = 600_000_000

#: (role, index)
Place = tuple[str, int]

Row = dict[str, Any]


class RoleSources(NamedTuple):
    """The inputs: slots, pages by process, and by process the rings that it reads."""

    slots: ProcessSlots
    pages: dict[Place, MetricsReader]
    rings: dict[Place, list[RingShare]]


class ProcessSample(NamedTuple):
    """A sample of all processes at a monotonic time."""

    at_ns: int
    pages: dict[Place, Values]
    used: dict[Place, Usage]

    @property
    def requests(self) -> int:
        """Number of requests received since the broker started."""
        return sum(values["requests_received", ""] for (role, _), values in self.pages.items() if role == "processor")


class RoleRows:
    """The present interval, if there is one."""

    def __init__(self, sources: RoleSources, rings: RecorderRings, now_ns: int) -> None:
        self._slots, self._pages, self._rings = sources
        self._settings = rings.settings()
        self._account = rings.account(rings.recorder)
        #: The first sample of the present interval; None between two.
        self._begun: ProcessSample | None = None
        #: The last samples between two intervals, so far apart that the first is earlier than any later request.
        self._idle: deque[ProcessSample] = deque(maxlen=2)
        self._peaks: dict[Place, float] = {}
        self._untaken_peaks: dict[Place, float] = {}
        #: Rows in each set.
        self.size = len(self._statuses())
        self.notice(now_ns)

    @property
    def is_under_way(self) -> bool:
        """Whether an interval has begun."""
        return self._begun is not None

    def due_ns(self, now_ns: int) -> int | None:
        """Return when the next pass is due, on the monotonic clock; None between intervals."""
        if self._begun is None:
            return None
        return min(self._begun.at_ns + self._settings.roles_interval_ns, now_ns + LOOK_NS)

    def notice(self, now_ns: int) -> bool:
        """Sample, between two intervals; return whether requests have arrived, for which rows are due."""
        if not self._settings.roles_interval_ns:
            self._idle.clear()
            return False
        look = self._look(now_ns)
        if self._idle and look.requests != self._idle[0].requests:
            return True
        if not self._idle or now_ns - self._idle[-1].at_ns >= PUBLISHED_NS:
            self._idle.append(look)
        return False

    def run_once(self, now_ns: int, now_us: int, *, is_last: bool = False) -> list[Row]:
        """Sample, and return the rows of an interval that ends now: when it is complete, or with `is_last`.

        The time is passed as monotonic time, and as the rows' timestamp.
        """
        begun = self._begun
        if begun is None:
            if not is_last and self.notice(now_ns):
                self._begin(self._idle[0])
            return []
        self._look_at_rings()
        interval_ns = self._settings.roles_interval_ns
        if now_ns - begun.at_ns < interval_ns and not is_last:
            return []
        ended = self._look(now_ns)
        found = self._rows(begun, ended, now_us)
        if ended.requests != begun.requests and interval_ns and not is_last:
            self._begin(ended)
        else:
            self._begun = None
            self._idle.clear()
            self._idle.append(ended)
        return found

    def peaks(self) -> dict[Place, float]:
        """Return the highest fill that was seen since the last call, of the fullest ring that each process reads."""
        found, self._untaken_peaks = self._untaken_peaks, {}
        return found

    def _begin(self, look: ProcessSample) -> None:
        # Before the rows exist: if the recorder is killed meanwhile, they count as lost.
        self._account.add("events_pushed", self.size)
        self._begun = look
        self._peaks = {}
        self._look_at_rings()

    def _look(self, now_ns: int) -> ProcessSample:
        used = {_place(each): usage_of(each.pid) for each in self._statuses()}
        return ProcessSample(now_ns, {place: page.values() for place, page in self._pages.items()}, used)

    def _statuses(self) -> list[ProcessStatus]:
        """Return the slots of the sampled processes, always the same: with a page, and the supervisor."""
        found = self._slots.statuses()
        return [each for each in found if _place(each) in self._pages or each.role == ROLES[SUPERVISOR]]

    def _look_at_rings(self) -> None:
        for place, fill in self._fills().items():
            self._peaks[place] = max(fill, self._peaks.get(place, 0.0))
            self._untaken_peaks[place] = max(fill, self._untaken_peaks.get(place, 0.0))

    def _fills(self) -> dict[Place, float]:
        """Return the fill of the fullest ring that each process reads."""
        return {place: max(ring.read() for ring in rings) for place, rings in self._rings.items()}

    def _rows(self, begun: ProcessSample, ended: ProcessSample, now_us: int) -> list[Row]:
        fills = self._fills()
        common = {
            "time": now_us,
            "intervalUs": (ended.at_ns - begun.at_ns) // 1000,
            "traffic": ended.requests != begun.requests,
            "cpus": cpus(),
        }
        found = []
        for status in self._statuses():
            place = _place(status)
            row = common | _of_process(status, begun.used[place], ended.used[place])
            row |= _of_page(place[0], begun.pages.get(place, {}), ended.pages.get(place, {}))
            found.append(row | {"ringFill": fills.get(place), "ringFillPeak": self._peaks.get(place)})
        return found


def _of_process(status: ProcessStatus, before: Usage, after: Usage) -> Row:
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


def _of_page(role: str, before: Values, after: Values) -> Row:
    counts = {each.column: each.growth(role, before, after) if after else None for each in COUNTS}
    share = idle_share(role, before, after) if after else None
    return {**counts, **gauges(role, after), "idleShare": share}


def _place(status: ProcessStatus) -> Place:
    return status.role, status.index
