"""The minutes of the history: when one ends, its aggregates become rows.

Runs in the recorder. Aggregates are the growth of published counters between two samples, so requests cost nothing
more; a minute without requests has no rows. Knows nothing of how rows become files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.request_log.history.api_totals import ApiTotals, api_rows, api_totals, error_rows
from rotunda.broker.request_log.history.events import EventWatch, event
from rotunda.broker.request_log.history.lag_totals import LagTotals
from rotunda.broker.request_log.history.largest import OTHERS
from rotunda.broker.request_log.history.process_totals import (
    ProcessTotals,
    broker_row,
    process_totals,
    role_rows,
    throttle_rows,
)
from rotunda.broker.request_log.history.topic_totals import TopicTotals, topic_growth, totals_of_table
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import TopicInfo
    from rotunda.broker.request_log.history.client_totals import ClientTotals
    from rotunda.shm.metrics.process_metrics import MetricsReader
    from rotunda.shm.tables.partitions import PartitionTable
    from rotunda.shm.tables.process_slots import ProcessSlots

MINUTE_US: Final = 60_000_000

#: Interval in which events are noticed.
LOOK_US: Final = 1_000_000

#: Most events of a minute with a row of their own.
MOST_EVENTS: Final = 50

Row = dict[str, Any]


class HistorySources(NamedTuple):
    """The inputs. `peaks` returns the highest fills of rings since its last call, by the process that reads them."""

    pages: Mapping[tuple[str, int], MetricsReader]
    slots: ProcessSlots
    table: PartitionTable
    peaks: Callable[[], Mapping[tuple[str, int], float]]
    data_dir: Path


class _Sample(NamedTuple):
    """Totals at one time."""

    processes: ProcessTotals
    apis: ApiTotals
    topics: TopicTotals


class History:
    """The present minute."""

    def __init__(self, sources: HistorySources, watch: EventWatch, now_us: int, *, is_first: bool) -> None:
        """Begin with the present totals; for the first recorder of a broker those of topics are 0."""
        self._sources = sources
        self._watch = watch
        self._processors = [page for (role, _), page in sources.pages.items() if role == "processor"]
        self._minute = self._sampled_minute = now_us // MINUTE_US
        topics = TopicTotals({}, sources.table.rows) if is_first else totals_of_table(sources.table)
        self._before = _Sample(self._processes(), api_totals(self._processors), topics)
        self._has_requests = False
        self._looked_us = now_us
        self._events: list[Row] = []
        self._further_events = 0
        #: Events that do not wake a recorder that has nothing else to write.
        self._quiet: list[Row] = []
        self.lags = LagTotals()
        #: Clients of this minute; None until rows of requests can be read.
        self.clients: ClientTotals | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the present minute will have rows."""
        return self._has_requests or bool(self._events)

    def add_event(self, time_us: int, name: str, detail: str, *, is_quiet: bool = False) -> None:
        """Add an event. Of too many in a minute only the number is kept."""
        if is_quiet:
            self._quiet.append(event(time_us, name, detail))
        elif len(self._events) < MOST_EVENTS:
            self._events.append(event(time_us, name, detail))
        else:
            self._further_events += 1

    def notice(self, now_us: int) -> bool:
        """Return whether requests or events have arrived since the last minute with rows."""
        self._add_events(now_us)
        if not self._has_requests:
            self._notice_requests(now_us)
        return self.is_under_way

    def discard(self, now_us: int, *, keeps_events: bool = False) -> None:
        """Forget the present minute: nothing is recorded. Requests until the next minute may be counted later.

        With `keeps_events` its events are written with the next minute that is recorded.
        """
        if now_us // MINUTE_US != self._sampled_minute:
            self._minute = self._sampled_minute = now_us // MINUTE_US
            topics = totals_of_table(self._sources.table)
            self._before = _Sample(self._processes(), api_totals(self._processors), topics)
        if self.clients is not None:
            self.clients.end_minute()
        self._add_events(now_us)
        if not keeps_events:
            self._events, self._further_events = [], 0
        self._has_requests = False

    def run_once(self, now_us: int, topics: Callable[[], Iterable[TopicInfo]], *, is_last: bool = False) -> list[Row]:
        """Return the rows of a minute that has ended, or with `is_last` of the present one so far."""
        minute = now_us // MINUTE_US
        rows: list[Row] = []
        # Requests that are noticed now are of the next minute.
        if minute != self._minute and self.is_under_way:
            rows = self._end_minute(topics)
        self._minute = minute
        self.notice(now_us)
        if is_last and self.is_under_way:
            rows += self._end_minute(topics)
        return rows

    def due_us(self) -> int | None:
        """Return when the present minute ends, None if it will have no rows."""
        return (self._minute + 1) * MINUTE_US if self.is_under_way else None

    def settle(self) -> None:
        """Add up all rows of requests so far: the names of their clients are not needed any more."""
        if self.clients is not None:
            self.clients.settle()

    def _add_events(self, now_us: int) -> None:
        """Add the events since the last look, which was at least LOOK_US ago."""
        if abs(now_us - self._looked_us) >= LOOK_US:
            self._looked_us = now_us
            for row in self._watch.look(now_us):
                self.add_event(row["time"], row["name"], row["detail"])

    def _notice_requests(self, now_us: int) -> None:
        received = sum(page.values()["requests_received", ""] for page in self._processors)
        if received != self._before.processes.requests:
            self._has_requests = True
            self._minute = now_us // MINUTE_US
        elif now_us // MINUTE_US != self._sampled_minute:
            # A minute without requests does not count as idle time of the next one.
            self._sampled_minute = now_us // MINUTE_US
            self._before = self._before._replace(processes=self._processes())

    def _end_minute(self, topics: Callable[[], Iterable[TopicInfo]]) -> list[Row]:
        rows = [*self._quiet, *self._events]
        if self._further_events:
            rows.append(event(self._events[-1]["time"], OTHERS, counted(self._further_events, "more event")))
        if self._has_requests:
            rows += [{"time": self._minute * MINUTE_US, **row} for row in self._aggregates(topics())]
        self._quiet, self._events, self._further_events = [], [], 0
        self._has_requests = False
        return rows

    def _aggregates(self, topics: Iterable[TopicInfo]) -> Iterator[Row]:
        before, sources = self._before, self._sources
        grown = topic_growth(before.topics, sources.table, topics)
        after = _Sample(self._processes(), api_totals(self._processors), grown.totals)
        self._before = after
        clients, response_bytes = ([], {}) if self.clients is None else self.clients.end_minute()
        yield from api_rows(before.apis, after.apis, response_bytes)
        yield from error_rows(before.apis, after.apis)
        yield from throttle_rows(before.processes, after.processes)
        yield from role_rows(before.processes, after.processes, sources.peaks())
        yield from clients
        yield from grown.rows
        yield from self.lags.rows((self._minute + 1) * MINUTE_US)
        yield broker_row(before.processes, after.processes) | self._disk() | {"logBytes": grown.log_bytes}

    def _disk(self) -> Row:
        try:
            found = os.statvfs(self._sources.data_dir)
        except OSError:
            return {}
        return {"diskFreeBytes": found.f_bavail * found.f_frsize, "diskBytes": found.f_blocks * found.f_frsize}

    def _processes(self) -> ProcessTotals:
        return process_totals(self._sources.pages, self._sources.slots)
