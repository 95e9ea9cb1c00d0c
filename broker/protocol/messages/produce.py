"""Produce, versions 3-13. HOT.

Parsing finds the position of each partition's records and copies nothing: the log writes them from the same memory.
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.protocol.sliced_responses import Lazily, MemorySink, SlicedEncoder
from rotunda.broker.steps import Steps

FIRST_FLEXIBLE: Final = 9
_TOPIC_ID_FROM: Final = 13


class Part(NamedTuple):
    """One partition's records in a request."""

    topic_name: str | None
    """None from version 13, with topic ids."""
    topic_id: bytes | None
    """16 bytes; None below version 13."""
    partition: int
    records_offset: int
    """Where the records start, in the buffer that was parsed."""
    records_size: int
    """Bytes; -1 when the client sent null."""


class ProduceRequest(NamedTuple):
    """A request, its parts in the order of the wire format."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[Part]


#: Parts of one request, or topics: more than fit into the requests of the clients' defaults, read in 15 ms.
MOST_PARTS: Final = 25_000


class PartResponse(NamedTuple):
    """The outcome of one part. `record_errors` holds pairs of batch index and text."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


def parse_produce(buffer: Buffer, version: int, offset: int, end: int) -> ProduceRequest:
    """Parse the request body in [offset, end) of `buffer`. InvalidReceive when malformed."""
    body = codec.decode_in_place(ApiKey.PRODUCE, version, buffer, offset, end)
    has_ids = version >= _TOPIC_ID_FROM
    parts = [
        Part(None if has_ids else topic.name, topic.topic_id if has_ids else None, part.index, *part.records)
        for topic in body.topic_data
        for part in topic.partition_data
    ]
    if (most := max(len(parts), len(body.topic_data))) > MOST_PARTS:
        raise InvalidReceive(f"{most} topics or partitions in a request, which may have {MOST_PARTS}")
    return ProduceRequest(body.transactional_id, body.acks, body.timeout_ms, parts)


def encode_produce_response(
    version: int, correlation_id: int, throttle_ms: int, parts: Sequence[PartResponse]
) -> bytes:
    """Return the response, size and header included; neighbouring parts of one topic share its entry."""
    return codec.encode_response(ApiKey.PRODUCE, version, correlation_id, _response(throttle_ms, parts))


def produce_response_in_steps(
    version: int, correlation_id: int, throttle_ms: int, parts: Sequence[PartResponse]
) -> Steps[bytes]:
    """Return the result of `encode_produce_response`, in steps."""
    sink = MemorySink()
    encoder = SlicedEncoder(ApiKey.PRODUCE, version, sink, sys.maxsize)
    yield from encoder.encode(correlation_id, _response(throttle_ms, parts))
    return bytes(sink.data)


def _response(throttle_ms: int, parts: Sequence[PartResponse]) -> dict[str, Any]:
    topics = [
        {"name": name, "topic_id": topic_id, "partition_responses": Lazily(list(group), _part_fields)}
        for (name, topic_id), group in groupby(parts, itemgetter(0, 1))
    ]
    return {"responses": topics, "throttle_time_ms": throttle_ms}


def _part_fields(part: PartResponse) -> dict[str, Any]:
    return {
        "index": part.partition,
        "error_code": part.error_code,
        "base_offset": part.base_offset,
        "log_append_time_ms": part.log_append_time_ms,
        "log_start_offset": part.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": text} for index, text in part.record_errors
        ],
        "error_message": part.error_message,
    }
