"""The records inside a batch: the slow way, for the few answers that cannot be read off batch headers.

Handlers use it for one batch at a time, to find the record at a timestamp; never on the way of Produce or
Fetch.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.errors import ApiError
from broker.protocol.compression import decompress
from broker.protocol.primitives import Buffer
from broker.protocol.records import BATCH_HEADER_BYTES, BatchHeader, read_header

_CORRUPT_MESSAGE: Final = 2
_VARLONG_MAX_BITS: Final = 63
#: How a length of -1 looks.
_NULL_LENGTH: Final = 1


class Record(NamedTuple):
    """One record. `headers` are pairs of key and value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def uncompressed_records(batch: Buffer, header: BatchHeader) -> bytes:
    """Return what stands behind the header of one whole batch, uncompressed. ApiError 2 when it cannot be read."""
    return decompress(header.codec, bytes(batch[BATCH_HEADER_BYTES : header.size_bytes]))


def iterate_records(batch: Buffer) -> Iterator[Record]:
    """Yield the records of one whole batch in order. ApiError 2 when they cannot be read."""
    header = read_header(batch)
    if header is None or header.size_bytes > len(batch):
        raise ApiError(_CORRUPT_MESSAGE, "batch is cut off")
    try:
        data = uncompressed_records(batch, header)
        for start in _starts(data, header.record_count):
            yield _read_record(header, data, start)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def records_without_key(batch: Buffer, header: BatchHeader) -> Iterator[int]:
    """Yield the batch index of each record of one whole batch that has no key. ApiError 2 when they cannot be read.

    Every batch of a compacted topic is asked this, offset commits among them: nothing but the keys' lengths is read.
    """
    try:
        data = uncompressed_records(batch, header)
        for index, start in enumerate(_starts(data, header.record_count)):
            offset = start + 1  # behind the record's attributes
            while data[offset] >= 0x80:  # timestamp delta
                offset += 1
            offset += 1
            while data[offset] >= 0x80:  # offset delta
                offset += 1
            if data[offset + 1] == _NULL_LENGTH:
                yield index
    except (struct.error, IndexError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def record_timestamps(batch: Buffer, header: BatchHeader) -> Iterator[int]:
    """Yield the time (ms) that its producer gave each record of one whole batch. ApiError 2 when it cannot be read."""
    try:
        data = uncompressed_records(batch, header)
        for start in _starts(data, header.record_count):
            delta, _ = _read_varlong(data, start + 1)  # behind the record's attributes
            yield header.base_timestamp + delta
    except (struct.error, IndexError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def _starts(data: bytes, count: int) -> Iterator[int]:
    """Yield where each record begins behind its length, all of which must be there."""
    offset = 0
    for _ in range(count):
        length, start = _read_varlong(data, offset)
        offset = start + length
        if length < 0 or offset > len(data):
            raise ApiError(_CORRUPT_MESSAGE, f"record of {length} bytes where {len(data) - start} are left")
        yield start


def _read_record(header: BatchHeader, data: bytes, offset: int) -> Record:
    offset += 1  # the record's attributes, of which none is defined
    timestamp_delta, offset = _read_varlong(data, offset)
    offset_delta, offset = _read_varlong(data, offset)
    key, offset = _read_bytes(data, offset)
    value, offset = _read_bytes(data, offset)
    count, offset = _read_varlong(data, offset)
    headers = []
    for _ in range(count):
        header_key, offset = _read_bytes(data, offset)
        header_value, offset = _read_bytes(data, offset)
        headers.append(((header_key or b"").decode(), header_value))
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _read_varlong(data: bytes, offset: int) -> tuple[int, int]:
    """Return a signed integer, zigzag coded in bytes of 7 bits."""
    raw = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), offset
        shift += 7
        if shift > _VARLONG_MAX_BITS:
            raise ApiError(_CORRUPT_MESSAGE, "varint longer than 10 bytes")


def _read_bytes(data: bytes, offset: int) -> tuple[bytes | None, int]:
    length, offset = _read_varlong(data, offset)
    if length < 0:
        return None, offset
    stop = offset + length
    if stop > len(data):
        raise ApiError(_CORRUPT_MESSAGE, f"field of {length} bytes where {len(data) - offset} are left")
    return data[offset:stop], stop
