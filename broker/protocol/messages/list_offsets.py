"""ListOffsets, versions 1-11: what every consumer asks before its first fetch of a partition."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from broker.protocol.sliced_responses import joined, not_noted
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps, finished

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
    return finished(parse_list_offsets_in_steps(buffer, version, offset, end))


def parse_list_offsets_in_steps(buffer: Buffer, version: int, offset: int, end: int) -> Steps[ListOffsetsRequest]:
    """Return what `parse_list_offsets` returns, some partitions at a time. Raises InvalidReceive."""
    try:
        if version >= _ISOLATION_AND_THROTTLE_FROM:
            replica_id, isolation_level = _unpack_replica_and_isolation(buffer, offset)
            offset += 5
        else:
            replica_id, isolation_level = _unpack_int32(buffer, offset)[0], 0
            offset += 4
        parts, offset = yield from _parse_topics(buffer, version, offset, end)
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


def _parse_topics(buffer: Buffer, version: int, offset: int, end: int) -> Steps[tuple[list[ListOffsetsPart], int]]:
    flexible = version >= FIRST_FLEXIBLE
    read_name = read_compact_string if flexible else read_string
    parts: list[ListOffsetsPart] = []
    topics, offset = _read_count(buffer, flexible, offset, end)
    check_elements(topics)
    for topic in range(1, topics + 1):
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
            if not (topic + len(parts)) % ELEMENTS_AT_ONCE:
                yield
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
        if not (topic + len(parts)) % ELEMENTS_AT_ONCE:
            yield
    return parts, offset


def _read_count(buffer: Buffer, flexible: bool, offset: int, end: int) -> tuple[int, int]:
    read = read_compact_array_count if flexible else read_array_count
    count, offset = read(buffer, offset, end)
    if count < 0:
        raise InvalidReceive("null array in ListOffsets")
    return count, offset


def encode_list_offsets_response(version: int, correlation_id: int, response: ListOffsetsResponse) -> bytes:
    """Return the answer, size and header included."""
    return joined(correlation_id, list_offsets_pieces(version, response, not_noted))


class OffsetsTemplate:
    """The answer for the same partitions each time, without errors: all of it but the offsets and their epochs."""

    __slots__ = ("_has_epochs", "_literals", "pack_into", "size_bytes")

    def __init__(self, version: int, parts: Sequence[tuple[str, int]]) -> None:
        """``parts``: (topic, partition)."""
        flexible = version >= FIRST_FLEXIBLE
        self._has_epochs = version >= _LEADER_EPOCH_FROM
        empty = [ListOffsetsPartResponse(name, partition, 0) for name, partition in parts]
        wire = encode_list_offsets_response(version, 0, ListOffsetsResponse(0, empty))
        topics = [(name, list(some)) for name, some in groupby(parts, itemgetter(0))]
        #: What varies in a part stands at its end, before its tags.
        part_bytes, end_bytes = len(_part_bytes(version, empty[0])), 1 if flexible else 0
        varying = "qi" if self._has_epochs else "q"
        varying_bytes = struct.calcsize(f">{varying}")
        at = 8 + end_bytes + (4 if version >= _ISOLATION_AND_THROTTLE_FROM else 0)
        at += len(_count_bytes(len(topics), flexible))
        layout, before = ">4si", 8
        for name, some in topics:
            at += len(compact_string_bytes(name) if flexible else string_bytes(name))
            at += len(_count_bytes(len(some), flexible))
            for _ in some:
                at += part_bytes
                place = at - end_bytes - varying_bytes
                layout += f"{place - before}s{varying}"
                before = place + varying_bytes
            at += end_bytes
        whole = struct.Struct(f"{layout}{len(wire) - before}s")
        self._literals = [value for value in whole.unpack(wire) if isinstance(value, bytes)]
        self.pack_into = whole.pack_into
        self.size_bytes = len(wire)

    def fill_into(
        self, buffer: memoryview | bytearray, at: int, correlation_id: int, found: Iterable[tuple[int, int]]
    ) -> None:
        """Write the whole answer; ``found``: (offset, leader epoch) of each partition. HOT."""
        literals = self._literals
        values: list[bytes | int] = [literals[0], correlation_id]
        for number, (offset, epoch) in enumerate(found, 1):
            values += (literals[number], offset, epoch) if self._has_epochs else (literals[number], offset)
        self.pack_into(buffer, at, *values, literals[-1])


def list_offsets_pieces(
    version: int, response: ListOffsetsResponse, note_error: Callable[[int], None]
) -> Iterator[list[bytes]]:
    """Yield the body of an answer in pieces of some partitions."""
    flexible = version >= FIRST_FLEXIBLE
    end = b"\x00" if flexible else b""
    topics: list[tuple[str, list[bytes]]] = []
    for number, part in enumerate(response.parts, 1):
        note_error(part.error_code)
        if not topics or topics[-1][0] != part.topic_name:
            topics.append((part.topic_name, []))
        topics[-1][1].append(_part_bytes(version, part))
        if not number % ELEMENTS_AT_ONCE:
            yield []
    throttle = _pack_int32(response.throttle_ms) if version >= _ISOLATION_AND_THROTTLE_FROM else b""
    pieces = [end + throttle + _count_bytes(len(topics), flexible)]
    for name, partitions in topics:
        head = compact_string_bytes(name) if flexible else string_bytes(name)
        pieces += (head, _count_bytes(len(partitions), flexible), b"".join(partitions), end)
        if len(pieces) >= ELEMENTS_AT_ONCE:
            yield pieces
            pieces = []
    yield [*pieces, end]


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)


def _part_bytes(version: int, part: ListOffsetsPartResponse) -> bytes:
    _, partition, error_code, timestamp, offset, leader_epoch = part
    if version < _LEADER_EPOCH_FROM:
        return _pack_part_v1(partition, error_code, timestamp, offset)
    packed = _pack_part_v4(partition, error_code, timestamp, offset, leader_epoch)
    return packed + b"\x00" if version >= FIRST_FLEXIBLE else packed
