"""Encodes Produce requests, versions 3-13, and defines the result of a batch. HOT: once per node and drain.

A request is a list of buffers that alternates a few encoded bytes with a batch's own memory. It is sent by one
`sendmsg` without joining, so batch memory must not change until the response is received. Responses are decoded by the
compiled codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import request_header
from rotunda.broker.protocol.primitives import (
    INT32,
    ZERO_TOPIC_ID,
    Buffer,
    compact_nullable_string_bytes,
    compact_string_bytes,
    nullable_string_bytes,
    string_bytes,
    unsigned_varint_bytes,
)

OLDEST_VERSION: Final = 3
"""The first version with record batches of format 2."""
NEWEST_VERSION: Final = 13
NEWEST_OF_TRANSACTION_V1: Final = 11
"""From 12 on a Produce adds its partitions to the transaction (KIP-890)."""
NEWEST_WITH_NAMES: Final = 12
"""Version 13 has topic ids only."""
_FLEXIBLE_FROM: Final = 9
_TOPIC_ID_FROM: Final = 13
NO_OFFSET: Final = -1

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_pack_int32 = INT32.pack


class Part(NamedTuple):
    """A partition's batch in a request. `topic_id` is 16 zero bytes if unknown."""

    topic: str
    topic_id: bytes
    partition: int
    records: Buffer


class Outcome(NamedTuple):
    """The result of a partition's batch: the fields of its response, or of a response that was not received."""

    error_code: int = 0
    error_message: str | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: int = NO_OFFSET
    #: Of the compiled response: `batch_index`, `batch_index_error_message`.
    record_errors: Sequence[Any] = ()


def newest_version(parts: Iterable[Part], transactional_v1: bool) -> int:
    """Return the newest usable version: with topic ids only if all are known (KIP-516), limited by KIP-890."""
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
    """Return the request's buffers, including the size prefix. The batches' memory is included without copying."""
    text, nullable, no_tags = string_bytes, nullable_string_bytes, b""
    count: Callable[[int], bytes] = _pack_int32
    if version >= _FLEXIBLE_FROM:
        text, nullable, no_tags = compact_string_bytes, compact_nullable_string_bytes, b"\x00"
        count = _compact_count
    topics: dict[str, list[Part]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    buffers: list[Buffer] = []
    pending = request_header(ApiKey.PRODUCE, version, correlation_id, client_id)
    pending += nullable(transactional_id) + _ACKS_TIMEOUT.pack(acks, timeout_ms) + count(len(topics))
    for topic, own in topics.items():
        pending += own[0].topic_id if version >= _TOPIC_ID_FROM else text(topic)
        pending += count(len(own))
        for part in own:
            buffers += pending + _pack_int32(part.partition) + count(len(part.records)), part.records
            pending = no_tags
        pending += no_tags
    pending += no_tags
    if pending:
        buffers.append(pending)
    buffers[0] = _pack_int32(sum(map(len, buffers))) + bytes(buffers[0])
    return buffers


def _compact_count(count: int) -> bytes:
    return unsigned_varint_bytes(count + 1)
