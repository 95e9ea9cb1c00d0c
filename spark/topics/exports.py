"""The output directory of a topic's export: runs that appear whole, each with the offsets that it covers.

A run writes into a directory below `staged/` and then renames it to `records/run=N`, its offsets included: one rename
makes files and offsets visible together. A killed run leaves only `staged/`, which the next run removes. Its executors
may outlive it for a while, so each attempt has a directory of its own. The next run begins where the newest one ends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem

RECORDS, STAGED = "records", "staged"
#: A hidden name, so that readers of the records do not treat it as data.
OFFSETS = "_offsets.json"
VERSION = 1
_RUN = re.compile(r"run=(\d+)")
_ATTEMPT = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Exported:
    """The offsets of a committed run: the next one of each partition. Run 0 is an empty output.

    `columns` is the schema of the values' JSON fields, empty without; `leader_epochs` are the newest of each partition.
    """

    run: int
    topic_id: str
    offsets: Mapping[int, int]
    columns: str = ""
    leader_epochs: Mapping[int, int] = field(default_factory=dict)

    def to_json(self, topic: str, start: Mapping[int, int], records: int) -> str:
        """Return the text of the run's file."""
        ranges = {str(number): [start.get(number, end), end] for number, end in sorted(self.offsets.items())}
        epochs = {str(number): epoch for number, epoch in sorted(self.leader_epochs.items())}
        said = {"version": VERSION, "topic": topic, "topicId": self.topic_id, "records": records, "offsets": ranges}
        return json.dumps({**said, "columns": self.columns, "leaderEpochs": epochs}, indent=1) + "\n"


class Exports:
    """The runs in an output directory. One process at a time writes them."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._attempt = ""
        self.records = f"{file_system.root}/{RECORDS}"

    def last(self) -> Exported:
        """Return the newest run. Raises JobFailed for an unreadable file, or one of an unknown version."""
        runs = [int(found[1]) for name in self._file_system.names(RECORDS) if (found := _RUN.fullmatch(name))]
        if not runs:
            return Exported(0, "", {})
        name = f"{_path_of(max(runs))}/{OFFSETS}"
        where = f"{self._file_system.root}/{name}"
        if not self._file_system.exists(name):
            raise JobFailed(f"{where} is missing: the newest run must keep it, because the next one begins there")
        try:
            said: dict[str, Any] = json.loads(self._file_system.read(name))
            if said["version"] != VERSION:
                raise JobFailed(f"{where} has version {said['version']}, which this job does not know")
            offsets = {int(partition): int(ends[1]) for partition, ends in said["offsets"].items()}
            epochs = {int(partition): int(epoch) for partition, epoch in said.get("leaderEpochs", {}).items()}
            return Exported(max(runs), said["topicId"], offsets, said["columns"], epochs)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            message = f"{where} has no offsets of an export; restore it, or export everything again into another"
            raise JobFailed(f"{message} --output") from None

    @property
    def staged(self) -> str:
        """The directory of the current attempt."""
        return f"{self._file_system.root}/{self._attempt}"

    def begin(self) -> None:
        """Begin an attempt, and remove the files of failed ones and of killed runs, nothing else."""
        for name in filter(_ATTEMPT.fullmatch, self._file_system.names(STAGED)):
            self._file_system.remove(f"{STAGED}/{name}")
        self._attempt = f"{STAGED}/{uuid4().hex}"

    def commit(self, run: int, text: str) -> None:
        """Make the staged files and these offsets visible. Raises JobFailed."""
        try:
            self._commit(run, text)
        except (OSError, Py4JJavaError) as error:
            cause = error.strerror if isinstance(error, OSError) else error.java_exception.getMessage()
            raise JobFailed(f"run {run} cannot be stored in {self.records}: {cause}; run it again") from error

    def _commit(self, run: int, text: str) -> None:
        self._file_system.remove(f"{self._attempt}/_SUCCESS")
        self._file_system.write(f"{self._attempt}/{OFFSETS}", text)
        self._file_system.make_directory(RECORDS)
        local = self._file_system.local_path
        if local is not None:
            _sync(local / self._attempt)
        if not self._file_system.rename(self._attempt, _path_of(run)):
            raise JobFailed(f"{self.staged} cannot be renamed to {self.records}/{_name_of(run)}")
        if local is not None:
            _sync_one(local / RECORDS)


def _name_of(run: int) -> str:
    return f"run={run:08}"


def _path_of(run: int) -> str:
    return f"{RECORDS}/{_name_of(run)}"


def _sync(directory: Path) -> None:
    """Make a directory with its content durable."""
    for path in [directory, *directory.rglob("*")]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
