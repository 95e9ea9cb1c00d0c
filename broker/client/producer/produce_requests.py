"""Produce requests and their responses, versions 3-13, as a producer writes and reads them. HOT: one a node and drain.

A request is a list of buffers: a few bytes of our own, a batch's own memory, a few bytes, the next batch's memory. They
leave by one `sendmsg` and are joined nowhere, so what stands in the batches must stay as it is until the response has
come. The response is read by hand: one `struct` for a partition without errors. Bytes and values; no batches, no nodes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey
from broker.protocol.headers import request_header
from broker.protocol.primitives import (
    INT32,
    MALFORMED,
    ZERO_TOPIC_ID,
    Buffer,
    check_count,
    check_end,
    compact_nullable_string_bytes,
    compact_string_bytes,
    nullable_string_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    string_bytes,
    unsigned_varint_bytes,
)

OLDEST_VERSION: Final = 3
"""The first with record batches as they are written here."""
NEWEST_VERSION: Final = 13
NEWEST_OF_TRANSACTION_V1: Final = 11
"""From 12 on a Produce adds its partitions to the transaction (KIP-890)."""
NEWEST_WITH_NAMES: Final = 12
"""Version 13 has topic ids alone."""
_FLEXIBLE_FROM: Final = 9
_RECORD_ERRORS_FROM: Final = 8
_LOG_START_OFFSET_FROM: Final = 5
_TOPIC_ID_FROM: Final = 13
_NO_TAGS: Final = b"\x00"
NO_OFFSET: Final = -1

_pack_acks_timeout = struct.Struct(">hi").pack
_pack_index_size = struct.Struct(">ii").pack
_pack_int32 = INT32.pack
_unpack_int32 = INT32.unpack_from
_LEADER: Final = struct.Struct(">ii")
_OUTCOME: Final = struct.Struct(
    ">"
    "i"  # index
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time_ms
)
_unpack_int64 = struct.Struct(">q").unpack_from


class Part(NamedTuple):
    """A partition's batch in a request. `topic_id` is 16 zero bytes where it is not known."""

    topic: str
    topic_id: bytes
    partition: int
    records: Buffer


class Leader(NamedTuple):
    """A partition's leader as a response tells it (KIP-951). Both are -1 where it says nothing."""

    node_id: int = -1
    epoch: int = -1


class Endpoint(NamedTuple):
    """Where a leader listens."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionResponse(NamedTuple):
    """What became of a partition's batch. `record_errors` are pairs of the record's index in the batch and a text."""

    topic: str = ""
    """Empty from version 13."""
    topic_id: bytes = ZERO_TOPIC_ID
    partition: int = -1
    error_code: int = 0
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: int = NO_OFFSET
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: Leader = Leader()


class ProduceResponse(NamedTuple):
    """A response. `endpoints` are those of the leaders that its partitions name."""

    partitions: list[PartitionResponse]
    throttle_time_ms: int
    endpoints: Sequence[Endpoint] = ()


def newest_version(parts: Iterable[Part], transactional_v1: bool) -> int:
    """Return the newest version that says what is to be said: by id only where each id is known (KIP-516, KIP-890)."""
    if transactional_v1:
        return NEWEST_OF_TRANSACTION_V1
    return NEWEST_VERSION if all(part.topic_id != ZERO_TOPIC_ID for part in parts) else NEWEST_WITH_NAMES


def encode_produce(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    parts: Sequence[Part],
) -> list[Buffer]:
    """Return the request behind its size. The batches' memory is in the list as it is."""
    head = request_header(ApiKey.PRODUCE, version, correlation_id, client_id)
    if version < _FLEXIBLE_FROM:
        head += nullable_string_bytes(transactional_id) + _pack_acks_timeout(acks, timeout_ms)
        buffers = _legacy_body(head, parts)
    else:
        head += compact_nullable_string_bytes(transactional_id) + _pack_acks_timeout(acks, timeout_ms)
        buffers = _flexible_body(head, version, parts)
    buffers[0] = _pack_int32(sum(map(len, buffers))) + bytes(buffers[0])
    return buffers


