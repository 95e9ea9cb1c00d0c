"""Reads the profile written by `rotunda report replay`, without Spark. Runs in the command line's process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.errors import RotundaError

if TYPE_CHECKING:
    import pyarrow as pa

#: The supported profile version.
KNOWN_VERSION = 1
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
    table = _table(files)
    if not table.num_rows or "profileVersion" not in table.column_names:
        raise RotundaError(f"{path} has no rows of a profile; make one with: rotunda report replay")
    versions = set(table.column("profileVersion").to_pylist())
    if versions != {KNOWN_VERSION}:
        found = ", ".join(str(version) for version in versions)
        raise RotundaError(f"{path} is a profile of version {found}; this program knows version {KNOWN_VERSION}")
    events = [Event(**_of_row(row)) for row in table.to_pylist()]
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


def _table(files: Sequence[Path]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - takes a while to import, which complaints need not wait for
    from pyarrow import json, parquet  # noqa: PLC0415

    try:
        tables = [json.read_json(each) if each.suffix == ".json" else parquet.read_table(each) for each in files]
        return pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowInvalid, OSError) as failure:
        raise RotundaError(f"{files[0].parent} cannot be read as a profile: {failure}") from failure
