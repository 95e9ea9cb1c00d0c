"""OffsetCommit, versions 2-10: what every consumer of a group sends as it reads. HOT.

Topics have names up to version 9 and ids from 10 on.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    ZERO_TOPIC_ID,
    Buffer,
    check_elements,
    check_end,
    compact_string_bytes,
    read_array_count,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    string_bytes,
    unsigned_varint_bytes,
)
from broker.protocol.sliced_responses import joined, not_noted
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps, finished

FIRST_FLEXIBLE: Final = 8
TOPIC_ID_FROM: Final = 10
NO_RETENTION: Final = -1
_THROTTLE_FROM: Final = 3
RETENTION_BEFORE: Final = 5
_LEADER_EPOCH_FROM: Final = 6
INSTANCE_FROM: Final = 7


class OffsetCommitPart(NamedTuple):
    """One partition. `leader_epoch` is -1 if the client does not know it."""

    partition_index: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetCommitTopic(NamedTuple):
    """One topic: its name is empty from version 10 on, its id is zero before."""

    name: str
    topic_id: bytes
    partitions: list[OffsetCommitPart]


class OffsetCommitRequest(NamedTuple):
    """A request. `generation` may be the epoch of a member; `retention_ms` is -1 but for old clients."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[OffsetCommitTopic]


class OffsetCommitPartResponse(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int


class OffsetCommitTopicResponse(NamedTuple):
    """The answer for one topic, which is named as in the request."""

    name: str
    topic_id: bytes
    partitions: Sequence[OffsetCommitPartResponse]


class OffsetCommitResponse(NamedTuple):
    """A whole answer."""

    topics: Sequence[OffsetCommitTopicResponse]


def refused(topics: Sequence[OffsetCommitTopic], error: int) -> OffsetCommitResponse:
    """Return the answer that has the same error for everything."""
    return OffsetCommitResponse([refused_topic(*topic, error) for topic in topics])


def refused_topic(
    name: str, topic_id: bytes, parts: Sequence[OffsetCommitPart], error: int
) -> OffsetCommitTopicResponse:
    """Return the answer that has the same error for every partition of a topic."""
    answers = [OffsetCommitPartResponse(part.partition_index, error) for part in parts]
    return OffsetCommitTopicResponse(name, topic_id, answers)


_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_int64 = struct.Struct(">q").unpack_from
_unpack_part_v2 = struct.Struct(
    ">"
    "i"  # partition_index
    "q"  # committed_offset
).unpack_from
_unpack_part_v6 = struct.Struct(
    ">"
    "i"  # partition_index
    "q"  # committed_offset
    "i"  # committed_leader_epoch
).unpack_from
_pack_int32 = struct.Struct(">i").pack
_pack_part = struct.Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
).pack


