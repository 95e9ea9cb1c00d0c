"""Readers of a log whose segments are replaced or removed between any two of their system calls."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.ipc.segment_file_cache import SegmentFiles
from rotunda.broker.log.log_reader import FileSlice, LogReader
from rotunda.broker.records.record_batch import batch_headers
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.steps import finished
from tests.cleaner.keyed_log import KeyedLog
from tests.log.transaction_model import ABORT, marker_type
from tests.support.fakes import FakeClock
from tests.support.results import present

#: System calls of readers.
CALLS = ("open", "stat", "fstat", "pread", "preadv", "listdir", "scandir", "close")
KEYS = 5
ABORTING, COMMITTING, OPEN, PLAIN = 1, 2, 3, -1
MAX_BYTES = 500
#: In the segment of the stable offset; followed by a record that is longer than the part that compaction removes before
#: it.
EARLIER_STABLE = 34
LONG_RECORD = b"long", b"v" * 350
PLACES: dict[str, Callable[[int], int]] = {
    "start": lambda _: 0,
    "middle": lambda stable: stable // 2,
    "earlier stable offset": lambda _: EARLIER_STABLE,
}
CONFIG = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=1200, index_interval_bytes=80)


class Interruption:
    """Runs an action before one system call of a reader."""

    def __init__(self, at_call: int, action: Callable[[], object]) -> None:
        self._at_call = at_call
        self._action = action
        self._is_running = False
        self.calls = 0

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._is_running:
                self.calls += 1
                if self.calls == self._at_call:
                    self._is_running = True
                    self._action()
                    self._is_running = False
            return real(*args, **kwargs)

        return call


@contextmanager
def interrupted(at_call: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruption]:
    """Run `action` before system call number `at_call` of the block."""
    interruption = Interruption(at_call, action)
    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, interruption.wrap(getattr(os, name)))
        yield interruption


class Reading:
    """A log with committed, aborted and plain records in several segments, and a reader of it.

    `stable` and `end` are read once, as a Fetch reads them: later changes of the log do not change them.
    """

    def __init__(self, directory: Path, known: str) -> None:
        """`known`: the offsets that the reader has read before, none, or all below an earlier stable offset."""
        self.log = KeyedLog(directory, CONFIG, FakeClock())
        for number in range(21):
            self._append(number)
        # The stable offset lies inside a segment that is compacted as soon as this transaction has ended.
        self.log.append([(b"open", b"open")], producer_id=OPEN, transactional=True)
        for number in range(21, 30):
            self._append(number)
        self.log.roll()
        self._append(30)
        self.reader = LogReader(directory)
        self.files = SegmentFiles()
        self.stable, self.end = self.log.log.last_stable_offset, self.log.end()
        if known != "nothing":
            read_all(self, EARLIER_STABLE)

    def _append(self, number: int) -> None:
        log, producer_id = self.log, (ABORTING, COMMITTING, PLAIN)[number % 3]
        log.clock.advance_ms(1)
        offset = log.log.log_end_offset
        record = (b"%d" % (number % KEYS), b"%d" % offset) if offset != EARLIER_STABLE else LONG_RECORD
        if producer_id == PLAIN:
            log.append([record])
        else:
            log.append([record], producer_id=producer_id, transactional=True)
            log.end_transaction(producer_id, commit=producer_id == COMMITTING)

    def compact(self) -> None:
        """Replace the segments below the stable offset."""
        self.log.clean()

    def abort_and_compact(self) -> None:
        """Abort the open transaction, then replace every segment but the last."""
        self.log.end_transaction(OPEN, commit=False)
        self.log.clean()

    def delete(self) -> None:
        """Remove the older half of the segments below the stable offset."""
        self.log.log.delete_records_before(self.stable // 2)

    def locate(self, offset: int) -> FileSlice | None:
        """Find a slice with plain reads."""
        return self.reader.locate(offset, self.end, MAX_BYTES)

    def locate_committed(self, offset: int, stable: int) -> tuple[FileSlice | None, tuple[tuple[int, int], ...]]:
        """Find a slice of committed records, and the aborted transactions in it."""
        return self.reader.locate_committed(offset, stable, self.end, MAX_BYTES)

    def data(self, found: FileSlice) -> bytes:
        """Return the bytes of a slice, as they are sent."""
        return os.pread(self.files.open(os.fsdecode(found.path), found.inode).fd, found.length, found.position)

    def surviving(self) -> set[int]:
        """Return the offsets of the data records in the files."""
        return {record.offset for record in self.log.records()}

    def committed(self) -> set[int]:
        """Return the offsets of the written records of committed transactions, and of those without one."""
        return {each.offset for each in self.log.written if each.producer_id in (COMMITTING, PLAIN)}


def delivered(data: bytes, aborted: tuple[tuple[int, int], ...]) -> set[int]:
    """Return the offsets of the records that an application sees."""
    waiting = sorted((first, producer_id) for producer_id, first in aborted)
    dropped: set[int] = set()
    seen: set[int] = set()
    for at, header in batch_headers(data):
        batch = data[at : at + header.size_bytes]
        while waiting and waiting[0][0] <= header.last_offset:
            dropped.add(waiting.pop(0)[1])
        if header.is_control:
            if marker_type(batch) == ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            seen |= {record.offset for record in iterate_records(batch)}
    return seen


def read_all(reading: Reading, stable: int) -> None:
    """Read up to a stable offset both ways, so that every cache of the reader is filled."""
    offset = 0
    while offset < stable:
        found, _ = reading.locate_committed(offset, stable)
        assert found is not None
        reading.locate(offset)
        offset = found.next_offset


def at_every_call(
    directory: Path, action: str, read: Callable[[Reading], None], monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """Repeat a read on a log of its own, with the action before its first system call, its second, and so on."""
    for number in itertools.count(1):
        reading = Reading(directory / f"{number}", known)
        with interrupted(number, getattr(reading, action), monkeypatch) as interruption:
            read(reading)
        if interruption.calls < number:
            return


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that has logged a warning: a swap is not damage."""
    yield
    messages = [record.message for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert messages == []


every_knowledge = pytest.mark.parametrize("known", ["nothing", "all below an earlier stable offset"])


@every_knowledge
@pytest.mark.parametrize("action", ["compact", "abort_and_compact"])
@pytest.mark.parametrize("place", PLACES)
def test_a_committed_read_at_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, action: str, known: str
) -> None:
    """Its slice and its aborted transactions are of one file, the old or the new one, and end at the stable offset."""

    def read(reading: Reading) -> None:
        offset = PLACES[place](reading.stable)
        found, aborted = reading.locate_committed(offset, reading.stable)
        assert found is not None
        assert offset < found.next_offset <= reading.stable
        seen = delivered(reading.data(found), aborted) if found.length else set()
        kept = reading.surviving() & reading.committed()
        assert {each for each in kept if offset <= each < found.next_offset} <= seen <= reading.committed()

    at_every_call(tmp_path, action, read, monkeypatch, known)


