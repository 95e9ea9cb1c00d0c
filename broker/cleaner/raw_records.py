"""The records of a batch as compaction looks at them: keys, deltas, and where the bytes of each record are.

Pure; runs in the cleaner process. Values and headers are not looked at: a record that is kept is copied as it is, or
gets another timestamp delta where the batch gets another base timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.record_writer import varint_bytes


class RawRecord(NamedTuple):
    """One record: the bytes [start, stop) with its length in front, `rest` behind the timestamp delta."""

    start: int
    rest: int
    stop: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def raw_records(data: bytes, count: int) -> list[RawRecord]:
    """Return the records of a batch, uncompressed. Raises ApiError 2 when they cannot be read."""
    found = []
    at = 0
    try:
        for _ in range(count):
            start = at
            length, at = _varint(data, at)
            stop = at + length
            timestamp_delta, rest = _varint(data, at + 1)
            offset_delta, at = _varint(data, rest)
            key_bytes, at = _varint(data, at)
            key = None
            if key_bytes >= 0:
                key = data[at : at + key_bytes]
                at += key_bytes
            value_bytes, at = _varint(data, at)
            if not at <= stop <= len(data):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record of {length} bytes at {start} of {len(data)}")
            found.append(RawRecord(start, rest, stop, timestamp_delta, offset_delta, key, value_bytes >= 0))
            at = stop
    except IndexError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records do not fit into {len(data)} bytes") from None
    return found


def joined(data: bytes, records: Iterable[RawRecord]) -> bytes:
    """Return the bytes of some of the records, as they stand."""
    return b"".join([data[record.start : record.stop] for record in records])


def joined_shifted(data: bytes, records: Iterable[RawRecord], shift_ms: int) -> bytes:
    """Return the bytes of some of the records with timestamp deltas that are `shift_ms` larger."""
    parts = []
    for record in records:
        # No record attribute is defined, so the byte is 0.
        body = b"\x00" + varint_bytes(record.timestamp_delta + shift_ms) + data[record.rest : record.stop]
        parts += [varint_bytes(len(body)), body]
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag coded integer and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
