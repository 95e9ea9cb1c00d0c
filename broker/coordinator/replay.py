"""Reading an internal topic's partition back, so that its coordinator knows what its predecessor had committed.

Runs in the handler that owns the partition, before it answers anything for it. Everything a coordinator remembers is
rebuilt from here; what is not in the log was never promised.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from broker.log.log_reader import End, LogReader
from broker.protocol.record_reader import iterate_records
from broker.protocol.records import BATCH_HEADER_BYTES, BatchHeader, read_header

_CHUNK_BYTES = 4 * 1024 * 1024


class Replayer(Protocol):
    """What takes the records of a partition, oldest first. ``producer_id`` is -1 outside of transactions."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int, timestamp_ms: int) -> None:
        """Take one record; no value means that the key has been deleted."""

    def replay_marker(self, producer_id: int, *, commit: bool) -> None:
        """Take the end of a producer's transaction."""

    def loaded(self) -> None:
        """Take note that everything has been read."""


def replay_partition(directory: Path, start_offset: int, end: End, replayer: Replayer) -> int:
    """Read a partition from ``start_offset`` to its end; return the number of records.

    Raises ApiError or OSError when it cannot be read.
    """
    reader = LogReader(directory)
    offset, records = start_offset, 0
    while offset < end[0]:
        found = reader.locate(offset, end, _CHUNK_BYTES, min_one_batch=True)
        if found is None or found.length == 0:
            break
        data = _read(found.path, found.position, found.length)
        records += _replay_batches(data, replayer)
        offset = found.next_offset
    replayer.loaded()
    return records


def _read(path: bytes, position: int, length: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, position)
    finally:
        os.close(fd)


def _replay_batches(data: bytes, replayer: Replayer) -> int:
    view = memoryview(data)
    position = records = 0
    while len(view) - position >= BATCH_HEADER_BYTES:
        batch = view[position:]
        header = read_header(batch)
        if header is None or header.size_bytes > len(batch):
            break
        records += _replay_batch(batch[: header.size_bytes], header, replayer)
        position += header.size_bytes
    return records


def _replay_batch(batch: memoryview, header: BatchHeader, replayer: Replayer) -> int:
    if header.is_control:
        for record in iterate_records(batch):
            # The key of a marker: version, then 0 for abort and 1 for commit.
            replayer.replay_marker(header.producer_id, commit=(record.key or bytes(4))[3] == 1)
        return 1
    producer_id = header.producer_id if header.is_transactional else -1
    count = 0
    for record in iterate_records(batch):
        if record.key is not None:
            replayer.replay(record.key, record.value, producer_id, record.timestamp_ms)
        count += 1
    return count
