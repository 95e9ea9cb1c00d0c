"""Reads finished files of the request log for a range of time, as rows.

Runs in the command line; any process may read, and nothing is written. Files may be deleted while they are read, or
replaced by compaction; then they are listed again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from arro3.core import Array, DataType, RecordBatch
from arro3.io import read_parquet

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.part_files import HOUR_US, dataset_path, finished

#: Attempts to list and read the files when some are deleted meanwhile.
ATTEMPTS = 5

#: Rows of an hour may be in a file of the previous one: the wall clock may have been set.
SLACK_HOURS = 1

_BATCH_ROWS = 65_536

#: A row's values by column. Columns that an older file lacks are None.
Row = dict[str, Any]


class Query(NamedTuple):
    """A selection of rows: from a time on, before another, with values that fulfil the condition of their column."""

    since_us: int
    where: Mapping[str, Callable[[Any], bool]] = {}
    until_us: int | None = None


class Order(NamedTuple):
    """The number of rows to return: those with the highest values of a column, highest first."""

    column: str
    limit: int


class Found(NamedTuple):
    """The result of a search: of the read rows, all from `since_us` on, those that match."""

    rows: list[Row]
    read: int
    since_us: int


def files_since(root: Path, dataset: str, since_us: int) -> list[Path]:
    """Return the finished files of the hours from a time on, in order of their names."""
    first = since_us // HOUR_US - SLACK_HOURS
    found = [part.path for part in finished(dataset_path(root, dataset)) if _hour_of(part.path) >= first]
    return sorted(found)


def files_of(root: Path, dataset: str, query: Query) -> list[Path]:
    """Return the finished files that may have rows of a query, in order of their names."""
    found = files_since(root, dataset, query.since_us)
    if query.until_us is None:
        return found
    last = query.until_us // HOUR_US + SLACK_HOURS
    return [path for path in found if _hour_of(path) <= last]


def read(root: Path, dataset: str, query: Query) -> list[Row]:
    """Return the rows of a query, in order of their files."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read_files(files_of(root, dataset, query), dataset, query)
        except FileNotFoundError:
            continue
    return read_files(files_of(root, dataset, query), dataset, query)


def read_files(files: Iterable[Path], dataset: str, query: Query) -> list[Row]:
    """Return the rows of a query in some files. Raises FileNotFoundError when one was deleted."""
    rows: list[Row] = []
    for path in files:
        for batch in _batches(path, query):
            rows += _rows(_matching(batch, query), dataset)
    return rows


def search(root: Path, dataset: str, query: Query, order: Order, is_over: Callable[[], bool] = lambda: False) -> Found:
    """Return the first rows of a query in an order. Raises FileNotFoundError when a file was deleted.

    Reads the newest files first, until the time is over or older files cannot have a higher value. Batch by batch: an
    hour of a busy broker may not fit into memory.
    """
    column, limit = order
    rows: list[Row] = []
    read = 0
    for path in reversed(files_of(root, dataset, query)):
        ends_us = (_hour_of(path) + 1) * HOUR_US
        if column == "time" and len(rows) == limit and _micros(rows[-1]["time"]) >= ends_us + SLACK_HOURS * HOUR_US:
            return Found(rows, read, ends_us)
        for batch in _batches(path, query):
            if is_over():
                return Found(rows, read, ends_us)
            read += batch.num_rows
            found = _matching(batch, query)
            best = np.argsort(-found[column].cast(DataType.int64()).to_numpy(), kind="stable")[:limit]
            rows = heapq.nlargest(limit, rows + _rows(found.take(_positions(best)), dataset), key=itemgetter(column))
    return Found(rows, read, query.since_us)


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def _batches(path: Path, query: Query) -> Iterator[RecordBatch]:
    """Yield the rows of one file in the time of a query."""
    for batch in read_parquet(path, batch_size=_BATCH_ROWS):
        times = batch["time"].cast(DataType.int64()).to_numpy()
        matches = times >= query.since_us
        if query.until_us is not None:
            matches &= times < query.until_us
        yield batch if matches.all() else batch.take(_positions(np.flatnonzero(matches)))


def _matching(batch: RecordBatch, query: Query) -> RecordBatch:
    """Return the rows that fulfil the conditions of a query."""
    matches = np.ones(batch.num_rows, np.bool_)
    for column, fulfils in query.where.items():
        matches &= np.fromiter(map(fulfils, batch[column].to_pylist()), np.bool_, batch.num_rows)
    return batch if matches.all() else batch.take(_positions(np.flatnonzero(matches)))


def _positions(places: np.ndarray) -> Array:
    return Array.from_numpy(places.astype(np.uint32))


def _rows(batch: RecordBatch, dataset: str) -> list[Row]:
    names, missing = set(batch.column_names), [None] * batch.num_rows
    columns = {
        column.name: batch[column.name].to_pylist() if column.name in names else missing
        for column in DATASETS[dataset].columns
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _hour_of(path: Path) -> int:
    """Return the hour since the epoch in a file's directory names."""
    hour = path.parent.name.partition("=")[2]
    date = path.parent.parent.name.partition("=")[2]
    return int(datetime.strptime(f"{date} {hour}", "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp()) // 3600
