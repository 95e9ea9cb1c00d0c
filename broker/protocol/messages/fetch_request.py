"""Fetch requests, versions 4-18. HOT: every poll of every consumer is one; handlers parse them here."""

import struct
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    read_array_count,
    read_compact_count,
    read_compact_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
)

FIRST_FLEXIBLE: Final = 12
TOPIC_ID_FROM: Final = 13
LOG_START_FROM: Final = 5
SESSION_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
_REPLICA_STATE_TAG: Final = 1
_EMPTY_COMPACT_ARRAY: Final = 1
NO_SESSION: Final = (0, -1)
"""Session id and epoch of a request that has none, which is any request below version 7."""


class FetchPart(NamedTuple):
    """One partition to read. The name is None from version 13, the id (16 bytes) below it."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class ForgottenPart(NamedTuple):
    """One partition that an incremental fetch drops from its session."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int


class FetchRequest(NamedTuple):
    """A request, its parts in the order in which they stand on the wire. `replica_id` is -1 for consumers."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    parts: list[FetchPart]
    forgotten: list[ForgottenPart]
    rack_id: str


_unpack_head = struct.Struct(
    ">"
    "i"  # replica_id (to version 14)
    "i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level
).unpack_from
_unpack_flexible_head = struct.Struct(
    ">"
    "i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level
    "i"  # session_id
    "i"  # session_epoch
).unpack_from
_unpack_session = struct.Struct(
    ">"
    "i"  # session_id
    "i"  # session_epoch
).unpack_from
_unpack_part_v4 = struct.Struct(
    ">"
    "i"  # partition
    "q"  # fetch_offset
    "i"  # partition_max_bytes
).unpack_from
_unpack_part_v5 = struct.Struct(
    ">"
    "i"  # partition
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
).unpack_from
_unpack_part_v9 = struct.Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
).unpack_from
_unpack_part_v12 = struct.Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "i"  # last_fetched_epoch
    "q"  # log_start_offset
    "i"  # partition_max_bytes
).unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from


_Topic = tuple[str | None, bytes | None]


def parse_fetch(buffer: Buffer, version: int, offset: int, end: int) -> FetchRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    try:
        if version >= FIRST_FLEXIBLE:
            request, offset = _parse_flexible(buffer, version, offset, end)
        else:
            request, offset = _parse_legacy(buffer, version, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Fetch: {error}") from error
    check_end(offset, end)
    return request


def _parse_legacy(buffer: Buffer, version: int, offset: int, end: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _unpack_head(buffer, offset)
    offset += 17
    session_id, session_epoch = NO_SESSION
    if version >= SESSION_FROM:
        session_id, session_epoch = _unpack_session(buffer, offset)
        offset += 8
    parts: list[FetchPart] = []
    topics, offset = _read_count(buffer, offset, end)
    for _ in range(topics):
        name, offset = read_string(buffer, offset, end)
        partitions, offset = _read_count(buffer, offset, end)
        for _ in range(partitions):
            part, offset = _read_legacy_part(buffer, version, offset, name)
            parts.append(part)
    forgotten: list[ForgottenPart] = []
    if version >= SESSION_FROM:
        offset = _parse_legacy_forgotten(buffer, offset, end, forgotten)
    rack_id, offset = read_string(buffer, offset, end) if version >= RACK_FROM else ("", offset)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        parts,
        forgotten,
        rack_id,
    ), offset


def _read_count(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    count, offset = read_array_count(buffer, offset, end)
    if count < 0:
        raise InvalidReceive("null array in Fetch")
    return count, offset


def _read_legacy_part(buffer: Buffer, version: int, offset: int, name: str) -> tuple[FetchPart, int]:
    if version >= _LEADER_EPOCH_FROM:
        partition, leader_epoch, fetch_offset, start, max_bytes = _unpack_part_v9(buffer, offset)
        return FetchPart(name, None, partition, leader_epoch, fetch_offset, -1, start, max_bytes), offset + 28
    if version >= LOG_START_FROM:
        partition, fetch_offset, start, max_bytes = _unpack_part_v5(buffer, offset)
        return FetchPart(name, None, partition, -1, fetch_offset, -1, start, max_bytes), offset + 24
    partition, fetch_offset, max_bytes = _unpack_part_v4(buffer, offset)
    return FetchPart(name, None, partition, -1, fetch_offset, -1, -1, max_bytes), offset + 16


def _parse_legacy_forgotten(buffer: Buffer, offset: int, end: int, into: list[ForgottenPart]) -> int:
    topics, offset = _read_count(buffer, offset, end)
    for _ in range(topics):
        name, offset = read_string(buffer, offset, end)
        partitions, offset = _read_count(buffer, offset, end)
        for _ in range(partitions):
            into.append(ForgottenPart(name, None, _unpack_int32(buffer, offset)[0]))
            offset += 4
    return offset


def _parse_flexible(buffer: Buffer, version: int, offset: int, end: int) -> tuple[FetchRequest, int]:
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = _unpack_int32(buffer, offset)
        offset += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _unpack_flexible_head(
        buffer, offset
    )
    parts: list[FetchPart] = []
    offset = _parse_flexible_topics(buffer, version, offset + 21, end, parts)
    forgotten: list[ForgottenPart] = []
    if buffer[offset] == _EMPTY_COMPACT_ARRAY:
        offset += 1
    else:
        offset = _parse_flexible_forgotten(buffer, version, offset, end, forgotten)
    rack_id, offset = read_compact_string(buffer, offset, end)
    if buffer[offset] == 0:
        offset += 1
    else:
        tags, offset = read_tagged_fields(buffer, offset, end)
        if version >= _REPLICA_STATE_FROM and _REPLICA_STATE_TAG in tags:
            (replica_id,) = _unpack_int32(buffer, tags[_REPLICA_STATE_TAG])
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        parts,
        forgotten,
        rack_id,
    ), offset


def _read_topic(buffer: Buffer, version: int, offset: int, end: int) -> tuple[_Topic, int]:
    if version >= TOPIC_ID_FROM:
        return (None, bytes(buffer[offset : offset + 16])), offset + 16
    name, offset = read_compact_string(buffer, offset, end)
    return (name, None), offset


def _parse_flexible_topics(buffer: Buffer, version: int, offset: int, end: int, into: list[FetchPart]) -> int:
    name: str | None = None
    topic_id: bytes | None = None
    topics, offset = read_compact_count(buffer, offset, end)
    for _ in range(topics):
        if version >= TOPIC_ID_FROM:
            topic_id = bytes(buffer[offset : offset + 16])
            offset += 16
        else:
            name, offset = read_compact_string(buffer, offset, end)
        partitions, offset = read_compact_count(buffer, offset, end)
        for _ in range(partitions):
            partition, epoch, fetch_offset, last_epoch, start, max_bytes = _unpack_part_v12(buffer, offset)
            into.append(FetchPart(name, topic_id, partition, epoch, fetch_offset, last_epoch, start, max_bytes))
            offset += 32
            offset = offset + 1 if buffer[offset] == 0 else skip_tagged_fields(buffer, offset, end)
        offset = offset + 1 if buffer[offset] == 0 else skip_tagged_fields(buffer, offset, end)
    return offset


def _parse_flexible_forgotten(buffer: Buffer, version: int, offset: int, end: int, into: list[ForgottenPart]) -> int:
    topics, offset = read_compact_count(buffer, offset, end)
    for _ in range(topics):
        (name, topic_id), offset = _read_topic(buffer, version, offset, end)
        partitions, offset = read_compact_count(buffer, offset, end)
        for _ in range(partitions):
            into.append(ForgottenPart(name, topic_id, _unpack_int32(buffer, offset)[0]))
            offset += 4
        offset = skip_tagged_fields(buffer, offset, end)
    return offset
