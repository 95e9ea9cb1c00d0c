"""ConsumerGroupHeartbeat, versions 0-1: what every member of a KIP-848 group sends every few seconds. HOT."""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    INT32,
    MALFORMED,
    Buffer,
    check_elements,
    check_end,
    compact_nullable_string_bytes,
    read_compact_array_count,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    skip_tagged_fields,
    unsigned_varint_bytes,
)
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps, finished

_REGEX_FROM: Final = 1
_UUID_BYTES: Final = 16

TopicPartitions = Mapping[bytes, frozenset[int]]


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """A request. None, and -1 for the timeout, stand for what has not changed since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: TopicPartitions | None = None

    @property
    def says_nothing_new(self) -> bool:
        """Whether it only says that the member is there, and in which epoch."""
        return self[4:] == _NOTHING_NEW


_NOTHING_NEW: Final = (None, -1, None, None, None, None)


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """An answer. ``assignment`` is None where the member knows it."""

    error_code: int
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None


_pack_size_and_correlation = struct.Struct(">ii").pack
_pack_head = struct.Struct(
    ">"
    "x"  # no tagged fields in the header
    "i"  # throttle_time_ms
    "h"  # error_code
).pack
_pack_epoch = struct.Struct(
    ">"
    "i"  # member_epoch
    "i"  # heartbeat_interval_ms
).pack
_unpack_int32 = INT32.unpack_from


def parse_consumer_group_heartbeat(
    buffer: Buffer, version: int, offset: int, end: int
) -> ConsumerGroupHeartbeatRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    return finished(parse_consumer_group_heartbeat_in_steps(buffer, version, offset, end))


def parse_consumer_group_heartbeat_in_steps(
    buffer: Buffer, version: int, offset: int, end: int
) -> Steps[ConsumerGroupHeartbeatRequest]:
    """Return what `parse_consumer_group_heartbeat` returns, some names or topics at a time. Raises InvalidReceive."""
    try:
        group_id, offset = read_compact_string(buffer, offset, end)
        member_id, offset = read_compact_string(buffer, offset, end)
        (member_epoch,) = _unpack_int32(buffer, offset)
        instance_id, offset = read_compact_nullable_string(buffer, offset + 4, end)
        rack_id, offset = read_compact_nullable_string(buffer, offset, end)
        (rebalance_timeout_ms,) = _unpack_int32(buffer, offset)
        names, offset = yield from _read_names(buffer, offset + 4, end)
        regex = None
        if version >= _REGEX_FROM:
            regex, offset = read_compact_nullable_string(buffer, offset, end)
        assignor, offset = read_compact_nullable_string(buffer, offset, end)
        partitions, offset = yield from _read_partitions(buffer, offset, end)
        offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed ConsumerGroupHeartbeat: {error}") from error
    check_end(offset, end)
    return ConsumerGroupHeartbeatRequest(
        group_id,
        member_id,
        member_epoch,
        instance_id,
        rack_id,
        rebalance_timeout_ms,
        names,
        regex,
        assignor,
        partitions,
    )


def encode_consumer_group_heartbeat_response(
    version: int, correlation_id: int, response: ConsumerGroupHeartbeatResponse
) -> bytes:
    """Return the answer, size and header included."""
    del version
    body = (
        _pack_head(0, response.error_code)
        + compact_nullable_string_bytes(response.error_message)
        + compact_nullable_string_bytes(response.member_id)
        + _pack_epoch(response.member_epoch, response.heartbeat_interval_ms)
        + (b"\xff\x00" if response.assignment is None else _assignment_bytes(response.assignment))
    )
    return _pack_size_and_correlation(len(body) + 4, correlation_id) + body


def _read_names(buffer: Buffer, offset: int, end: int) -> Steps[tuple[tuple[str, ...] | None, int]]:
    count, offset = read_compact_array_count(buffer, offset, end)
    if count < 0:
        return None, offset
    check_elements(count)
    names: list[str] = []
    for _ in range(count):
        name, offset = read_compact_string(buffer, offset, end)
        names.append(name)
        if not len(names) % ELEMENTS_AT_ONCE:
            yield
    return tuple(names), offset


def _read_partitions(buffer: Buffer, offset: int, end: int) -> Steps[tuple[TopicPartitions | None, int]]:
    topics, offset = read_compact_array_count(buffer, offset, end)
    if topics < 0:
        return None, offset
    elements = topics
    check_elements(elements)
    found: dict[bytes, set[int]] = {}
    for number in range(1, topics + 1):
        topic_id = bytes(buffer[offset : offset + _UUID_BYTES])
        count, offset = read_compact_count(buffer, offset + _UUID_BYTES, end)
        elements += count
        check_elements(elements)
        partitions = struct.unpack_from(f">{count}i", buffer, offset)
        offset = skip_tagged_fields(buffer, offset + 4 * count, end)
        if count:
            # A topic may stand more than once.
            found.setdefault(topic_id, set()).update(partitions)
        if not number % ELEMENTS_AT_ONCE:
            yield
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}, offset


def _assignment_bytes(assignment: TopicPartitions) -> bytes:
    parts = [b"\x01", unsigned_varint_bytes(len(assignment) + 1)]
    for topic_id, partitions in assignment.items():
        parts.append(topic_id)
        parts.append(unsigned_varint_bytes(len(partitions) + 1))
        parts.append(struct.pack(f">{len(partitions)}i", *sorted(partitions)))
        parts.append(b"\x00")
    # Tagged fields of the assignment, and of the answer.
    parts.append(b"\x00\x00")
    return b"".join(parts)
