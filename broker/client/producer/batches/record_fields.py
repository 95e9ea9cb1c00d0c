"""What a record's topic, numbers and headers must be, judged in the thread that sends.

What is wrong here and not found would be found on the I/O thread, which could blame nobody: a batch, or all requests
for metadata, would come to nothing. It knows no queue and no network.
"""

from __future__ import annotations

import operator
from typing import Final

from broker.client.errors import SerializationFailed
from broker.client.producer.batches.record_layout import headers_bytes
from broker.client.producer.serializers import Headers

_MOST_OF_INT: Final = (1 << 31) - 1
_MOST_OF_LONG: Final = (1 << 63) - 1


def timestamp_of(given: object) -> int:
    """Return a record's timestamp. Raises TypeError and ValueError."""
    timestamp_ms = _whole("timestamp_ms", given)
    if not 0 <= timestamp_ms <= _MOST_OF_LONG:
        raise ValueError(f"timestamp_ms is {timestamp_ms}: give milliseconds since 1970, or None for now")
    return timestamp_ms


def partition_of(given: object) -> int:
    """Return a record's partition, which may be negative. Raises TypeError and ValueError."""
    partition = _whole("partition", given)
    if partition > _MOST_OF_INT:
        raise ValueError(f"partition is {partition}: the largest that there may be is {_MOST_OF_INT}")
    return partition


def check_topic(topic: object) -> None:
    """Raise TypeError or ValueError for what cannot be a topic's name in a request."""
    if not isinstance(topic, str):
        raise TypeError(f"the topic {topic!r:.60} is of type {type(topic).__name__}: give its name as str")
    try:
        topic.encode()
    except UnicodeEncodeError as failure:
        raise ValueError(f"the topic {topic!r:.60} is no text: {failure.reason}") from failure


def packed_headers(topic: str, headers: Headers) -> bytes:
    """Return headers as they stand in a record. Raises SerializationFailed."""
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
