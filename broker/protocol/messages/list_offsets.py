"""ListOffsets, versions 1-11: what every consumer asks before its first fetch of a partition."""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_elements,
    check_end,
    compact_string_bytes,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    skip_tagged_fields,
    string_bytes,
    unsigned_varint_bytes,
)

FIRST_FLEXIBLE: Final = 6
_ISOLATION_AND_THROTTLE_FROM: Final = 2
_LEADER_EPOCH_FROM: Final = 4
_TIMEOUT_FROM: Final = 10


class ListOffsetsPart(NamedTuple):
    """One partition to look in. `timestamp` is in milliseconds, or a negative number with a meaning."""

    topic_name: str
    partition: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsRequest(NamedTuple):
    """A request, its parts in the order in which they stand on the wire.

    `timeout_ms` is 0 below version 10.
    """

    replica_id: int
    isolation_level: int
    parts: list[ListOffsetsPart]
    timeout_ms: int = 0


class ListOffsetsPartResponse(NamedTuple):
    """The answer for one partition."""

    topic_name: str
    partition: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """A whole answer; neighbouring parts of one topic share its entry."""

    throttle_ms: int
    parts: Sequence[ListOffsetsPartResponse]


_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_replica_and_isolation = struct.Struct(">ib").unpack_from
_unpack_part_v1 = struct.Struct(
    ">"
    "i"  # partition_index
    "q"  # timestamp
).unpack_from
_unpack_part_v4 = struct.Struct(
    ">"
    "i"  # partition_index
    "i"  # current_leader_epoch
    "q"  # timestamp
).unpack_from
_pack_size_and_correlation = struct.Struct(">ii").pack
_pack_int32 = struct.Struct(">i").pack
_pack_part_v1 = struct.Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
    "q"  # timestamp
    "q"  # offset
).pack
_pack_part_v4 = struct.Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
    "q"  # timestamp
    "q"  # offset
    "i"  # leader_epoch
).pack


def parse_list_offsets(buffer: Buffer, version: int, offset: int, end: int) -> ListOffsetsRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    try:
        if version >= _ISOLATION_AND_THROTTLE_FROM:
            replica_id, isolation_level = _unpack_replica_and_isolation(buffer, offset)
            offset += 5
        else:
            replica_id, isolation_level = _unpack_int32(buffer, offset)[0], 0
            offset += 4
        parts, offset = _parse_topics(buffer, version, offset, end)
        timeout_ms = 0
        if version >= _TIMEOUT_FROM:
            (timeout_ms,) = _unpack_int32(buffer, offset)
            offset += 4
        if version >= FIRST_FLEXIBLE:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed ListOffsets: {error}") from error
    check_end(offset, end)
    return ListOffsetsRequest(replica_id, isolation_level, parts, timeout_ms)


def _parse_topics(buffer: Buffer, version: int, offset: int, end: int) -> tuple[list[ListOffsetsPart], int]:
    flexible = version >= FIRST_FLEXIBLE
    read_name = read_compact_string if flexible else read_string
    parts: list[ListOffsetsPart] = []
    topics, offset = _read_count(buffer, flexible, offset, end)
    check_elements(topics)
    for _ in range(topics):
        name, offset = read_name(buffer, offset, end)
        partitions, offset = _read_count(buffer, flexible, offset, end)
        check_elements(len(parts) + partitions)
        for _ in range(partitions):
            if version >= _LEADER_EPOCH_FROM:
                partition, leader_epoch, timestamp = _unpack_part_v4(buffer, offset)
                offset += 16
            else:
                (partition, timestamp), leader_epoch = _unpack_part_v1(buffer, offset), -1
                offset += 12
            parts.append(ListOffsetsPart(name, partition, leader_epoch, timestamp))
            if flexible:
                offset = skip_tagged_fields(buffer, offset, end)
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
    return parts, offset


def _read_count(buffer: Buffer, flexible: bool, offset: int, end: int) -> tuple[int, int]:
    read = read_compact_array_count if flexible else read_array_count
    count, offset = read(buffer, offset, end)
    if count < 0:
        raise InvalidReceive("null array in ListOffsets")
    return count, offset


def encode_list_offsets_response(version: int, correlation_id: int, response: ListOffsetsResponse) -> bytes:
    """Return the answer, size and header included."""
    flexible = version >= FIRST_FLEXIBLE
    end = b"\x00" if flexible else b""
    topics = []
    for name, group in groupby(response.parts, itemgetter(0)):
        partitions = [_part_bytes(version, part) for part in group]
        head = compact_string_bytes(name) if flexible else string_bytes(name)
        topics.append(head + _count_bytes(len(partitions), flexible) + b"".join(partitions) + end)
    throttle = _pack_int32(response.throttle_ms) if version >= _ISOLATION_AND_THROTTLE_FROM else b""
    body = end + throttle + _count_bytes(len(topics), flexible) + b"".join(topics) + end
    return _pack_size_and_correlation(len(body) + 4, correlation_id) + body


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)


def _part_bytes(version: int, part: ListOffsetsPartResponse) -> bytes:
    _, partition, error_code, timestamp, offset, leader_epoch = part
    if version < _LEADER_EPOCH_FROM:
        return _pack_part_v1(partition, error_code, timestamp, offset)
    packed = _pack_part_v4(partition, error_code, timestamp, offset, leader_epoch)
    return packed + b"\x00" if version >= FIRST_FLEXIBLE else packed
