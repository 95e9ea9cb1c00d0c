"""The flusher: a thread beside the loop that makes logs durable, and writes checkpoints of all of them.

Runs in handler processes. An fsync takes as long as the disk likes, and the loop serves nobody meanwhile. So what is to
be done is written down by the owner (`FlushJob`: files by name, and the offset up to which they hold the log), done
by a thread that touches nothing else, and taken note of by the owner when it is done. A flusher has one thread at a
time, and none while nothing is due. What clients wait for (`flush.messages`) is not done here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from rotunda.broker.log.segments.segment_files import SEGMENT_SUFFIXES, segment_file, sync_directory


class Job(Protocol):
    """What a flusher does, without touching what its owner works with. Raises OSError."""

    def run(self) -> None:
        """Do it."""


Log = TypeVar("Log")
SomeJob = TypeVar("SomeJob", bound=Job)


class FlushJob(NamedTuple):
    """Segments to make durable, the last of which is still appended to; below ``end_offset`` they hold all there is."""

    directory: Path
    bases: tuple[int, ...]
    end_offset: int

    def run(self) -> None:
        """Make the segments and their names durable; what is gone by now needs no more. Raises OSError."""
        for base_offset in self.bases:
            for suffix in SEGMENT_SUFFIXES:
                _sync(segment_file(self.directory, base_offset, suffix))
        try:
            sync_directory(self.directory)
        except FileNotFoundError:
            return


class Flushed(NamedTuple, Generic[Log, SomeJob]):
    """A job that is done, or what was in its way."""

    log: Log
    job: SomeJob
    error: OSError | None


class Flusher(Generic[Log, SomeJob]):
    """One handler's; a job comes back with the log that it was begun for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._flushed: list[Flushed[Log, SomeJob]] = []

    @property
    def is_busy(self) -> bool:
        """Whether jobs are under way, or done and not taken."""
        return self._thread is not None

    def start(self, jobs: Sequence[tuple[Log, SomeJob]]) -> None:
        """Do jobs; not while others are under way."""
        self._thread = threading.Thread(target=self._run, args=(jobs,), name="flusher", daemon=True)
        self._thread.start()

    def take(self, *, wait: bool = False) -> list[Flushed[Log, SomeJob]]:
        """Return the jobs that have been started, once all of them are done; ``wait`` for that."""
        thread = self._thread
        if thread is None or (thread.is_alive() and not wait):
            return []
        thread.join()
        self._thread = None
        done, self._flushed = self._flushed, []
        return done

    def _run(self, jobs: Sequence[tuple[Log, SomeJob]]) -> None:
        for log, job in jobs:
            error = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            self._flushed.append(Flushed(log, job, error))


def _sync(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