def parse_offset_commit(
    buffer: Buffer, version: int, offset: int, end: int, places: list[int] | None = None
) -> OffsetCommitRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed.

    `places` gets where in `buffer` the committed offset of each partition stands.
    """
    return finished(_parse(buffer, version, (offset, end), [] if places is None else places))


def parse_offset_commit_in_steps(buffer: Buffer, version: int, offset: int, end: int) -> Steps[OffsetCommitRequest]:
    """Return what `parse_offset_commit` returns, some partitions at a time. Raises InvalidReceive."""
    return _parse(buffer, version, (offset, end), [])


def _parse(buffer: Buffer, version: int, span: tuple[int, int], places: list[int]) -> Steps[OffsetCommitRequest]:
    offset, end = span
    flexible = version >= FIRST_FLEXIBLE
    read_text = read_compact_string if flexible else read_string
    instance_id, retention_ms = None, NO_RETENTION
    try:
        group_id, offset = read_text(buffer, offset, end)
        (generation,) = _unpack_int32(buffer, offset)
        member_id, offset = read_text(buffer, offset + 4, end)
        if version >= INSTANCE_FROM:
            read = read_compact_nullable_string if flexible else read_nullable_string
            instance_id, offset = read(buffer, offset, end)
        elif version < RETENTION_BEFORE:
            (retention_ms,) = _unpack_int64(buffer, offset)
            offset += 8
        topics, offset = yield from _parse_topics(buffer, version, (offset, end), places)
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed OffsetCommit: {error}") from error
    check_end(offset, end)
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _parse_topics(
    buffer: Buffer, version: int, span: tuple[int, int], places: list[int]
) -> Steps[tuple[list[OffsetCommitTopic], int]]:
    offset, end = span
    flexible = version >= FIRST_FLEXIBLE
    name, topic_id = "", ZERO_TOPIC_ID
    topics: list[OffsetCommitTopic] = []
    count, offset = _read_count(buffer, flexible, offset, end)
    check_elements(count)
    for number in range(1, count + 1):
        if version >= TOPIC_ID_FROM:
            topic_id = bytes(buffer[offset : offset + 16])
            offset += 16
        else:
            name, offset = (read_compact_string if flexible else read_string)(buffer, offset, end)
        parts, offset = yield from _parse_parts(buffer, version, (offset, end), places)
        topics.append(OffsetCommitTopic(name, topic_id, parts))
        if not number % ELEMENTS_AT_ONCE:
            yield
    return topics, offset


def _parse_parts(
    buffer: Buffer, version: int, span: tuple[int, int], places: list[int]
) -> Steps[tuple[list[OffsetCommitPart], int]]:
    """Return the parts of a topic, and the offset behind the topic's last field."""
    offset, end = span
    flexible = version >= FIRST_FLEXIBLE
    parts: list[OffsetCommitPart] = []
    leader_epoch = -1
    count, offset = _read_count(buffer, flexible, offset, end)
    check_elements(len(places) + count)
    for _ in range(count):
        places.append(offset + 4)
        if version >= _LEADER_EPOCH_FROM:
            partition, committed, leader_epoch = _unpack_part_v6(buffer, offset)
            offset += 16
        else:
            partition, committed = _unpack_part_v2(buffer, offset)
            offset += 12
        if flexible:
            metadata, offset = read_compact_nullable_string(buffer, offset, end)
            offset = skip_tagged_fields(buffer, offset, end)
        else:
            metadata, offset = read_nullable_string(buffer, offset, end)
        parts.append(OffsetCommitPart(partition, committed, leader_epoch, metadata))
        if not len(places) % ELEMENTS_AT_ONCE:
            yield
    if flexible:
        offset = skip_tagged_fields(buffer, offset, end)
    return parts, offset


def _read_count(buffer: Buffer, flexible: bool, offset: int, end: int) -> tuple[int, int]:
    if flexible:
        return read_compact_count(buffer, offset, end)
    count, offset = read_array_count(buffer, offset, end)
    if count < 0:
        raise InvalidReceive("null array in OffsetCommit")
    return count, offset


def encode_offset_commit_response(version: int, correlation_id: int, response: OffsetCommitResponse) -> bytes:
    """Return the answer, size and header included."""
    return joined(correlation_id, offset_commit_pieces(version, response, not_noted))


def offset_commit_pieces(
    version: int, response: OffsetCommitResponse, note_error: Callable[[int], None]
) -> Iterator[list[bytes]]:
    """Yield the body of an answer in pieces of some partitions."""
    flexible = version >= FIRST_FLEXIBLE
    end = b"\x00" if flexible else b""
    throttle = bytes(4) if version >= _THROTTLE_FROM else b""
    pieces = [end, throttle, _count_bytes(len(response.topics), flexible)]
    for name, topic_id, parts in response.topics:
        if version >= TOPIC_ID_FROM:
            pieces.append(topic_id)
        else:
            pieces.append(compact_string_bytes(name) if flexible else string_bytes(name))
        pieces.append(_count_bytes(len(parts), flexible))
        for start in range(0, len(parts), ELEMENTS_AT_ONCE):
            for partition, error in parts[start : start + ELEMENTS_AT_ONCE]:
                note_error(error)
                pieces.append(_pack_part(partition, error) + end)
            if len(pieces) >= ELEMENTS_AT_ONCE:
                yield pieces
                pieces = []
        pieces.append(end)
    yield [*pieces, end]


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)
