"""Fetch requests, versions 4-18. HOT: every poll of every consumer is one; handlers parse them here."""

import struct
from operator import itemgetter
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
NO_LIMIT: Final = 1 << 31
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


#: The fields of a `FetchPart`, in order: a plain tuple, because there may be thousands in each poll, and the garbage
#: collector leaves those alone.
PartFields = tuple[str | None, bytes | None, int, int, int, int, int, int]


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
    parts: list[PartFields]
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
_PART_V4 = struct.Struct(
    ">"
    "i"  # partition
    "q"  # fetch_offset
    "i"  # partition_max_bytes
)
_PART_V5 = struct.Struct(
    ">"
    "i"  # partition
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
)
_PART_V9 = struct.Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "q"  # log_start_offset
    "i"  # partition_max_bytes
)
_PART_V12 = struct.Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "i"  # last_fetched_epoch
    "q"  # log_start_offset
    "i"  # partition_max_bytes
    "B"  # no tagged fields, or how many
)
_TAGS = itemgetter(6)
_unpack_int32 = struct.Struct(">i").unpack_from

#: The `session_epoch` of a request that begins a session, and of one that has or wants none.
FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1

_Topic = tuple[str | None, bytes | None]


def parse_fetch(buffer: Buffer, version: int, offset: int, end: int, most_parts: int = NO_LIMIT) -> FetchRequest:
    """Return the request whose body is [offset, end) of `buffer`.

    InvalidReceive when it is malformed, or names more than ``most_parts`` topics or partitions.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            request, offset = _parse_flexible(buffer, version, offset, end, most_parts)
        else:
            request, offset = _parse_legacy(buffer, version, offset, end, most_parts)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Fetch: {error}") from error
    check_end(offset, end)
    return request


def varying_places(buffer: Buffer, version: int, offset: int, end: int) -> tuple[int, list[int]] | None:
    """Return where a request that has been parsed has its session epoch (-1: nowhere) and where its fetch offsets.

    None when they are not all that differs in the next one like it, because partitions have tags.
    """
    flexible = version >= FIRST_FLEXIBLE
    layout = _PART_V12 if flexible else _legacy_layout(version)
    # Partition and, from version 9 on, leader epoch stand before it.
    before = 8 if version >= _LEADER_EPOCH_FROM else 4
    head_bytes = (21 if version >= _REPLICA_STATE_FROM else 25) if version >= SESSION_FROM else 17
    offset += head_bytes
    epoch_at = offset - 4 if version >= SESSION_FROM else -1
    places: list[int] = []
    topics, offset = read_compact_count(buffer, offset, end) if flexible else _read_count(buffer, offset, end)
    for _ in range(topics):
        _, offset = _read_topic(buffer, version, offset, end) if flexible else read_string(buffer, offset, end)
        partitions, offset = read_compact_count(buffer, offset, end) if flexible else _read_count(buffer, offset, end)
        stop = offset + partitions * layout.size
        places += range(offset + before, stop, layout.size)
        if flexible:
            # The last byte of each partition, and what follows them all, are counts of tags.
            if any(buffer[offset + layout.size - 1 : stop : layout.size]) or buffer[stop]:
                return None
            stop += 1
        offset = stop
    return epoch_at, places


def _check_parts(count: int, most_parts: int) -> None:
    if count > most_parts:
        raise InvalidReceive(f"Fetch of {count} topics or partitions; {most_parts} may be named")


def _parse_legacy(buffer: Buffer, version: int, offset: int, end: int, most_parts: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _unpack_head(buffer, offset)
    offset += 17
    session_id, session_epoch = NO_SESSION
    if version >= SESSION_FROM:
        session_id, session_epoch = _unpack_session(buffer, offset)
        offset += 8
    parts: list[PartFields] = []
    topics, offset = _read_count(buffer, offset, end)
    _check_parts(topics, most_parts)
    for _ in range(topics):
        name, offset = read_string(buffer, offset, end)
        partitions, offset = _read_count(buffer, offset, end)
        _check_parts(len(parts) + partitions, most_parts)
        offset = _read_legacy_parts(buffer, version, offset, end, (name, partitions), parts)
    forgotten: list[ForgottenPart] = []
    if version >= SESSION_FROM:
        offset = _parse_legacy_forgotten(buffer, offset, end, forgotten, most_parts)
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
    (count,) = _unpack_int32(buffer, offset)
    if 0 <= count <= 1:  # too few to do harm, whatever is left: what they are made of is checked
        return count, offset + 4
    count, offset = read_array_count(buffer, offset, end)
    if count < 0:
        raise InvalidReceive("null array in Fetch")
    return count, offset


def _legacy_layout(version: int) -> struct.Struct:
    return _PART_V9 if version >= _LEADER_EPOCH_FROM else _PART_V5 if version >= LOG_START_FROM else _PART_V4


def _read_legacy_parts(
    buffer: Buffer, version: int, offset: int, end: int, topic: tuple[str, int], into: list[PartFields]
) -> int:
    """Read the partitions of a topic (name, how many) all at once; return where they end."""
    name, count = topic
    layout = _legacy_layout(version)
    stop = offset + count * layout.size
    check_end(stop, end)
    fields = layout.iter_unpack(buffer[offset:stop])
    if version >= _LEADER_EPOCH_FROM:
        into += [(name, None, at, epoch, first, -1, start, most) for at, epoch, first, start, most in fields]
    elif version >= LOG_START_FROM:
        into += [(name, None, at, -1, first, -1, start, most) for at, first, start, most in fields]
    else:
        into += [(name, None, at, -1, first, -1, -1, most) for at, first, most in fields]
    return stop


def _parse_legacy_forgotten(buffer: Buffer, offset: int, end: int, into: list[ForgottenPart], most_parts: int) -> int:
    topics, offset = _read_count(buffer, offset, end)
    _check_parts(topics, most_parts)
    for _ in range(topics):
        name, offset = read_string(buffer, offset, end)
        partitions, offset = _read_count(buffer, offset, end)
        _check_parts(len(into) + partitions, most_parts)
        for _ in range(partitions):
            into.append(ForgottenPart(name, None, _unpack_int32(buffer, offset)[0]))
            offset += 4
    return offset


def _parse_flexible(buffer: Buffer, version: int, offset: int, end: int, most_parts: int) -> tuple[FetchRequest, int]:
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = _unpack_int32(buffer, offset)
        offset += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _unpack_flexible_head(
        buffer, offset
    )
    parts: list[PartFields] = []
    offset = _parse_flexible_topics(buffer, version, offset + 21, end, parts, most_parts)
    forgotten: list[ForgottenPart] = []
    if buffer[offset] == _EMPTY_COMPACT_ARRAY:
        offset += 1
    else:
        offset = _parse_flexible_forgotten(buffer, version, offset, end, forgotten, most_parts)
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


def _parse_flexible_topics(
    buffer: Buffer, version: int, offset: int, end: int, into: list[PartFields], most_parts: int
) -> int:
    name: str | None = None
    topic_id: bytes | None = None
    topics, offset = read_compact_count(buffer, offset, end)
    _check_parts(topics, most_parts)
    for _ in range(topics):
        if version >= TOPIC_ID_FROM:
            topic_id = bytes(buffer[offset : offset + 16])
            offset += 16
        else:
            name, offset = read_compact_string(buffer, offset, end)
        partitions, offset = read_compact_count(buffer, offset, end)
        _check_parts(len(into) + partitions, most_parts)
        offset = _read_flexible_parts(buffer, offset, end, (name, topic_id, partitions), into)
        offset = offset + 1 if buffer[offset] == 0 else skip_tagged_fields(buffer, offset, end)
    return offset


def _read_flexible_parts(
    buffer: Buffer, offset: int, end: int, topic: tuple[str | None, bytes | None, int], into: list[PartFields]
) -> int:
    """Read the partitions of a topic (name, id, how many), all at once if none has tags; return where they end."""
    name, topic_id, count = topic
    stop = offset + count * _PART_V12.size
    if stop <= end:
        fields = list(_PART_V12.iter_unpack(buffer[offset:stop]))
        if not any(map(_TAGS, fields)):
            into += [
                (name, topic_id, at, epoch, first, last, start, most)
                for at, epoch, first, last, start, most, _ in fields
            ]
            return stop
    for _ in range(count):
        at, epoch, first, last, start, most, _ = _PART_V12.unpack_from(buffer, offset)
        into.append((name, topic_id, at, epoch, first, last, start, most))
        offset = skip_tagged_fields(buffer, offset + _PART_V12.size - 1, end)
    return offset


def _parse_flexible_forgotten(
    buffer: Buffer, version: int, offset: int, end: int, into: list[ForgottenPart], most_parts: int
) -> int:
    topics, offset = read_compact_count(buffer, offset, end)
    _check_parts(topics, most_parts)
    for _ in range(topics):
        (name, topic_id), offset = _read_topic(buffer, version, offset, end)
        partitions, offset = read_compact_count(buffer, offset, end)
        _check_parts(len(into) + partitions, most_parts)
        for _ in range(partitions):
            into.append(ForgottenPart(name, topic_id, _unpack_int32(buffer, offset)[0]))
            offset += 4
        offset = skip_tagged_fields(buffer, offset, end)
    return offset
