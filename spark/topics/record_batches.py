"""The records of a span of offsets as Arrow record batches. Runs in the executors, on files that the broker writes.

Reads as a consumer with isolation level read_committed does: neither control batches nor records of aborted
transactions. Memory holds one slice of a segment file, one uncompressed batch and one Arrow batch.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from rotunda.broker.errors import ApiError
from rotunda.broker.log.checkpoints import CLEANER_FILE, CheckpointCorruptError, read_offsets
from rotunda.broker.log.log_reader import ATTEMPTS, FileSlice, LogReader
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, offsets_of, segment_file
from rotunda.broker.log.segments.segment_scan import scan_headers
from rotunda.broker.log.segments.segment_walk import SegmentWalk
from rotunda.broker.records.record_batch import BatchHeader, batch_headers, crc_ok
from rotunda.broker.records.record_reader import Record, iterate_records
from rotunda.broker.records.record_writer import read_marker
from rotunda.spark.topics.topic_log import Span

#: The columns of a record as Spark names them.
SCHEMA: Final = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp, "
    "offset bigint, partition int"
)
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Bytes of a segment file that are read at a time, one batch at least.
_SLICE_BYTES: Final = 4 << 20
#: Size of an Arrow batch, whichever is reached first.
_ROWS, _ROWS_BYTES = 10_000, 8 << 20
#: Largest batch, uncompressed.
_MOST_BATCH_BYTES: Final = 1 << 30
_MOST_TIME_MS: Final = (2**63 - 1) // 1000
_NO_TIMESTAMP: Final = -1
_NO_OFFSET: Final = 2**63


class RecordsChanged(Exception):  # noqa: N818 - the driver looks for this name
    """Records of a span were deleted or replaced while they were read: plan again."""


class RecordsUnreadable(Exception):  # noqa: N818 - the driver looks for this name
    """A batch is corrupt."""


def read_spans(spans: Sequence[Span], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the spans with these numbers: a function for Spark's `mapInArrow`."""
    for each in numbers:
        for number in each.column(0).to_pylist():
            yield from read_span(spans[number])


def read_span(span: Span) -> Iterator[pa.RecordBatch]:
    """Yield the records of a span. Raises RecordsChanged, RecordsUnreadable."""
    try:
        _check_segment(span)
    except FileNotFoundError as error:
        raise RecordsChanged(f"{error.filename} was deleted") from None
    records: list[Record] = []
    size_bytes = 0
    for found in _batches(span):
        records += found
        size_bytes += _size_of(found)
        if len(records) >= _ROWS or size_bytes >= _ROWS_BYTES:
            yield _to_arrow(records, span.partition)
            records, size_bytes = [], 0
    if records:
        yield _to_arrow(records, span.partition)


def _check_segment(span: Span) -> None:
    """Check that whole batches follow one another to the end of the span or of its file.

    A search skips an unreadable rest of a file. Raises RecordsUnreadable, FileNotFoundError.
    """
    directory = Path(span.directory)
    bases = offsets_of(directory, LOG_SUFFIX)
    number = max(bisect_right(bases, span.start) - 1, 0)
    if not bases:
        raise FileNotFoundError(errno.ENOENT, "no segment", span.directory)
    is_last = number + 1 == len(bases)
    following = _NO_OFFSET if is_last else bases[number + 1]
    path = segment_file(directory, bases[number], LOG_SUFFIX)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size_bytes = os.fstat(fd).st_size
        walk = SegmentWalk(directory, bases[number], fd, size_bytes)
        end = walk.position_of(span.start) if span.start > bases[number] else 0
        offset = bases[number]
        for position, header in scan_headers(fd, end, size_bytes):
            if not offset <= header.base_offset <= header.last_offset < following:
                break
            end, offset = position + header.size_bytes, header.last_offset + 1
            if offset >= span.stop:
                return
    finally:
        os.close(fd)
    if end < size_bytes or is_last:
        raise RecordsUnreadable(f"{path}: no readable batch from offset {offset} on, at byte {end}")
    if offset < following and not _is_compacted(directory):
        first = max(offset, span.start)
        raise RecordsUnreadable(
            f"{directory}: the segment file with offsets {first} to {following - 1} is missing; "
            f"--offsets {span.partition}:{following}:{span.high_watermark} exports the later records"
        )


