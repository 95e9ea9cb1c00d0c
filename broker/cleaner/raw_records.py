"""The records of a batch for compaction: keys, deltas, and the position of each record's bytes.

Pure; runs in the cleaner process. Values and headers are not parsed: a kept record is copied unchanged, or with a new
timestamp delta where the batch has a new base timestamp. A batch may hold millions of records: they are read one at a
time, and only the positions of the kept ones are stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from rotunda.broker.errors import ApiError
from rotunda.broker.native import compiled
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_reader import RecordKind, read_varlong
from rotunda.broker.records.record_writer import varint_bytes

_INT64_MAX: Final = 2**63 - 1
#: For the compiled module; the Python code that reads one record is its equivalent.
_READ_AT_ONCE: Final = 1024


class RawRecord(NamedTuple):
    """One record: the bytes [start, stop) with its length prefix, `rest` after the timestamp delta."""

    start: int
    rest: int
    stop: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class KeptRecords:
    """The kept records of a batch, and the header fields that depend on them."""

    __slots__ = ("bounds", "count", "has_tombstone", "max_timestamp_delta")

    def __init__(self, records: Iterable[RawRecord], is_kept: Callable[[RawRecord], bool]) -> None:
        #: Start and end of each run of records, alternating.
        self.bounds = array("q")
        self.count = 0
        self.has_tombstone = False
        self.max_timestamp_delta = -_INT64_MAX
        last_stop = -1
        for record in records:
            if not is_kept(record):
                continue
            self.count += 1
            self.has_tombstone |= not record.has_value
            self.max_timestamp_delta = max(self.max_timestamp_delta, record.timestamp_delta)
            if record.start == last_stop:
                self.bounds[-1] = record.stop
            else:
                self.bounds.extend((record.start, record.stop))
            last_stop = record.stop

    def joined(self, data: bytes) -> bytes:
        """Return the bytes of the kept records, unchanged."""
        return b"".join([data[start:stop] for start, stop in self._runs()])

    def joined_shifted(self, data: bytes, shift_ms: int) -> bytes:
        """Return their bytes with timestamp deltas that are `shift_ms` larger. ApiError 2 if one is out of range."""
        out = bytearray()
        for start, stop in self._runs():
            at = start
            while at < stop:
                length, at = read_varlong(data, at)
                end = at + length
                timestamp_delta, rest = read_varlong(data, at + 1)
                delta = varint_bytes(_in_range(timestamp_delta + shift_ms))
                # No record attribute is defined, so the byte is 0.
                out += varint_bytes(1 + len(delta) + end - rest) + b"\x00" + delta
                out += memoryview(data)[rest:end]
                at = end
        return bytes(out)

    def _runs(self) -> Iterator[tuple[int, int]]:
        return zip(self.bounds[::2], self.bounds[1::2], strict=True)


def raw_records(data: bytes, count: int, last_offset_delta: int) -> Iterator[RawRecord]:
    """Yield the records of an uncompressed batch. ApiError 2 for one that is invalid or beyond the batch."""
    at, left = 0, count
    try:
        while left > 0:
            if compiled is not None:
                most = min(left, _READ_AT_ONCE)
                records, at = compiled.read_records(
                    RecordKind.RAW, RawRecord, data, at, most, 0, last_offset_delta, 0, None
                )
                left -= len(records)
                yield from records
                if records:
                    continue
            start = at
            length, at = read_varlong(data, at)
            stop = at + length
            timestamp_delta, rest = read_varlong(data, at + 1)
            offset_delta, at = read_varlong(data, rest)
            key_bytes, at = read_varlong(data, at)
            key = None
            if key_bytes >= 0:
                key = data[at : at + key_bytes]
                at += key_bytes
            value_bytes, at = read_varlong(data, at)
            if not at + max(value_bytes, 0) < stop <= len(data):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record of {length} bytes at {start} of {len(data)}")
            if not 0 <= offset_delta <= last_offset_delta:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"offset delta {offset_delta} beyond {last_offset_delta}")
            _in_range(timestamp_delta)
            yield RawRecord(start, rest, stop, timestamp_delta, offset_delta, key, value_bytes >= 0)
            at = stop
            left -= 1
    except IndexError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records do not fit into {len(data)} bytes") from None


def _in_range(timestamp_delta: int) -> int:
    if not -_INT64_MAX <= timestamp_delta <= _INT64_MAX:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"timestamp delta {timestamp_delta}")
    return timestamp_delta
