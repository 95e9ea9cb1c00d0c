"""Metadata, versions 0-13: which topics there are and where; every client asks it again and again."""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    ZERO_TOPIC_ID,
    Buffer,
    check_elements,
    check_end,
    compact_nullable_string_bytes,
    compact_string_bytes,
    nullable_string_bytes,
    read_array_count,
    read_compact_array_count,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    skip_tagged_fields,
    string_bytes,
    unsigned_varint_bytes,
)
from broker.protocol.sliced_responses import joined, not_noted
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps, finished

FIRST_FLEXIBLE: Final = 9
NO_OPERATIONS: Final = -(2**31)
"""What stands for authorized operations that were not asked for."""
_CONTROLLER_FROM: Final = 1
_CLUSTER_ID_FROM: Final = 2
_THROTTLE_FROM: Final = 3
_AUTO_CREATION_FROM: Final = 4
_OFFLINE_REPLICAS_FROM: Final = 5
_LEADER_EPOCH_FROM: Final = 7
_OPERATIONS_FROM: Final = 8
_CLUSTER_OPERATIONS_LAST: Final = 10
_TOPIC_ID_FROM: Final = 10
_NULLABLE_NAME_FROM: Final = 12
_ERROR_CODE_FROM: Final = 13

#: How many bits of an answer are put together between two yields: about half a millisecond.
_CHUNKS_A_PIECE: Final = 300

_T_co = TypeVar("_T_co", covariant=True)