def _by_topic(parts: Sequence[Part]) -> dict[str, list[Part]]:
    topics: dict[str, list[Part]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    return topics


def _legacy_body(pending: bytes, parts: Sequence[Part]) -> list[Buffer]:
    buffers: list[Buffer] = []
    topics = _by_topic(parts)
    pending += _pack_int32(len(topics))
    for topic, own in topics.items():
        pending += string_bytes(topic) + _pack_int32(len(own))
        for part in own:
            buffers += pending + _pack_index_size(part.partition, len(part.records)), part.records
            pending = b""
    if pending:
        buffers.append(pending)
    return buffers


def _flexible_body(pending: bytes, version: int, parts: Sequence[Part]) -> list[Buffer]:
    buffers: list[Buffer] = []
    topics = _by_topic(parts)
    pending += unsigned_varint_bytes(len(topics) + 1)
    for topic, own in topics.items():
        pending += own[0].topic_id if version >= _TOPIC_ID_FROM else compact_string_bytes(topic)
        pending += unsigned_varint_bytes(len(own) + 1)
        for part in own:
            pending += _pack_int32(part.partition) + unsigned_varint_bytes(len(part.records) + 1)
            buffers += pending, part.records
            pending = _NO_TAGS
        pending += _NO_TAGS
    buffers.append(pending + _NO_TAGS)
    return buffers


def decode_produce(version: int, buffer: Buffer, offset: int, end: int) -> ProduceResponse:
    """Return the response whose body is [offset, end). InvalidReceive when malformed."""
    try:
        read = _read_flexible if version >= _FLEXIBLE_FROM else _read_legacy
        response, offset = read(version, buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Produce response: {error}") from error
    check_end(offset, end)
    return response


def _read_numbers(
    version: int, topic: str, topic_id: bytes, buffer: Buffer, offset: int
) -> tuple[PartitionResponse, int]:
    """Return the outcome as far as its numbers tell it, and the offset after them."""
    partition, error_code, base_offset, append_time_ms = _OUTCOME.unpack_from(buffer, offset)
    offset += _OUTCOME.size
    log_start_offset = NO_OFFSET
    if version >= _LOG_START_OFFSET_FROM:
        (log_start_offset,) = _unpack_int64(buffer, offset)
        offset += 8
    numbers = (partition, error_code, base_offset, append_time_ms, log_start_offset)
    return PartitionResponse(topic, topic_id, *numbers), offset


def _read_legacy(version: int, buffer: Buffer, offset: int, end: int) -> tuple[ProduceResponse, int]:
    found: list[PartitionResponse] = []
    topics, offset = _read_count(buffer, offset, end)
    for _ in range(topics):
        topic, offset = read_string(buffer, offset, end)
        count, offset = _read_count(buffer, offset, end)
        for _ in range(count):
            response, offset = _read_numbers(version, topic, ZERO_TOPIC_ID, buffer, offset)
            if version >= _RECORD_ERRORS_FROM:
                record_errors: list[tuple[int, str | None]] = []
                errors, offset = _read_count(buffer, offset, end)
                for _ in range(errors):
                    (index,) = _unpack_int32(buffer, offset)
                    text, offset = read_nullable_string(buffer, offset + 4, end)
                    record_errors.append((index, text))
                message, offset = read_nullable_string(buffer, offset, end)
                response = response._replace(record_errors=record_errors, error_message=message)
            found.append(response)
    (throttle_time_ms,) = _unpack_int32(buffer, offset)
    return ProduceResponse(found, throttle_time_ms), offset + 4


def _read_count(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    (count,) = _unpack_int32(buffer, offset)
    check_count(count, offset, end)
    return count, offset + 4


def _read_flexible(version: int, buffer: Buffer, offset: int, end: int) -> tuple[ProduceResponse, int]:
    found: list[PartitionResponse] = []
    topics, offset = read_compact_count(buffer, offset, end)
    for _ in range(topics):
        topic, topic_id = "", ZERO_TOPIC_ID
        if version >= _TOPIC_ID_FROM:
            topic_id, offset = bytes(buffer[offset : offset + 16]), offset + 16
        else:
            topic, offset = read_compact_string(buffer, offset, end)
        count, offset = read_compact_count(buffer, offset, end)
        for _ in range(count):
            response, offset = _read_partition(version, topic, topic_id, buffer, offset, end)
            found.append(response)
        offset = skip_tagged_fields(buffer, offset, end)
    (throttle_time_ms,) = _unpack_int32(buffer, offset)
    tags, offset = read_tagged_fields(buffer, offset + 4, end)
    endpoints = _read_endpoints(buffer, tags[0], end) if 0 in tags else ()
    return ProduceResponse(found, throttle_time_ms, endpoints), offset


def _read_partition(
    version: int, topic: str, topic_id: bytes, buffer: Buffer, offset: int, end: int
) -> tuple[PartitionResponse, int]:
    response, offset = _read_numbers(version, topic, topic_id, buffer, offset)
    if buffer[offset : offset + 3] == b"\x01\x00\x00":  # no record errors, no message, no tags
        return response, offset + 3
    record_errors: list[tuple[int, str | None]] = []
    count, offset = read_compact_count(buffer, offset, end)
    for _ in range(count):
        (index,) = _unpack_int32(buffer, offset)
        text, offset = read_compact_nullable_string(buffer, offset + 4, end)
        offset = skip_tagged_fields(buffer, offset, end)
        record_errors.append((index, text))
    message, offset = read_compact_nullable_string(buffer, offset, end)
    tags, offset = read_tagged_fields(buffer, offset, end)
    leader = Leader(*_LEADER.unpack_from(buffer, tags[0])) if 0 in tags else Leader()
    return response._replace(record_errors=record_errors, error_message=message, current_leader=leader), offset


def _read_endpoints(buffer: Buffer, offset: int, end: int) -> list[Endpoint]:
    found = []
    count, offset = read_compact_count(buffer, offset, end)
    for _ in range(count):
        (node_id,) = _unpack_int32(buffer, offset)
        host, offset = read_compact_string(buffer, offset + 4, end)
        (port,) = _unpack_int32(buffer, offset)
        rack, offset = read_compact_nullable_string(buffer, offset + 4, end)
        offset = skip_tagged_fields(buffer, offset, end)
        found.append(Endpoint(node_id, host, port, rack))
    return found
