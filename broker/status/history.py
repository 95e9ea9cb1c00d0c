"""The history for the status page: the rows of a range of time as series of at most a few hundred points.

Runs in a thread of the web process, one range at a time, file by file: a month of rows is never in memory. Values of
several minutes are added up, or the highest is returned, by the column.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from arro3.core import DataType

from rotunda.broker.protocol.api_keys import text_of
from rotunda.broker.request_log.columns import DATASETS, HISTORY
from rotunda.broker.request_log.history.hour_files import Damaged, has_damage, newest, set_aside, undamaged
from rotunda.broker.request_log.history.largest import OTHERS
from rotunda.broker.request_log.part_files import HOUR_US, hour_path
from rotunda.broker.request_log.tables import decoded

if TYPE_CHECKING:
    from arro3.core import RecordBatch
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

#: Lengths of a point, in minutes, and the most points of a range.
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 240, 720, 1440)
MOST_POINTS: Final = 366

#: Names with series of their own, by kind, and those that are kept apart until the largest are known.
MOST_NAMES: Final = 6
_MOST_CANDIDATES: Final = 200

#: Attempts to read an hour whose file is replaced meanwhile.
_ATTEMPTS: Final = 8

#: Most events of a range, the latest.
MOST_EVENTS: Final = 500

_MINUTE_MS: Final = 60_000

#: By kind, the columns to return and how values of a point are combined. The first decides which names are largest.
_SHOWN: Final[dict[str, dict[str, np.ufunc]]] = {
    "api": {
        "requests": np.add,
        "errors": np.add,
        "bytesIn": np.add,
        "bytesOut": np.add,
        **dict.fromkeys(("totalP50Us", "totalP95Us", "totalP99Us"), np.fmax),
        **dict.fromkeys(("queueP99Us", "localP99Us", "remoteP99Us", "responseQueueP99Us", "sendP99Us"), np.fmax),
    },
    "client": dict.fromkeys(("requests", "errors", "bytesIn", "bytesOut"), np.add),
    "topic": dict.fromkeys(("bytesIn", "bytesOut", "records"), np.add),
    "group": dict.fromkeys(("records", "lagUs"), np.fmax),
    "role": {"cpuTimeUs": np.add, **dict.fromkeys(("utilisation", "utilisationMean", "ringFillPeak"), np.fmax)},
    "error": {"requests": np.add},
    "throttle": {"requests": np.add, "throttleTimeUs": np.add},
    "broker": {
        **dict.fromkeys(("bytesIn", "bytesOut"), np.add),
        **dict.fromkeys(("connectionsOpened", "connectionsClosed", "connectionsRefused"), np.add),
        **dict.fromkeys(("connections", "logBytes", "diskBytes"), np.fmax),
        "diskFreeBytes": np.fmin,
    },
}

Series = dict[str, list[float | None]]


class HistoryReader:
    """Reads the history below a request log."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._one = threading.Lock()
        self._warned: set[Path] = set()

    def read(self, from_ms: int, to_ms: int) -> dict[str, Any]:
        """Return the series of a range, widened to whole points, by kind, name and column."""
        step_ms = _step_ms(to_ms - from_ms)
        first = from_ms // step_ms
        points = max(1, -(-to_ms // step_ms) - first)
        kinds = {kind: _Kind(columns, points) for kind, columns in _SHOWN.items()}
        events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        unreadable: list[int] = []
        with self._one:
            for hour in range(from_ms * 1000 // HOUR_US, -(-to_ms * 1000 // HOUR_US)):
                try:
                    for batch in self._batches(hour):
                        _add(kinds, batch, first, step_ms * 1000)
                        events.extend(_events(batch, from_ms * 1000, to_ms * 1000))
                except OSError as error:
                    unreadable.append(hour)
                    self._warn(hour, error)
                else:
                    unreadable += [hour] * has_damage(hour_path(self._root, HISTORY, hour))
        return {
            "from_ms": first * step_ms,
            "step_ms": step_ms,
            "points": points,
            "series": {kind: each.series() for kind, each in kinds.items()},
            "events": sorted(events, key=lambda each: int(each["time_ms"])),
            "unreadable_hours_ms": [hour * HOUR_US // 1000 for hour in unreadable],
        }

    def _batches(self, hour: int) -> list[RecordBatch]:
        directory = hour_path(self._root, HISTORY, hour)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                path = newest(directory) if directory.is_dir() else None
                if path is None:
                    return []
                try:
                    return decoded(DATASETS[HISTORY], undamaged(path))
                except Damaged as error:
                    set_aside(path, error)
                    return []
            except FileNotFoundError:
                # Replaced by its next version, or deleted by retention; or else a link to nothing.
                if attempt == _ATTEMPTS:
                    raise
        return []

    def _warn(self, hour: int, error: Exception) -> None:
        path = hour_path(self._root, HISTORY, hour)
        if path not in self._warned:
            self._warned.add(path)
            logger.warning("the history of an hour cannot be shown: %s", error)


def _step_ms(range_ms: int) -> int:
    """Return the shortest length of a point with which a range has few enough."""
    return next((step for step in _STEPS if range_ms <= step * _MINUTE_MS * (MOST_POINTS - 1)), _STEPS[-1]) * _MINUTE_MS


class _Kind:
    """The series of a kind. Names beyond the candidates are added up as others."""

    def __init__(self, columns: dict[str, np.ufunc], points: int) -> None:
        self.columns = columns
        self.points = points
        self._places: dict[str, int] = {OTHERS: 0}
        self._values = {column: np.full((1, points), np.nan) for column in columns}

    def add(self, names: list[str], points: NDArray[np.int64], batch: dict[str, NDArray[np.float64]]) -> None:
        """Add rows: their names, their points, and their values by column."""
        places = np.array([self._place(name) for name in names], np.int64)
        for column, combine in self.columns.items():
            values = self._values[column]
            if len(values) < len(self._places):
                more = np.full((len(self._places) - len(values), self.points), np.nan)
                values = self._values[column] = np.concatenate([values, more])
            _combine(combine, values.reshape(-1), places * self.points + points, batch[column])

    def series(self) -> dict[str, Series]:
        """Return the largest names by size, and the others last."""
        ranks = np.nansum(next(iter(self._values.values())), axis=1)
        ranks[0] = -1
        order = [int(place) for place in np.argsort(-ranks, kind="stable")]
        names = list(self._places)
        found = {names[place]: [place] for place in order[:MOST_NAMES] if place}
        found[OTHERS] = [0, *(place for place in order[MOST_NAMES:] if place)]
        series = {name: self._of(places) for name, places in found.items()}
        if not any(series[OTHERS].values()):
            del series[OTHERS]
        return series

    def _of(self, places: list[int]) -> Series:
        found = {}
        for column, combine in self.columns.items():
            value = np.full(self.points, np.nan)
            for place in places:
                _combine(combine, value, np.arange(self.points), self._values[column][place])
            if not np.isnan(value).all():
                found[column] = [None if np.isnan(each) else round(each, 4) for each in value.tolist()]
        return found

    def _place(self, name: str) -> int:
        if len(self._places) >= _MOST_CANDIDATES:
            return self._places.get(name, 0)
        return self._places.setdefault(name, len(self._places))


def _combine(
    combine: np.ufunc, into: NDArray[np.float64], places: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    """Combine values with those at the places; NaN is no value."""
    known = ~np.isnan(values)
    places, values = places[known], values[known]
    if combine is np.add:
        into[places] = np.nan_to_num(into[places])
    combine.at(into, places, values)


def _add(kinds: dict[str, _Kind], batch: RecordBatch, first: int, step_us: int) -> None:
    """Add the rows of a batch to their kinds."""
    times = np.array(batch["time"].cast(DataType.int64()).to_numpy())
    points = times // step_us - first
    of_kind = np.array(batch["kind"].to_pylist(), object)
    names = np.array(batch["name"].to_pylist(), object)
    columns: dict[str, NDArray[np.float64]] = {}
    for kind, each in kinds.items():
        rows = np.flatnonzero((of_kind == kind) & (points >= 0) & (points < each.points))
        if len(rows):
            for column in each.columns:
                if column not in columns:
                    columns[column] = np.array(batch[column].to_pylist(), np.float64)
            of_rows = names[rows].tolist()
            of_rows = list(map(text_of, of_rows)) if kind == "api" else of_rows
            each.add(of_rows, points[rows], {column: columns[column][rows] for column in each.columns})


def _events(batch: RecordBatch, from_us: int, to_us: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a batch in a range."""
    times = np.array(batch["time"].cast(DataType.int64()).to_numpy()).tolist()
    columns = (batch[name].to_pylist() for name in ("kind", "name", "detail"))
    for time_us, kind, name, detail in zip(times, *columns, strict=True):
        if kind == "event" and from_us <= time_us < to_us:
            yield {"time_ms": time_us // 1000, "name": name, "detail": detail}
