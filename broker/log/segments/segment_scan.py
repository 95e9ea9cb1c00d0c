"""Scans the batches of a log file with reads, never with a mapping: a disk error is then an OSError and no signal.

Used by the owner (recovery, replay of producer state) and by readers (from an index entry to the target batch).
"""

import os
from collections.abc import Iterator

from rotunda.broker.records.record_batch import (
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    RawHeader,
    batch_headers,
    crc_ok,
    read_header,
    unpack_header,
)
from rotunda.broker.records.record_writer import EndTransactionMarker, read_marker

#: Bytes that are read at a time for headers only, and for every byte.
HEADER_CHUNK_BYTES = 64 * 1024
VERIFY_CHUNK_BYTES = 4 * 1024 * 1024
#: Enough for one index interval of small batches.
_ENTRY_CHUNK_BYTES = 8 * 1024


def scan_headers(
    fd: int, position: int, end: int, chunk_bytes: int = HEADER_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the whole batches in [position, end) of a file, without verifying checksums.

    Stops before a batch that is torn or invalid. The bodies are not examined, and mostly not even read.
    """
    for at, header, _, _ in _scan(fd, position, end, chunk_bytes):
        yield at, BatchHeader._make(header)


def scan_markers(fd: int, position: int, end: int) -> Iterator[tuple[RawHeader, EndTransactionMarker | None]]:
    """Yield the same headers as `scan_headers`, each with its transaction marker, if it has one.

    A turn of the owner may scan thousands: bytes in memory are not read again.
    """
    for at, header, chunk, start in _scan(fd, position, end, HEADER_CHUNK_BYTES):
        if not header[5] & CONTROL_BIT:
            yield header, None
            continue
        size = header[1] + LOG_OVERHEAD_BYTES
        batch = chunk[start : start + size]
        yield header, read_marker(batch if len(batch) == size else os.pread(fd, size, at))


def _scan(fd: int, position: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, RawHeader, bytes, int]]:
    """Yield (position, header, the chunk read, position of the batch in the chunk)."""
    while end - position >= BATCH_HEADER_BYTES:
        chunk = os.pread(fd, min(chunk_bytes, end - position), position)
        start, last_start = 0, len(chunk) - BATCH_HEADER_BYTES
        while start <= last_start:
            header = unpack_header(chunk, start)
            size = header[1] + LOG_OVERHEAD_BYTES
            if header[3] != MAGIC or size < BATCH_HEADER_BYTES or position + start + size > end:
                return
            yield position + start, header, chunk, start
            start += size
        if not start:
            return
        position += start


def has_largest(fd: int, position: int, end: int, timestamp_ms: int, offset: int) -> bool:
    """Return whether the batch with `offset`, at `position` or later, has this largest timestamp.

    Every intact entry of a time index satisfies this.
    """
    for _, header in scan_headers(fd, position, end, _ENTRY_CHUNK_BYTES):
        if header.last_offset >= offset:
            return header.base_offset <= offset and header.max_timestamp == timestamp_ms
    return False


def scan_verified(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the whole batches in [position, end) with valid checksums.

    Stops before the first batch that is torn, invalid or corrupt.
    """
    chunk_bytes = VERIFY_CHUNK_BYTES
    while end - position >= BATCH_HEADER_BYTES:
        chunk = memoryview(os.pread(fd, min(chunk_bytes, end - position), position))
        start = 0
        for batch_position, header in batch_headers(chunk):
            size = header.batch_length + LOG_OVERHEAD_BYTES
            if not crc_ok(chunk[batch_position : batch_position + size], header):
                return
            yield position + batch_position, header
            start = batch_position + size
        if not start:
            chunk_bytes = _size_of_first(chunk)
            if chunk_bytes <= len(chunk) or position + chunk_bytes > end:
                return
            continue
        position += start
        chunk_bytes = VERIFY_CHUNK_BYTES


def _size_of_first(chunk: memoryview) -> int:
    """Return the size in the header at the start of `chunk`, or 0 if it is not a batch header."""
    header = read_header(chunk)
    if header is None or header.magic != MAGIC:
        return 0
    return header.batch_length + LOG_OVERHEAD_BYTES


def marker_at(fd: int, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the transaction marker in the control batch at `position`; None if it is another control batch."""
    return read_marker(os.pread(fd, header.size_bytes, position))
