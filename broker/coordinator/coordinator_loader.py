"""Loads a partition of an internal topic: applies its records to its coordinator's memory.

Runs in the handler that owns the partition, before it serves any request for it, in steps: there may be many records,
and other requests are served meanwhile. A malformed record was not written by a coordinator: any client that calls
itself an admin client may write to an internal topic. It is skipped, and the others are applied.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rotunda.broker.errors import ApiError
from rotunda.broker.log.log_reader import End, LogReader
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, BatchHeader, read_header
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import read_marker
from rotunda.broker.steps import Steps

_CHUNK_BYTES = 1024 * 1024

#: Records between two steps: about a millisecond.
RECORDS_AT_ONCE = 128

#: The approximate size of a member in its group's record; it needs as long to apply as a record.
_MEMBER_BYTES = 128


class Replayer(Protocol):
    """The memory of one partition. Records are applied oldest first; ``producer_id`` is -1 outside of transactions."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
        """Apply one record, a long one in steps; no value deletes the key."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the marker of a producer's transaction."""

    def loaded(self) -> Steps[None]:
        """Start the coordination after all records have been applied."""


class Replayed:
    """The result of loading a partition: the number of applied records, and of skipped ones."""

    __slots__ = ("first_left_out", "left_out", "records", "since_step")

    def __init__(self) -> None:
        self.records = 0
        #: Records since the last step; long ones count as several.
        self.since_step = 0
        #: Skipped records, or batches that cannot be read.
        self.left_out = 0
        #: The offset of the first skipped record, and the reason.
        self.first_left_out: tuple[int, str] | None = None

    def leave_out(self, offset: int, error: Exception) -> None:
        """Count a malformed record or batch at an offset."""
        self.left_out += 1
        if self.first_left_out is None:
            self.first_left_out = offset, str(error) or repr(error)


def replay_partition(
    directory: Path, start_offset: int, end_now: Callable[[], End], replayer: Replayer
) -> Steps[Replayed]:
    """Load a partition from ``start_offset`` to its end, which may move meanwhile as markers are appended.

    Raises OSError when its files cannot be read to the end.
    """
    reader = LogReader(directory)
    offset, replayed = start_offset, Replayed()
    while offset < (end := end_now())[0]:
        found = reader.locate(offset, end, _CHUNK_BYTES, min_one_batch=True)
        if found is None or found.length == 0:
            # A partly loaded partition would lose committed offsets.
            raise FileNotFoundError(errno.ENOENT, f"no record at offset {offset} of {end[0]}", str(directory))
        data = _read(found.path, found.position, found.length)
        if len(data) != found.length:
            raise OSError(errno.EIO, f"{len(data)} bytes of {found.length} could be read", os.fsdecode(found.path))
        yield from _replay_batches(data, offset, replayer, replayed)
        offset = found.next_offset
    yield from replayer.loaded()
    return replayed


def _read(path: bytes, position: int, length: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(fd, length, position)
    finally:
        os.close(fd)


def _replay_batches(data: bytes, offset: int, replayer: Replayer, replayed: Replayed) -> Steps[None]:
    """Apply whole batches; the first one contains ``offset``."""
    view = memoryview(data)
    position = 0
    while len(view) - position >= BATCH_HEADER_BYTES:
        batch = view[position:]
        header = read_header(batch)
        if header is None or header.size_bytes > len(batch):
            size_bytes = len(batch)
            replayed.leave_out(offset, ValueError(f"invalid batch: skipped {size_bytes} bytes"))
            return
        offset = header.last_offset + 1
        batch = batch[: header.size_bytes]
        try:
            if header.is_control:
                _replay_marker(batch, header, replayer, replayed)
            else:
                yield from _replay_records(batch, header, replayer, replayed)
        except ApiError as error:
            replayed.leave_out(header.base_offset, error)
        position += header.size_bytes


def _replay_marker(batch: memoryview, header: BatchHeader, replayer: Replayer, replayed: Replayed) -> None:
    marker = read_marker(batch)
    if marker is not None:
        replayer.end_transaction(header.producer_id, commit=marker.commit)
        replayed.records += 1


def _replay_records(batch: memoryview, header: BatchHeader, replayer: Replayer, replayed: Replayed) -> Steps[None]:
    """Apply the records of a batch. ApiError 2 if they cannot be read from some record on."""
    producer_id = header.producer_id if header.is_transactional else -1
    for record in iterate_records(batch):
        if record.key is not None:
            try:
                steps = replayer.replay(record.key, record.value, producer_id)
                if steps is not None:
                    yield from steps
            except Exception as error:
                replayed.leave_out(record.offset, error)
                continue
        replayed.records += 1
        replayed.since_step += 1 + len(record.value or b"") // _MEMBER_BYTES
        if replayed.since_step >= RECORDS_AT_ONCE:
            replayed.since_step = 0
            yield
