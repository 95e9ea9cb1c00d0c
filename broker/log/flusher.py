"""The flusher: a background thread that makes logs durable, and writes the checkpoints of all logs.

Runs in handler processes. An fsync has no upper time limit, and would block the loop. So the owner describes the flush
(`FlushJob`: file names, and the end offset of the log in them), a thread that touches nothing else runs it, and the
owner records the result. A flusher has at most one thread, and none while nothing is due. Flushes that clients wait for
(`flush.messages`) are not run here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from rotunda.broker.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from rotunda.broker.log.segments.segment_files import SEGMENT_SUFFIXES, segment_file, sync_directory


class Job(Protocol):
    """A job of a flusher. It must not touch the owner's state. Raises OSError."""

    def run(self) -> None:
        """Run the job."""


Log = TypeVar("Log")
SomeJob = TypeVar("SomeJob", bound=Job)


class FlushJob(NamedTuple):
    """Segments to make durable, the last of them still active; they hold the whole log below ``end_offset``."""

    directory: Path
    bases: tuple[int, ...]
    end_offset: int

    def run(self) -> None:
        """Make segments, leader epochs and directory durable; deleted files are skipped. Raises OSError."""
        for base_offset in self.bases:
            for suffix in SEGMENT_SUFFIXES:
                _sync(segment_file(self.directory, base_offset, suffix))
        _sync(self.directory / EPOCHS_FILE)
        try:
            sync_directory(self.directory)
        except FileNotFoundError:
            return


class Flushed(NamedTuple, Generic[Log, SomeJob]):
    """A finished job, with its error."""

    log: Log
    job: SomeJob
    error: OSError | None


class Flusher(Generic[Log, SomeJob]):
    """The flusher of one handler. Each finished job is returned with its log."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._flushed: list[Flushed[Log, SomeJob]] = []

    @property
    def is_busy(self) -> bool:
        """Whether jobs are running, or finished and not collected."""
        return self._thread is not None

    def start(self, jobs: Sequence[tuple[Log, SomeJob]]) -> None:
        """Run jobs; only while the flusher is not busy."""
        self._thread = threading.Thread(target=self._run, args=(jobs,), name="flusher", daemon=True)
        self._thread.start()

    def finished(self, *, wait: bool = False) -> list[Flushed[Log, SomeJob]]:
        """Return the started jobs once all of them are finished; with ``wait``, block until then."""
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
