"""The recorder's loop body: read frames, write due files, record losses, delete old files.

Runs in the recorder process; knows nothing of how it is started and woken.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.history.client_totals import ClientTotals
from rotunda.broker.request_log.history.hour_files import HourFiles
from rotunda.broker.request_log.loss_accounting import Gap, Ledger
from rotunda.broker.request_log.names import Clients, Subjects
from rotunda.broker.request_log.part_files import HOUR_US, apply_retention, finished, is_followed
from rotunda.broker.request_log.recent import RecentRequests
from rotunda.broker.request_log.ring_reader import Intake, TakenFrames, joined
from rotunda.broker.request_log.row_buffers import RowBuffer, RowBuffers, Settlement
from rotunda.broker.request_log.row_values import connection_values, plain_values, request_values, times_us
from rotunda.shm.recorder_layout import CLIENT_METRICS, DATASET, DELIVERIES, GROUPS, LAG

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rotunda.broker.clock import Clock
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.request_log.history.minutes import History
    from rotunda.broker.request_log.role_rows import RoleRows
    from rotunda.broker.request_log.values import Values
    from rotunda.shm.rings.recorder_rings import RecorderRings
    from rotunda.shm.tables.recent_requests import RecentWriter

    Rows = NDArray[np.void]

_NS_PER_MS = 1_000_000

#: Interval of finished files while a reader follows; also the delay until a follower is noticed.
FOLLOWED_ROLL_MS = 1000

#: Interval of retention, which also runs after a file is finished.
RETENTION_MS = 600_000

#: Clock step from which on buffered rows are written by the old clock, so that each lies in the hour of its time.
CLOCK_SET_NS = 1_000 * _NS_PER_MS

#: Least difference between wall clock and monotonic clock that counts as a step.
CLOCK_STEP_NS = 5 * _NS_PER_MS

#: The event of a group that the history has too.
_REBALANCE = "rebalance"

#: By dataset: values of the columns that an event leaves out.
_NOTHING_REPORTED = {
    name: {column.name: None for column in DATASETS[name].columns if column.nullable}
    for name in (GROUPS, CLIENT_METRICS)
}


class Counts(NamedTuple):
    """Totals of the recorder since its start, for its metrics page."""

    rows_written: int
    files_written: int
    files_removed: int
    rows_lost: int


class Recorder:
    """The state of the recorder."""

    def __init__(
        self, rings: RecorderRings, root: Path, name: str, metadata: MetadataCache, clock: Clock, *, replaces: bool
    ) -> None:
        """Prepare to read the rings; files get names with ``name`` in them. ``replaces``: a predecessor was killed."""
        self._root = root
        self._clock = clock
        self._metadata = metadata
        self._settings = rings.settings()
        self._clients = Clients()
        self._subjects = Subjects(metadata)
        self._intake = Intake(rings, self._clients)
        self._ledger = Ledger(rings)
        self._buffers = RowBuffers(root, name, self._values)
        self._epoch_ns = clock.monotonic_ns() - clock.wall_ms() * _NS_PER_MS
        self._looked_us = self._now_us()
        self._retention_due_ns = clock.monotonic_ns()
        self._metadata_version = -1
        self._files_removed = self._rows_lost = 0
        if replaces:
            self._report_gaps(self._ledger.killed_recorder(self._intake), self._last_written_us())
        self._recent: RecentRequests | None = None
        self._roles: RoleRows | None = None
        self._history: History | None = None
        self._hour_files = HourFiles(root)
        self._recorder = rings.recorder
        self._refresh()

    def publish_recent(self, writer: RecentWriter) -> None:
        """Publish recent requests from now on."""
        self._recent = RecentRequests(writer, self._clients, self._subjects)

    def record_roles(self, roles: RoleRows) -> None:
        """Record the usage of each process from now on."""
        self._roles = roles

    def record_history(self, history: History) -> None:
        """Record aggregates of each minute from now on."""
        self._history = history
        history.clients = ClientTotals(self._clients)

    def broker_was_killed(self) -> None:
        """Record that the previous broker was killed, with an unknown number of rows in memory."""
        row = {"dataset": "requests", "source": "broker", "index": None, "cause": "broker_killed", "rows": None}
        self._add_gap(row, self._last_written_us())

    @property
    def is_prepared(self) -> bool:
        """Whether files may be written; until the required modules are imported, rows are buffered."""
        return self._buffers.is_prepared

    @is_prepared.setter
    def is_prepared(self, value: bool) -> None:
        self._buffers.is_prepared = value

    @property
    def is_busy(self) -> bool:
        """Whether any row is not in a finished file yet."""
        if self._buffers.pending() or not self._hour_files.is_saved:
            return True
        return any(each is not None and each.is_under_way for each in (self._roles, self._history))

    def run_once(self, metadata_version: int) -> float:
        """Run all due tasks; return the seconds until the next is due, unless a bell rings before."""
        if metadata_version != self._metadata_version:
            self._refresh()
            self._metadata_version = metadata_version
        self._follow_clock()
        while self._make_room() and (frames := self._intake.take()):
            for each in frames:
                self._sort_in(each)
            # The rows are in this process's memory now; they are settled when they are in a finished file.
            self._intake.release()
            self._buffers.convert_groups()
        if self._recent is not None:
            self._recent.publish(self._clock.monotonic_ns(), self._epoch_ns)
        self._add_roles()
        self._add_history()
        self._report_gaps(self._ledger.losses(), self._looked_us)
        self._looked_us = self._now_us()
        self._roll()
        return self._wait_s()

    def finish(self) -> None:
        """Read and write all rows, whether or not they are due and the imports are done."""
        self.is_prepared = True
        self.run_once(self._metadata_version)
        self._add_roles(is_last=True)
        self._add_history(is_last=True)
        self._roll(everything=True)

    def counts(self) -> Counts:
        """Return the totals since the start."""
        buffers = self._buffers
        return Counts(buffers.rows_written, buffers.files_written, self._files_removed, self._rows_lost)

    def _make_room(self) -> bool:
        """Write rows if too many names are cached for them; return False if the cache is still full."""
        if not (self._clients.is_full or self._subjects.is_full):
            return True
        if not self.is_prepared:
            return False
        self._buffers.convert_groups(everything=True)
        self._forget_names()
        return True

    def _forget_names(self) -> None:
        """Delete the names of written rows."""
        recent = self._recent
        if self._history is not None:
            self._history.settle()
        self._clients.forget(() if recent is None else recent.client_numbers())
        self._subjects.forget(() if recent is None else recent.subjects())

    def _refresh(self) -> None:
        """Update topics and settings."""
        self._subjects.refresh()
        self._retention_due_ns = self._clock.monotonic_ns()

    def _follow_clock(self) -> None:
        epoch_ns = self._clock.monotonic_ns() - self._clock.wall_ms() * _NS_PER_MS
        step_ns = abs(epoch_ns - self._epoch_ns)
        if step_ns > CLOCK_SET_NS and self.is_prepared:
            self._roll(everything=True)
        if step_ns > CLOCK_STEP_NS:
            self._epoch_ns = epoch_ns

    def _sort_in(self, frames: TakenFrames) -> None:
        """Add rows to the buffers of their hours."""
        now_ns = self._clock.monotonic_ns()
        if frames.rows is not None:
            rows = frames.rows
            rows["partition_row"] = self._subjects.of_rows(rows["partition_row"])
            if self._recent is not None:
                self._recent.add_rows(rows, now_ns)
            if self._history is not None and self._history.clients is not None and self._records_history:
                self._history.clients.add(rows)
            for hour, part in self._by_hour(rows, "received_ns"):
                settlement = self._buffers.add("requests", hour, part, len(part), now_ns)
                settlement[frames.source, "rows_settled"] += len(part)
        if frames.connections is not None:
            if self._recent is not None:
                self._recent.add_connections(frames.connections)
            for hour, part in self._by_hour(frames.connections, "time_ns"):
                settlement = self._buffers.add("connections", hour, part, len(part), now_ns)
                settlement[frames.source, "events_settled"] += len(part)
        for event in frames.events:
            dataset = event.pop(DATASET)
            row = _NOTHING_REPORTED[dataset] | event
            if dataset == GROUPS:
                self._add_group_event(row)
            settlement = self._buffers.add(dataset, row["time"] // HOUR_US, row, 1, now_ns)
            settlement[frames.source, "events_settled"] += 1

    def _add_group_event(self, row: dict[str, Any]) -> None:
        """Pass an event of a group to the recent events and to the history."""
        if row["event"] == LAG:
            if self._history is not None:
                self._history.lags.add(row)
            return
        if self._recent is not None and row["event"] != DELIVERIES:
            self._recent.add_group_event(row)
        if self._history is not None and row["event"] == _REBALANCE:
            self._history.add_event(row["time"], _REBALANCE, f"{row['group']}: {row['reason']}")

    def _add_roles(self, *, is_last: bool = False) -> None:
        """Add the rows of an interval that has ended."""
        if self._roles is None:
            return
        now_ns, now_us = self._clock.monotonic_ns(), self._now_us()
        for row in self._roles.run_once(now_ns, now_us, is_last=is_last):
            settlement = self._buffers.add("roles", now_us // HOUR_US, row, 1, now_ns)
            settlement[self._recorder, "events_settled"] += 1

    def _add_history(self, *, is_last: bool = False) -> None:
        """Write the rows of a minute that has ended."""
        if self._history is None:
            return
        if not self._records_history:
            self._history.discard(self._now_us())
            return
        rows = self._history.run_once(self._now_us(), self._metadata.topics, is_last=is_last)
        for row in rows:
            self._hour_files.add(row)
        if (rows or is_last) and self.is_prepared and not self._hour_files.is_saved:
            self._hour_files.save()

    @property
    def _records_history(self) -> bool:
        config = self._metadata.broker_config
        return config.request_log_enable and config.history_retention_ms != 0

    def _by_hour(self, rows: Rows, stamp: str) -> list[tuple[int, Rows]]:
        """Return (hour since the epoch, rows), nearly always one."""
        stamps = rows[stamp]
        first, last = (times_us(each, self._epoch_ns) // HOUR_US for each in (stamps.min(), stamps.max()))
        if first == last:
            return [(int(first), rows)]
        hours = times_us(stamps, self._epoch_ns) // HOUR_US
        return [(int(hour), rows[hours == hour]) for hour in np.unique(hours)]

    def _values(self, dataset: str, chunks: list[Any]) -> dict[str, Values]:
        if dataset == "requests":
            rows = joined(chunks)
            return request_values(rows, self._epoch_ns, self._settings.slow_ns, self._clients, self._subjects)
        if dataset == "connections":
            return connection_values(joined(chunks), self._epoch_ns, self._clients)
        return dict(plain_values(chunks, [column.name for column in DATASETS[dataset].columns]))

    def _report_gaps(self, gaps: list[Gap], since_us: int | None) -> None:
        for gap in gaps:
            self._rows_lost += gap.row["rows"]
            self._add_gap(gap.row, since_us, gap.settlement)

    def _add_gap(self, row: dict[str, Any], since_us: int | None, settled: Settlement | None = None) -> None:
        now_us = self._now_us()
        gap = {"time": now_us, "since": since_us, **row}
        settlement = self._buffers.add("gaps", now_us // HOUR_US, gap, 1, self._clock.monotonic_ns())
        settlement.update(settled or {})

    def _roll(self, *, everything: bool = False) -> None:
        """Finish the files that are due."""
        if not self._buffers.pending() or not (self.is_prepared or everything):
            self._remove_old(finished_some=False)
            return
        now_ns = self._clock.monotonic_ns()
        before_ns = now_ns if everything else now_ns - self._roll_ms() * _NS_PER_MS
        done, given_up = self._buffers.roll(before_ns, self._metadata.broker_config.request_log_roll_bytes)
        for buffer in done:
            self._ledger.settle(buffer.settlement)
        self._give_up(given_up)
        if done and not self._buffers.pending():
            self._forget_names()
        self._remove_old(finished_some=bool(done))

    def _give_up(self, buffers: list[RowBuffer]) -> None:
        for buffer in buffers:
            if buffer.dataset == "gaps":
                # Losses are recorded as soon as possible, and settled with the first of these rows.
                settled = buffer.settlement
                for row in buffer.chunks:
                    self._add_gap({name: row[name] for name in row if name != "time"}, row["since"], settled)
                    settled = Counter()
            else:
                self._report_gaps(self._ledger.given_up(buffer), self._looked_us)

    def _remove_old(self, *, finished_some: bool) -> None:
        now_ns = self._clock.monotonic_ns()
        if finished_some or now_ns >= self._retention_due_ns:
            self._retention_due_ns = now_ns + RETENTION_MS * _NS_PER_MS
            now_s = self._clock.wall_ms() / 1000
            self._files_removed += apply_retention(self._root, now_s, self._settings.retention)

    def _roll_ms(self) -> int:
        roll_ms = self._metadata.broker_config.request_log_roll_ms
        if roll_ms > FOLLOWED_ROLL_MS and is_followed(self._root, self._clock.wall_ms() / 1000):
            return FOLLOWED_ROLL_MS
        return roll_ms

    def _wait_s(self) -> float:
        """Return the time until the next task is due. Followers are looked for only while rows are buffered."""
        now_ns = self._clock.monotonic_ns()
        due_ns = self._retention_due_ns
        oldest_ns = self._buffers.oldest_ns()
        if oldest_ns is not None:
            roll_ms = self._metadata.broker_config.request_log_roll_ms
            due_ns = min(due_ns, oldest_ns + roll_ms * _NS_PER_MS, now_ns + FOLLOWED_ROLL_MS * _NS_PER_MS)
        if self._recent is not None and self._recent.due_ns is not None:
            due_ns = min(due_ns, self._recent.due_ns)
        minute_us = None if self._history is None else self._history.due_us()
        if minute_us is not None:
            due_ns = min(due_ns, minute_us * 1000 + self._epoch_ns)
        roles_ns = None if self._roles is None else self._roles.due_ns(now_ns)
        if roles_ns is not None:
            due_ns = min(due_ns, roles_ns)
        return max(0, due_ns - now_ns) / 1e9

    def _now_us(self) -> int:
        return (self._clock.monotonic_ns() - self._epoch_ns) // 1000

    def _last_written_us(self) -> int | None:
        """Return when the newest file was finished."""
        newest = max((part.mtime_s for part in finished(self._root)), default=None)
        return None if newest is None else int(newest * 1e6)
