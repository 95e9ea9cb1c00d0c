"""The records inside a batch: the slow path, for the few lookups that need more than batch headers.

Handlers use it for one batch at a time, to find the record at a timestamp or to validate batches for a compacted topic;
otherwise Produce and Fetch never use it. Nothing in a batch's header is trusted: a record at a wrong position is
corrupt, and a reader that has found its record decompresses no more.

Records in the usual form are read by `broker/native/record_reader.c` where it is built; its twin is the reading of one
record here, which also raises the exceptions.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rotunda.broker.errors import ApiError
from rotunda.broker.native import compiled
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.compression import Prefix, decompress, prefixes
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, BatchHeader, read_header

MAX_UNCOMPRESSED_BYTES: Final = 16 * 1024 * 1024
"""Maximum uncompressed size of a batch where no setting applies."""

_CORRUPT_MESSAGE: Final = 2
_MESSAGE_TOO_LARGE: Final = 10
_VARLONG_MAX_BITS: Final = 63
_INT64_MAX: Final = 2**63 - 1
#: By the compiled module.
_READ_AT_ONCE: Final = 128


class RecordKind:
    """The kinds of result of the compiled module. Twin: Kind (`broker/native/record_reader.c`)."""

    WHOLE: Final = 0
    RAW: Final = 1
    TIME: Final = 2


class Record(NamedTuple):
    """One record. `headers` are pairs of key and value; bytes of a key that are no UTF-8 are lone surrogates."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ReadAllowance:
    """The remaining budget of one lookup: a number of records, and of bytes, uncompressed."""

    __slots__ = ("left_bytes", "left_records")

    def __init__(self, records: int, size_bytes: int) -> None:
        self.left_records = records
        self.left_bytes = size_bytes

    @property
    def is_used_up(self) -> bool:
        return self.left_records <= 0 or self.left_bytes <= 0


def uncompressed_records(batch: Buffer, header: BatchHeader, max_bytes: int) -> bytes:
    """Return the bytes after the header of one whole batch, uncompressed.

    ApiError 2 when it cannot be read, 10 when it expands to more than `max_bytes`.
    """
    return decompress(header.codec, _compressed(batch, header), max_bytes)


