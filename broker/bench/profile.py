"""Reads the profile written by `rotunda report replay`, without Spark. Runs in the command line's process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rotunda.broker.errors import RotundaError

#: The supported profile version.
KNOWN_VERSION = 1
#: A Parquet file begins and ends with it.
_MAGIC = b"PAR1"
OPEN, REQUEST, CLOSE = "open", "request", "close"


class Event(NamedTuple):
    """One row: a connection's open, close or request. Field names are the profile's; None is unknown."""

    atUs: int  # noqa: N815
    event: str
    connection: int
    clientId: str | None  # noqa: N815
    softwareName: str | None  # noqa: N815
    softwareVersion: str | None  # noqa: N815
    requestApiKey: int | None  # noqa: N815
    requestApiKeyName: str | None  # noqa: N815
    requestApiVersion: int | None  # noqa: N815
    topic: str | None
    partition: int | None
    partitionCount: int | None  # noqa: N815
    records: int | None
    recordBytes: int | None  # noqa: N815
    codec: str | None
    acks: int | None
    isolationLevel: int | None  # noqa: N815
    minBytes: int | None  # noqa: N815
    maxWaitMs: int | None  # noqa: N815
    requestBytes: int | None  # noqa: N815
    responseBytes: int | None  # noqa: N815
    totalTimeUs: int | None  # noqa: N815
    repeat: int


def read(path: Path) -> list[Event]:
    """Read a profile's events in order, from a file, a directory of files, or a job's output directory.

    Raises RotundaError if there is no profile, or if its version is unknown.
    """
    files = _files(path)
    if not files:
        raise RotundaError(f"{path} has no profile; make one with: rotunda report replay")
    rows = [row for file in files for row in _rows(file)]
    versions = {row.get("profileVersion") for row in rows}
    if not rows or versions == {None}:
        raise RotundaError(f"{path} has no rows of a profile; make one with: rotunda report replay")
    if versions != {KNOWN_VERSION}:
        found = ", ".join(str(version) for version in versions)
        raise RotundaError(f"{path} is a profile of version {found}; this program knows version {KNOWN_VERSION}")
    events = [Event(**_of_row(row)) for row in rows]
    return sorted(events, key=lambda event: event.atUs)


def partitions_needed(events: Iterable[Event]) -> dict[str, int]:
    """Return the number of partitions that each topic of a profile needs."""
    needed: dict[str, int] = {}
    for event in events:
        if event.topic is not None:
            wanted = max((event.partition or 0) + 1, event.partitionCount or 0)
            needed[event.topic] = max(wanted, needed.get(event.topic, 1))
    return needed


def _of_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in Event._fields}


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    directory = path / "profile" if (path / "profile").is_dir() else path
    return sorted(each for each in directory.glob("*") if each.suffix in {".parquet", ".json"})


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file: Parquet, or JSON with an object a line. Raises RotundaError for another file."""
    from arro3.io import read_parquet  # noqa: PLC0415 - takes a while to import, which complaints need not wait for

    content = file.read_bytes()
    try:
        if file.suffix == ".json":
            yield from map(json.loads, content.splitlines())
            return
    except ValueError as failure:
        raise RotundaError(f"{file} cannot be read as a profile: {failure}") from failure
    if not (content.startswith(_MAGIC) and content.endswith(_MAGIC)):
        raise RotundaError(f"{file} cannot be read as a profile: not a Parquet file")
    for batch in read_parquet(content):
        columns = [column.to_pylist() for column in batch.columns]
        yield from (dict(zip(batch.column_names, row, strict=True)) for row in zip(*columns, strict=True))
