"""The layout of records in a batch, magic 2: records alike, sizes, and the fields that a user gives. Pure functions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import Final

from rotunda.broker.client.errors import SerializationFailed
from rotunda.broker.records.record_writer import (
    ATTRIBUTES,
    NO_HEADERS,
    NULL,
    VARINTS,
    Headers,
    headers_bytes,
    varint_bytes,
)

#: Maximum overhead of a record beyond its key, value and headers: Kafka's upper bound (G15).
MAX_RECORD_OVERHEAD: Final = 21
#: Minimum size of a record with an empty value.
SMALLEST_RECORD_BYTES: Final = 7
#: Maximum number of records precomputed: it costs 15 us, wasted if no two batches start alike.
_KEPT_RECORDS: Final = 256
#: Ranges of offset deltas of equal length.
_OF_ONE_LENGTH: Final = ((0, 64), (64, len(VARINTS)))
_MOST_OF_INT: Final = (1 << 31) - 1
_MOST_OF_LONG: Final = (1 << 63) - 1


def records_alike(timestamp_delta_ms: int, first: int, value_bytes: int, room_bytes: int) -> Iterable[bytes]:
    """Return the bytes between the values of records that have only a value: the end of one, the start of the next.

    Starts at offset delta `first`; the last record starts within `room_bytes` of the first, or is the last of
    `VARINTS`.
    """
    if timestamp_delta_ms == 0 and room_bytes < _KEPT_RECORDS * (value_bytes + SMALLEST_RECORD_BYTES):
        return _kept(first, value_bytes, room_bytes)
    return _records_alike(timestamp_delta_ms, first, value_bytes, room_bytes)


@lru_cache(maxsize=32)
def _kept(first: int, value_bytes: int, room_bytes: int) -> tuple[bytes, ...]:
    """Cache the result for records with the batch's base time: many batches start alike."""
    return tuple(_records_alike(0, first, value_bytes, room_bytes))


def _records_alike(timestamp_delta_ms: int, first: int, value_bytes: int, room_bytes: int) -> Iterator[bytes]:
    delta, tail = varint_bytes(timestamp_delta_ms), NULL + varint_bytes(value_bytes)
    fixed = len(ATTRIBUTES) + len(delta) + len(tail) + value_bytes + len(NO_HEADERS)
    parts = []
    for begin, end in _OF_ONE_LENGTH:
        if begin <= first < end and room_bytes >= 0:
            rest = varint_bytes(fixed + len(VARINTS[first]))
            record_bytes = len(rest) + fixed + len(VARINTS[first])
            until = min(end, first + room_bytes // record_bytes + 1)
            offsets = islice(VARINTS, first, until)
            parts.append(map(b"".join, zip(repeat(NO_HEADERS + rest + ATTRIBUTES + delta), offsets, repeat(tail))))
            room_bytes -= (until - first) * record_bytes
            first = until
    return chain.from_iterable(parts)


def upper_bound_bytes(key: bytes | None, value: bytes | None, headers: bytes) -> int:
    """Return an upper bound of the record's size at any offset of a batch (G15)."""
    return MAX_RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0) + len(headers)


def timestamp_of(given: object) -> int:
    """Validate a record's timestamp. Raises TypeError and ValueError."""
    timestamp_ms = _whole("timestamp_ms", given)
    if not 0 <= timestamp_ms <= _MOST_OF_LONG:
        raise ValueError(f"timestamp_ms is {timestamp_ms}: give milliseconds since 1970, or None for now")
    return timestamp_ms


def partition_of(given: object) -> int:
    """Validate a record's partition, which may be negative. Raises TypeError and ValueError."""
    partition = _whole("partition", given)
    if partition > _MOST_OF_INT:
        raise ValueError(f"partition is {partition}: the largest that there may be is {_MOST_OF_INT}")
    return partition


def check_topic(topic: object) -> None:
    """Raise TypeError or ValueError if a topic name cannot be encoded in a request."""
    if not isinstance(topic, str):
        raise TypeError(f"the topic {topic!r:.60} is of type {type(topic).__name__}: give its name as str")
    try:
        topic.encode()
    except UnicodeEncodeError as failure:
        raise ValueError(f"the topic {topic!r:.60} is no text: {failure.reason}") from failure


def packed_headers(topic: str, headers: Headers) -> bytes:
    """Encode headers. Raises SerializationFailed."""
    try:
        return headers_bytes(headers)
    except (TypeError, ValueError, AttributeError) as failure:
        raise SerializationFailed(
            f"the headers of a record for {topic} cannot be serialized, {headers!r:.200}: give a mapping, or pairs, of "
            "str and bytes or None"
        ) from failure


def _whole(name: str, given: object) -> int:
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError as failure:
        raise TypeError(f"{name} is of type {type(given).__name__} ({given!r:.60}): give an int") from failure