def iterate_records(batch: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Iterator[Record]:
    """Yield the records of one whole batch in order. Raises as `uncompressed_records`."""
    header = read_header(batch)
    if header is None or header.size_bytes > len(batch):
        raise ApiError(_CORRUPT_MESSAGE, "batch is cut off")
    places = _Places(header.record_count)
    batch_places = _batch_places(header)
    try:
        for data, is_whole in prefixes(header.codec, _compressed(batch, header), max_bytes):
            while places.left > 0:
                if compiled is not None:
                    most = min(places.left, _READ_AT_ONCE)
                    records, places.at = compiled.read_records(
                        RecordKind.WHOLE, Record, data, places.at, most, *batch_places
                    )
                    places.left -= len(records)
                    yield from records
                    if records:
                        continue
                place = places.next(data, is_whole=is_whole)
                if place is None:
                    break
                yield _read_record(header, data, *place)
            if places.left <= 0:
                return
    except (struct.error, IndexError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def record_times(batch: Buffer, header: BatchHeader, allowance: ReadAllowance) -> Iterator[tuple[int, int]]:
    """Yield (time in ms, offset) of the records of one whole batch, in order, up to the allowance.

    The time is that of `iterate_records`. ApiError 2 at a record that cannot be read.
    """
    places = _Places(header.record_count)
    batch_places = _batch_places(header)
    try:
        for data, is_whole in _allowed_prefixes(batch, header, allowance):
            while places.left > 0 and allowance.left_records > 0:
                most = min(places.left, allowance.left_records, _READ_AT_ONCE)
                if compiled is not None:
                    times, places.at = compiled.read_records(
                        RecordKind.TIME, tuple, data, places.at, most, *batch_places
                    )
                    places.left -= len(times)
                    for each in times:
                        allowance.left_records -= 1
                        yield each
                    if times:
                        continue
                place = places.next(data, is_whole=is_whole)
                if place is None:
                    break
                allowance.left_records -= 1
                delta, at = read_varlong(data, place[0] + 1)  # after the record's attributes
                offset_delta, _ = read_varlong(data, at)
                yield _time_of(header, delta), _offset_of(header, offset_delta)
            if places.left <= 0:
                return
    except (struct.error, IndexError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def record_keys(batch: Buffer, header: BatchHeader, allowance: ReadAllowance) -> Iterator[bool]:
    """Yield of the records of one whole batch, in order, whether each has a key; else as `record_times`."""
    places = _Places(header.record_count)
    try:
        for data, is_whole in _allowed_prefixes(batch, header, allowance):
            while allowance.left_records > 0 and (place := places.next(data, is_whole=is_whole)):
                allowance.left_records -= 1
                _, at = read_varlong(data, place[0] + 1)
                _, at = read_varlong(data, at)
                yield read_varlong(data, at)[0] >= 0
            if places.left <= 0:
                return
    except (struct.error, IndexError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def _allowed_prefixes(batch: Buffer, header: BatchHeader, allowance: ReadAllowance) -> Iterator[Prefix]:
    """Yield prefixes of the uncompressed records until the allowance is used up."""
    most_bytes = allowance.left_bytes
    try:
        for prefix in prefixes(header.codec, _compressed(batch, header), most_bytes):
            if allowance.is_used_up:
                return
            allowance.left_bytes = most_bytes - len(prefix.data)
            yield prefix
    except ApiError as error:
        if error.code != _MESSAGE_TOO_LARGE:
            raise
        allowance.left_bytes = 0


class _Places:
    """The begin of the next record, and the number of remaining ones."""

    __slots__ = ("at", "left")

    def __init__(self, records: int) -> None:
        self.at = 0
        self.left = records

    def next(self, data: bytes, *, is_whole: bool) -> tuple[int, int] | None:
        """Return where the next record begins after its length, and its end; None if it is not there (yet)."""
        if self.left <= 0:
            return None
        try:
            length, start = read_varlong(data, self.at)
        except IndexError:
            if is_whole:
                raise
            return None
        stop = start + length
        if length <= 0 or (stop > len(data) and is_whole):
            raise ApiError(_CORRUPT_MESSAGE, f"record of {length} bytes where {len(data) - start} are left")
        if stop > len(data):
            return None
        self.at = stop
        self.left -= 1
        return start, stop


def _compressed(batch: Buffer, header: BatchHeader) -> memoryview:
    return memoryview(batch)[BATCH_HEADER_BYTES : header.size_bytes]


def _batch_places(header: BatchHeader) -> tuple[int, int, int, int | None]:
    """Return where offsets and times of a batch begin, the largest offset delta, and the append time, if any."""
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    return header.base_offset, header.last_offset_delta, header.base_timestamp, append_time_ms


def _offset_of(header: BatchHeader, offset_delta: int) -> int:
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise ApiError(_CORRUPT_MESSAGE, f"offset delta {offset_delta} of a record, {header.last_offset_delta} of all")
    return header.base_offset + offset_delta


def _time_of(header: BatchHeader, timestamp_delta: int) -> int:
    if header.is_log_append_time:
        return header.max_timestamp
    timestamp_ms = header.base_timestamp + timestamp_delta
    if not -_INT64_MAX <= timestamp_ms <= _INT64_MAX:
        raise ApiError(_CORRUPT_MESSAGE, f"timestamp {timestamp_ms} of a record")
    return timestamp_ms


def _read_record(header: BatchHeader, data: bytes, offset: int, stop: int) -> Record:
    offset += 1  # the record's attributes, of which none is defined
    timestamp_delta, offset = read_varlong(data, offset)
    offset_delta, offset = read_varlong(data, offset)
    key, offset = _read_bytes(data, offset, stop)
    value, offset = _read_bytes(data, offset, stop)
    count, offset = read_varlong(data, offset)
    headers = []
    for _ in range(count):
        header_key, offset = _read_bytes(data, offset, stop)
        header_value, offset = _read_bytes(data, offset, stop)
        if header_key is None:
            raise ApiError(_CORRUPT_MESSAGE, "header without key")
        headers.append((header_key.decode("utf-8", "surrogateescape"), header_value))
    if count < 0 or offset != stop:
        raise ApiError(_CORRUPT_MESSAGE, f"{count} headers that end {offset - stop} bytes behind their record")
    times = _offset_of(header, offset_delta), _time_of(header, timestamp_delta)
    return Record(*times, key, value, tuple(headers))


def read_varlong(data: Buffer, offset: int) -> tuple[int, int]:
    """Return a signed integer, zigzag coded in bytes of 7 bits."""
    byte = data[offset]
    offset += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), offset
    raw = byte & 0x7F
    shift = 7
    while True:
        byte = data[offset]
        offset += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), offset
        shift += 7
        if shift > _VARLONG_MAX_BITS:
            raise ApiError(_CORRUPT_MESSAGE, "varint longer than 10 bytes")


def _read_bytes(data: bytes, offset: int, end: int) -> tuple[bytes | None, int]:
    length, offset = read_varlong(data, offset)
    if length < 0:
        return None, offset
    stop = offset + length
    if stop > end:
        raise ApiError(_CORRUPT_MESSAGE, f"field of {length} bytes where {end - offset} are left")
    return data[offset:stop], stop