def _is_compacted(directory: Path) -> bool:
    """Return whether offsets of a partition may be missing: its first compaction has begun. Raises RecordsUnreadable.

    The cleaner records that before it removes the first record, so look after a missing offset was found.
    """
    topic, _, partition = directory.name.rpartition("-")
    try:
        return (topic, int(partition)) in read_offsets(directory.parent / CLEANER_FILE)
    except CheckpointCorruptError as error:
        raise RecordsUnreadable(f"unreadable checkpoint: {error}; the next compaction replaces it") from None


def _size_of(records: list[Record]) -> int:
    _, _, keys, values, _ = zip(*records, strict=True)
    return sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))


def _to_arrow(records: list[Record], partition: int) -> pa.RecordBatch:
    offsets, times_ms, keys, values, headers = zip(*records, strict=True)
    times = np.array(times_ms, np.int64)
    times_us = np.clip(times, -_MOST_TIME_MS, _MOST_TIME_MS) * 1000
    try:
        found_headers = pa.array(headers, _HEADERS)
    except UnicodeEncodeError:
        # Keys of headers that are not UTF-8: as Kafka's clients decode them.
        found_headers = pa.array([[(_as_text(key), value) for key, value in each] for each in headers], _HEADERS)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": found_headers,
        "timestamp": pa.array(times_us, pa.int64(), mask=times == _NO_TIMESTAMP).cast(_TIMESTAMP),
        "offset": pa.array(np.array(offsets, np.int64)),
        "partition": pa.array(np.full(len(records), partition, np.int32)),
    }
    return pa.RecordBatch.from_pydict(columns)


def _as_text(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _batches(span: Span) -> Iterator[list[Record]]:
    """Yield the records of each batch with records in a span."""
    for data, aborted in _slices(span):
        pending = deque(sorted(aborted, key=lambda each: each[1]))
        aborted_producers: set[int] = set()
        for position, header in batch_headers(data):
            if header.base_offset >= span.stop:
                return
            while pending and pending[0][1] <= header.last_offset:
                aborted_producers.add(pending.popleft()[0])
            batch = data[position : position + header.size_bytes]
            if not crc_ok(batch, header):
                raise RecordsUnreadable(f"{span.directory}: wrong checksum of the batch at offset {header.base_offset}")
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.commit:
                    aborted_producers.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted_producers):
                records = _records_of(batch, header, span)
                if records:
                    yield records


def _records_of(batch: memoryview, header: BatchHeader, span: Span) -> list[Record]:
    try:
        records = list(iterate_records(batch, _MOST_BATCH_BYTES))
    except ApiError as error:
        message = f"{span.directory}: the batch at offset {header.base_offset}: {error.message}"
        raise RecordsUnreadable(message) from error
    if header.base_offset < span.start or header.last_offset >= span.stop:
        return [record for record in records if span.start <= record.offset < span.stop]
    return records


def _slices(span: Span) -> Iterator[tuple[memoryview, tuple[tuple[int, int], ...]]]:
    """Yield slices of whole batches with the aborted transactions in them, as the broker finds them for a fetch."""
    reader = LogReader(Path(span.directory))
    offset, attempts = span.start, 0
    while offset < span.stop:
        try:
            found, aborted = reader.locate_committed(offset, span.stable, _end_of(span), _SLICE_BYTES)
            if found is None:
                raise FileNotFoundError(span.directory)
            data = _read(found)
        except FileNotFoundError:
            attempts += 1
            if attempts == ATTEMPTS:
                raise RecordsChanged(f"{span.directory}: records from offset {offset} on were deleted") from None
            reader.forget()
            continue
        if not found.length:
            return
        yield data, aborted
        offset = found.next_offset


def _end_of(span: Span) -> tuple[int, int, int]:
    """Return the high watermark, the base offset of its segment, and that file's size. Raises FileNotFoundError.

    The file may be longer than its part below the high watermark: batches beyond the span are ignored.
    """
    bases = offsets_of(Path(span.directory), LOG_SUFFIX)
    number = bisect_right(bases, max(span.high_watermark - 1, span.start)) - 1
    if number < 0:
        raise FileNotFoundError(span.directory)
    base = bases[number]
    return span.high_watermark, base, segment_file(Path(span.directory), base, LOG_SUFFIX).stat().st_size


def _read(found: FileSlice) -> memoryview:
    """Return the bytes of a slice. Raises FileNotFoundError when another file has replaced it."""
    if not found.length:
        return memoryview(b"")
    fd = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_ino != found.inode:
            raise FileNotFoundError(os.fsdecode(found.path))
        return memoryview(os.pread(fd, found.length, found.position))
    finally:
        os.close(fd)