@every_knowledge
@pytest.mark.parametrize("action", ["compact", "abort_and_compact"])
@pytest.mark.parametrize("place", PLACES)
def test_a_plain_read_at_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, action: str, known: str
) -> None:
    """Its slice is of one file and has every record that compaction preserves."""

    def read(reading: Reading) -> None:
        offset = PLACES[place](reading.stable)
        found = present(reading.locate(offset))
        assert offset < found.next_offset <= reading.end[0]
        seen = delivered(reading.data(found), ())
        assert {each for each in reading.surviving() if offset <= each < found.next_offset} <= seen

    at_every_call(tmp_path, action, read, monkeypatch, known)


@every_knowledge
@pytest.mark.parametrize("action", ["compact", "abort_and_compact"])
def test_a_look_up_by_time_at_a_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, known: str) -> None:
    """It finds a record that is there before or after the swap, and none too late."""

    def read(reading: Reading) -> None:
        written = reading.log.written[len(reading.log.written) // 3]
        found = present(finished(reading.reader.offset_for_timestamp(written.timestamp_ms, 0, reading.end)))
        later = [each.offset for each in reading.log.written if each.timestamp_ms >= written.timestamp_ms]
        assert later[0] <= found.offset <= min(each for each in reading.surviving() if each >= later[0])
        largest = present(finished(reading.reader.max_timestamp(0, reading.end)))
        assert largest.timestamp_ms == reading.log.written[-1].timestamp_ms

    at_every_call(tmp_path, action, read, monkeypatch, known)


@every_knowledge
@pytest.mark.parametrize("place", PLACES)
def test_reads_while_segments_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, known: str
) -> None:
    """A read below the new log start is out of range, or of a removed file that can still be sent."""

    def read(reading: Reading) -> None:
        offset = PLACES[place](reading.stable)
        plain = reading.locate(offset)
        found, aborted = reading.locate_committed(offset, reading.stable)
        start = reading.log.log.log_start_offset
        if plain is None or found is None:
            assert offset < start
        if plain is not None:
            assert delivered(reading.data(plain), ())
        if found is not None:
            assert delivered(reading.data(found), aborted) <= reading.committed()
            assert found.next_offset <= reading.stable
        written = reading.log.written[-1]
        by_time = present(finished(reading.reader.offset_for_timestamp(written.timestamp_ms, 0, reading.end)))
        assert by_time.offset == written.offset

    at_every_call(tmp_path, "delete", read, monkeypatch, known)
