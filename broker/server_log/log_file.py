"""The log file of a broker that runs in the background: its path, when it is full, and its rotation.

Standard output and standard error of every process are this file, so that all output is in it: a process that opens
another file replaces both descriptors in one step. Each line is appended by a single system call, so processes need no
lock. Only the supervisor renames the file, to `broker.log.1` and so on, and signals every child to reopen the name;
lines written until then are in the old file and not lost. The process that fills the file wakes the supervisor, which
otherwise never checks.

The age of the file is that of its first line, by its time: so it counts over restarts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_STDOUT, _STDERR = 1, 2
_MODE = 0o600
_NEVER = -1
_FIRST_LINE_BYTES = 64
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class LogFile:
    """The file at `path`. Limits: bytes and age in ms, -1 for none; `kept_files` older ones remain."""

    def __init__(self, path: Path, max_bytes: int, max_age_ms: int, kept_files: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self.kept_files = kept_files
        self._begun_ms: int | None = None

    def open(self) -> None:
        """Open the file that has the name now as this process's standard output and error. Raises OSError."""
        is_newest = False
        while not is_newest:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
            for target in (_STDOUT, _STDERR):
                os.dup2(fd, target)
            os.close(fd)
            # A signal for a newer file may have been handled between any two of these lines.
            with suppress(FileNotFoundError):
                is_newest = os.path.samestat(self.path.stat(), os.fstat(_STDERR))
        self._begun_ms = None

    def is_full(self) -> bool:
        """Return whether this process's file has reached its size."""
        return self._max_bytes != _NEVER and os.fstat(_STDERR).st_size >= self._max_bytes

    def is_old(self, now_ms: int) -> bool:
        """Return whether the first line is older than the greatest age."""
        begun_ms = self._begin()
        return begun_ms is not None and now_ms >= begun_ms + self._max_age_ms

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long until the file is old; None if that is never, or it is empty."""
        begun_ms = self._begin()
        return None if begun_ms is None else max(0, begun_ms + self._max_age_ms - now_ms)

    def rotate(self) -> None:
        """Supervisor: rename the file to the next older name, delete the oldest, begin a new one. Raises OSError."""
        for number in range(self.kept_files, 1, -1):
            with suppress(FileNotFoundError):
                self._older(number - 1).replace(self._older(number))
        if self.kept_files:
            self._older(1).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self._older(1).hardlink_to(self.path)
        # A program that follows the file by its name finds one at any moment.
        successor = self.path.with_name(f"{self.path.name}.new")
        successor.touch(_MODE)
        successor.replace(self.path)
        self.open()

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _begin(self) -> int | None:
        """Return the time of the first line, in ms; None where no age counts or there is no line with a time."""
        if self._max_age_ms == _NEVER:
            return None
        if self._begun_ms is None:
            with suppress(OSError, ValueError), self.path.open("rb") as file:
                found = _TIME.search(file.read(_FIRST_LINE_BYTES))
                if found is not None:
                    begin = datetime.fromisoformat(found[0].decode()).replace(tzinfo=UTC)
                    self._begun_ms = int(begin.timestamp() * 1000)
        return self._begun_ms


class LogOutput(NamedTuple):
    """The format of a broker's lines, one of `log_setup.FORMATS`, and their file.

    Without a file they are written to the broker's standard error.
    """

    line_format: str = "text"
    file: LogFile | None = None


class FullLogBell:
    """Called after each line: rings when the line has filled the file."""

    def __init__(self, log_file: LogFile, ring: Callable[[], None]) -> None:
        self._log_file = log_file
        self._ring = ring

    def __call__(self) -> None:
        """Ring if the file is full."""
        if self._log_file.is_full():
            self._ring()
