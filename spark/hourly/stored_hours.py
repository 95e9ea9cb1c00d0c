"""The stored hours: each has a manifest with its input files and the run that wrote its rows.

Rows of an hour lie in `<table>/date=…/hour=…/run=…`, and only those of the run in the hour's manifest count: replacing
a manifest replaces the rows atomically. Before it writes rows, a run records the hours in progress, so that the next
run removes the rows of a killed one. Knows nothing of the rows' content.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.log.request_log import NOTHING, Coverage, InputFile, Part, dates_of
from rotunda.spark.time_range import HOUR_US, to_datetime

#: Raised when readers of this version could not read older stored rows; an added column does not do that.
VERSION = 1

_MANIFEST = "manifest"
_UNDER_WAY = f"{_MANIFEST}/_under_way.json"
#: Files that Spark leaves in a table when it is killed during a write.
_STAGED = (".spark-staging", "_temporary")


@dataclass(frozen=True, slots=True)
class StoredHour:
    """The manifest of an hour: its run (`run`), its input files, and its totals.

    `inputs` and `gap_inputs` are the finished files of the datasets requests and gaps.
    """

    hour: int
    run: str
    inputs: frozenset[Part] = frozenset()
    gap_inputs: frozenset[Part] = frozenset()
    coverage: Coverage = NOTHING

    def is_whole(self, present: Iterable[InputFile]) -> bool:
        """Return whether all its files of requests are among the present ones of its hour."""
        return {part.name for part in self.inputs} <= _names(present)

    def to_json(self) -> str:
        """Return the text of the manifest."""
        return json.dumps(
            {
                "version": VERSION,
                "hour": self.hour,
                "run": self.run,
                "inputs": [{"name": name, "size": size} for name, size in sorted(self.inputs)],
                "gapInputs": [{"name": name, "size": size} for name, size in sorted(self.gap_inputs)],
                "rows": self.coverage.rows,
                "requests": self.coverage.requests,
                "gapRows": self.coverage.gap_rows,
                "lostRows": self.coverage.lost_rows,
            }
        )

    @classmethod
    def of_json(cls, text: str, where: str) -> StoredHour:
        """Return the manifest in a text. Raises JobFailed for an unknown version."""
        try:
            said: dict[str, Any] = json.loads(text)
            version = said["version"]
        except (ValueError, KeyError, TypeError):
            raise JobFailed(f"{where} has no readable manifests; remove that directory and run rollup again") from None
        if version != VERSION:
            message = f"{where} has stored hours of version {version}, which this job does not know; it knows {VERSION}"
            raise JobFailed(f"{message}. Use the job that wrote them, or another --rollups")
        inputs, gap_inputs = (
            frozenset(Part(file["name"], file["size"]) for file in said[name]) for name in ("inputs", "gapInputs")
        )
        coverage = Coverage(*(said[name] for name in ("rows", "requests", "gapRows", "lostRows")))
        return cls(said["hour"], said["run"], inputs, gap_inputs, coverage)


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of an hour: new files of both datasets. `before` is the manifest they add to, None to start over."""

    hour: int
    before: StoredHour | None
    requests: list[InputFile] = field(default_factory=list)
    gaps: list[InputFile] = field(default_factory=list)


def change_of(hour: int, stored: StoredHour | None, requests: list[InputFile], gaps: list[InputFile]) -> Change | None:
    """Return the present files of an hour that its stored rows lack, None if there are none.

    Deleted files remain in the stored rows. An hour starts over when a new file contains rows that are stored already;
    if others of its stored files have been deleted, it stays as it is.
    """
    if stored is None:
        return Change(hour, None, requests, gaps) if requests or gaps else None
    new = [file for file in requests if not file.parts <= stored.inputs]
    new_gaps = [file for file in gaps if not file.parts <= stored.gap_inputs]
    if not new and not new_gaps:
        return None
    pairs = ((new, requests, stored.inputs), (new_gaps, gaps, stored.gap_inputs))
    if any(_names(came) & {part.name for part in known} for came, _, known in pairs):
        is_whole = all({part.name for part in known} <= _names(present) for _, present, known in pairs)
        return Change(hour, None, requests, gaps) if is_whole else None
    return Change(hour, stored, new, new_gaps)


def _names(files: Iterable[InputFile]) -> set[str]:
    return {part.name for file in files for part in file.parts}


class StoredHours:
    """The manifests below `root` and the directories that they name."""

    def __init__(self, spark: SparkSession, root: str, tables: Collection[str]) -> None:
        self._tables = tables
        self.file_system = FileSystem(spark, root)

    def read(self, hours: range) -> dict[int, StoredHour]:
        """Return the manifests of some hours, by hour. Raises JobFailed for one of an unknown version."""
        if not self.file_system.exists(_MANIFEST):
            return {}
        # Whole files at one moment: a manifest replaced meanwhile is the old one or the new one.
        found = self.file_system.find(f"{_MANIFEST}/date=*/[0-9]*.json", dates_of(hours), contents=True)
        where = f"{self.file_system.root}/{_MANIFEST}"
        manifests = [StoredHour.of_json(each.content.decode(), where) for each in found]
        return {each.hour: each for each in manifests if each.hour in hours}

    def write(self, stored: Iterable[StoredHour]) -> None:
        """Replace the manifests of these hours."""
        for each in stored:
            self.file_system.write(_manifest_of(each.hour), each.to_json() + "\n")

    def begin(self, hours: Iterable[int]) -> None:
        """Record the hours whose rows are about to be written."""
        self.file_system.write(_UNDER_WAY, json.dumps(sorted(hours)) + "\n")

    def clean_up(self) -> None:
        """Remove rows without a manifest: those of the current run and of killed ones."""
        if not self.file_system.exists(_UNDER_WAY):
            return
        hours = json.loads(self.file_system.read(_UNDER_WAY))
        counted = self.read(range(min(hours, default=0), max(hours, default=0) + 1))
        for table in self._tables:
            for name in self.file_system.names(table):
                if name.startswith(_STAGED):
                    self.file_system.remove(f"{table}/{name}")
            for hour in hours:
                stored = counted.get(hour)
                for name in self.file_system.names(f"{table}/{directory_of(hour)}"):
                    if stored is None or name != f"run={stored.run}":
                        self.file_system.remove(f"{table}/{directory_of(hour)}/{name}")
        self.file_system.remove(_UNDER_WAY)


def directory_of(hour: int) -> str:
    """Return the directory of an hour in a table."""
    time = to_datetime(hour * HOUR_US)
    return f"date={time:%Y-%m-%d}/hour={time.hour}"


def _manifest_of(hour: int) -> str:
    time = to_datetime(hour * HOUR_US)
    return f"{_MANIFEST}/date={time:%Y-%m-%d}/{time:%H}.json"