class Counted(Protocol[_T_co]):
    """Things that are gone through once, their number being known before."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[_T_co]: ...


class MetadataRequestTopic(NamedTuple):
    """A topic asked for: by name, or with name None by its id of 16 bytes."""

    topic_id: bytes
    name: str | None


class MetadataRequest(NamedTuple):
    """A request; `topics` None asks for all."""

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataBroker(NamedTuple):
    """A broker and where to reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataPartition(NamedTuple):
    """A partition; the sequences hold broker ids."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class MetadataTopic(NamedTuple):
    """A topic, or with an error code what is wrong with it.

    The name may be None if it was asked for by id.
    """

    error_code: int
    name: str | None
    topic_id: bytes = ZERO_TOPIC_ID
    is_internal: bool = False
    partitions: Counted[MetadataPartition] = ()
    topic_authorized_operations: int = NO_OPERATIONS


class MetadataResponse(NamedTuple):
    """An answer."""

    throttle_ms: int
    brokers: Counted[MetadataBroker]
    cluster_id: str | None
    controller_id: int
    topics: Counted[MetadataTopic]
    cluster_authorized_operations: int = NO_OPERATIONS
    error_code: int = 0


_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_pack_partition_head = struct.Struct(
    ">"
    "h"  # error_code
    "i"  # partition_index
    "i"  # leader_id
).pack
_pack_partition_head_v7 = struct.Struct(
    ">"
    "h"  # error_code
    "i"  # partition_index
    "i"  # leader_id
    "i"  # leader_epoch
).pack


def parse_metadata(buffer: Buffer, version: int, offset: int, end: int) -> MetadataRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    return finished(parse_metadata_in_steps(buffer, version, offset, end))


def parse_metadata_in_steps(buffer: Buffer, version: int, offset: int, end: int) -> Steps[MetadataRequest]:
    """Return what `parse_metadata` returns, some topics at a time. Raises InvalidReceive."""
    auto_creation, cluster_operations, topic_operations = True, False, False
    try:
        topics, offset = yield from _parse_topics(buffer, version, offset, end)
        if version >= _AUTO_CREATION_FROM:
            auto_creation = buffer[offset] != 0
            offset += 1
        if _OPERATIONS_FROM <= version <= _CLUSTER_OPERATIONS_LAST:
            cluster_operations = buffer[offset] != 0
            offset += 1
        if version >= _OPERATIONS_FROM:
            topic_operations = buffer[offset] != 0
            offset += 1
        if version >= FIRST_FLEXIBLE:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Metadata: {error}") from error
    check_end(offset, end)
    return MetadataRequest(topics, auto_creation, cluster_operations, topic_operations)


def _parse_topics(
    buffer: Buffer, version: int, offset: int, end: int
) -> Steps[tuple[list[MetadataRequestTopic] | None, int]]:
    flexible = version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if flexible else read_array_count
    count, offset = read_count(buffer, offset, end)
    if count < 0:
        if version == 0:
            raise InvalidReceive("null array in Metadata version 0")
        return None, offset
    if count == 0 and version == 0:
        return None, offset
    check_elements(count)
    topics = []
    for number in range(1, count + 1):
        topic, offset = _parse_topic(buffer, version, offset, end)
        topics.append(topic)
        if not number % ELEMENTS_AT_ONCE:
            yield
    return topics, offset


def _parse_topic(buffer: Buffer, version: int, offset: int, end: int) -> tuple[MetadataRequestTopic, int]:
    if version < FIRST_FLEXIBLE:
        legacy_name, offset = read_string(buffer, offset, end)
        return MetadataRequestTopic(ZERO_TOPIC_ID, legacy_name), offset
    topic_id = ZERO_TOPIC_ID
    name: str | None
    if version >= _TOPIC_ID_FROM:
        topic_id = bytes(buffer[offset : offset + 16])
        name, offset = read_compact_nullable_string(buffer, offset + 16, end)
    else:
        name, offset = read_compact_string(buffer, offset, end)
    return MetadataRequestTopic(topic_id, name), skip_tagged_fields(buffer, offset, end)


def encode_metadata_response(version: int, correlation_id: int, response: MetadataResponse) -> bytes:
    """Return the answer, size and header included."""
    return joined(correlation_id, metadata_pieces(version, response, not_noted))


def metadata_pieces(
    version: int, response: MetadataResponse, note_error: Callable[[int], None]
) -> Iterator[list[bytes]]:
    """Yield the body of an answer in pieces of some hundred partitions or some dozen topics."""
    flexible = version >= FIRST_FLEXIBLE
    end = b"\x00" if flexible else b""
    chunks = [*_head(version, response), _count_bytes(len(response.topics), flexible)]
    for topic in response.topics:
        note_error(topic.error_code)
        chunks.append(_topic_head(version, topic))
        partitions = iter(topic.partitions)
        while some := [_partition_bytes(version, each) for each in islice(partitions, _CHUNKS_A_PIECE)]:
            chunks += some
            if len(chunks) >= _CHUNKS_A_PIECE:
                yield chunks
                chunks = []
        if version >= _OPERATIONS_FROM:
            chunks.append(_pack_int32(topic.topic_authorized_operations))
        chunks.append(end)
        if len(chunks) >= _CHUNKS_A_PIECE:
            yield chunks
            chunks = []
    if _OPERATIONS_FROM <= version <= _CLUSTER_OPERATIONS_LAST:
        chunks.append(_pack_int32(response.cluster_authorized_operations))
    if version >= _ERROR_CODE_FROM:
        chunks.append(_pack_int16(response.error_code))
    chunks.append(end)
    yield chunks


def _head(version: int, response: MetadataResponse) -> Iterator[bytes]:
    """Yield what stands before the topics."""
    flexible = version >= FIRST_FLEXIBLE
    nullable_string = compact_nullable_string_bytes if flexible else nullable_string_bytes
    yield b"\x00" if flexible else b""
    if version >= _THROTTLE_FROM:
        yield _pack_int32(response.throttle_ms)
    yield _count_bytes(len(response.brokers), flexible)
    for broker in response.brokers:
        yield _broker_bytes(version, broker)
    if version >= _CLUSTER_ID_FROM:
        yield nullable_string(response.cluster_id)
    if version >= _CONTROLLER_FROM:
        yield _pack_int32(response.controller_id)


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else _pack_int32(count)


def _broker_bytes(version: int, broker: MetadataBroker) -> bytes:
    node_id, host, port, rack = broker
    if version >= FIRST_FLEXIBLE:
        where = compact_string_bytes(host) + _pack_int32(port)
        return _pack_int32(node_id) + where + compact_nullable_string_bytes(rack) + b"\x00"
    packed = _pack_int32(node_id) + string_bytes(host) + _pack_int32(port)
    return packed + nullable_string_bytes(rack) if version >= _CONTROLLER_FROM else packed


def _topic_head(version: int, topic: MetadataTopic) -> bytes:
    """Return a topic up to and including the count of its partitions."""
    error_code, name, topic_id, is_internal, partitions, _ = topic
    flexible = version >= FIRST_FLEXIBLE
    head = _pack_int16(error_code)
    if version >= _NULLABLE_NAME_FROM:
        head += compact_nullable_string_bytes(name)
    else:
        head += compact_string_bytes(name or "") if flexible else string_bytes(name or "")
    if version >= _TOPIC_ID_FROM:
        head += topic_id
    if version >= _CONTROLLER_FROM:
        head += b"\x01" if is_internal else b"\x00"
    return head + _count_bytes(len(partitions), flexible)


def _partition_bytes(version: int, part: MetadataPartition) -> bytes:
    error_code, partition, leader_id, leader_epoch, replicas, in_sync, offline = part
    flexible = version >= FIRST_FLEXIBLE
    if version >= _LEADER_EPOCH_FROM:
        head = _pack_partition_head_v7(error_code, partition, leader_id, leader_epoch)
    else:
        head = _pack_partition_head(error_code, partition, leader_id)
    head += _nodes_bytes(replicas, flexible) + _nodes_bytes(in_sync, flexible)
    if version >= _OFFLINE_REPLICAS_FROM:
        head += _nodes_bytes(offline, flexible)
    return head + b"\x00" if flexible else head


def _nodes_bytes(nodes: Sequence[int], flexible: bool) -> bytes:
    if flexible:
        return unsigned_varint_bytes(len(nodes) + 1) + struct.pack(f">{len(nodes)}i", *nodes)
    return struct.pack(f">{len(nodes) + 1}i", len(nodes), *nodes)
