"""Reads finished files of the request log for a range of time, as tables.

Runs in the command line; any process may read, and nothing is written. Files may be deleted while they are read, or
replaced by compaction; then they are listed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.part_files import HOUR_US, dataset_path, finished
from rotunda.broker.request_log.tables import schema_of

#: Attempts to list and read the files when some are deleted meanwhile.
ATTEMPTS = 5

#: Rows of an hour may be in a file of the previous one: the wall clock may have been set.
SLACK_HOURS = 1


def files_since(root: Path, dataset: str, since_us: int) -> list[Path]:
    """Return the finished files of the hours from a time on, in order of their names."""
    first = since_us // HOUR_US - SLACK_HOURS
    found = [part.path for part in finished(dataset_path(root, dataset)) if _hour_of(part.path) >= first]
    return sorted(found)


def read(root: Path, dataset: str, since_us: int, condition: Any = None) -> Any:
    """Return the rows from a time on that match an Arrow expression, as a table."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read_files(files_since(root, dataset, since_us), dataset, since_us, condition)
        except FileNotFoundError:
            continue
    return read_files(files_since(root, dataset, since_us), dataset, since_us, condition)


def read_files(files: Iterable[Path], dataset: str, since_us: int, condition: Any = None) -> Any:
    """Return the rows of some files, as `read` does. Raises FileNotFoundError when one was deleted."""
    schema = schema_of(DATASETS[dataset])
    paths = [str(path) for path in files]
    if not paths:
        return schema.empty_table()
    recent = ds.field("time") >= pa.scalar(since_us, pa.timestamp("us", tz="UTC"))
    wanted = recent if condition is None else recent & condition
    return ds.dataset(paths, schema=schema, format="parquet").to_table(filter=wanted)


def _hour_of(path: Path) -> int:
    """Return the hour since the epoch in a file's directory names."""
    hour = path.parent.name.partition("=")[2]
    date = path.parent.parent.name.partition("=")[2]
    return int(datetime.strptime(f"{date} {hour}", "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp()) // 3600
