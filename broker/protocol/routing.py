"""The routing of requests to handlers, and of partitions to owners. HOT: processors call it once per request.

Pure functions of stable hashes, the same in every process and every run. Only the routing key is read: the group or
transactional id, or the first topic and partition of a Produce. Whether the frame is well-formed beyond that is the
handler's business.

As in Kafka, an id belongs to the partition of `__consumer_offsets` or `__transaction_state` that the Java hash of its
text selects, and the owner of that partition is its coordinator. The delivery state of a share group is in
`__share_group_state`, by the same hash of its group id.

A topic's hash is the CRC-32 of its name. Requests with a topic id are routed alike because the ids that this broker
makes end with that hash (`topic_id_for`).
"""

import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import (
    CONTROLLER,
    FLEXIBLE_FROM,
    GROUP,
    SHARE_GROUP,
    TRANSACTIONAL_ID,
    ApiKey,
    Owner,
)
from rotunda.broker.protocol.primitives import MALFORMED, Buffer, read_unsigned_varint, skip_tagged_fields

GROUP_TOPIC: Final = GROUP.topic
TRANSACTION_TOPIC: Final = TRANSACTIONAL_ID.topic
SHARE_TOPIC: Final = SHARE_GROUP.topic

#: Topics that belong to the broker itself and are marked as internal in Metadata: their partitions have coordinators.
INTERNAL_TOPICS: Final = (GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC)

_CLIENT_ID_OFFSET: Final = 8
_MOST_REMEMBERED: Final = 8192

#: Longer ids are not cached, so that no client can fill the memory with them; and the maximum length in a record.
_LONGEST_REMEMBERED: Final = 256
_LONGEST: Final = 2**15 - 1

#: The one number whose magnitude does not fit Java's `int`: it counts as 0.
_NO_MAGNITUDE: Final = -(2**31)

_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from


class CoordinatorPartitions(NamedTuple):
    """The numbers of partitions of the internal topics."""

    groups: int = 4
    transactions: int = 4
    share_groups: int = 4

    def of(self, topic: str) -> int:
        return self[INTERNAL_TOPICS.index(topic)]


_OWNERS: Final[Mapping[int, Owner]] = MappingProxyType(
    {int(key): key.owner for key in ApiKey if key.owner.topic in INTERNAL_TOPICS}
)

COORDINATED_KEYS: Final = frozenset(_OWNERS)
"""APIs with requests for the owner of their group or transactional id."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of a text, as a signed 32-bit number."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def coordinator_partition(name: str, partitions: int) -> int:
    """Return the partition that stores a group or transactional id (Kafka's `partitionFor`)."""
    value = java_hash(name)
    return 0 if value == _NO_MAGNITUDE else abs(value) % partitions


@lru_cache(_MOST_REMEMBERED)
def _partition_of_bytes(name: bytes, partitions: int) -> int:
    return coordinator_partition(name.decode("utf-8", "replace"), partitions)


def coordinator_of(
    frame: Buffer, api_key: int, api_version: int, partitions: CoordinatorPartitions
) -> tuple[str, int] | None:
    """Return (topic, partition) of the id in a request, or None when it has none.

    InvalidReceive when the id is missing.
    """
    owner, name = _OWNERS[api_key], coordinated_id(frame, api_key, api_version)
    if name is None:
        return None
    if len(name) <= _LONGEST_REMEMBERED:
        return owner.topic, _partition_of_bytes(name, partitions.of(owner.topic))
    # Longer ids do not fit into a record: every coordinator rejects them.
    return owner.topic, coordinator_partition(name[:_LONGEST].decode("utf-8", "replace"), partitions.of(owner.topic))


def coordinated_id(frame: Buffer, api_key: int, api_version: int) -> bytes | None:
    """Return the group or transactional id in a request, or None when it has none.

    InvalidReceive when the id is missing.
    """
    owner = _OWNERS[api_key]
    try:
        return _read_key(frame, owner, api_version, is_flexible=api_version >= FLEXIBLE_FROM[api_key])
    except MALFORMED as error:
        raise InvalidReceive(f"api key {api_key} without a routing key: {error}") from error


def _read_key(frame: Buffer, owner: Owner, version: int, *, is_flexible: bool) -> bytes | None:
    offset = _after_client_id(frame)
    if is_flexible:
        offset = skip_tagged_fields(frame, offset, len(frame))
    if version >= owner.array_from:
        if is_flexible:
            count, offset = read_unsigned_varint(frame, offset)
            count -= 1
        else:
            (count,) = _unpack_int32(frame, offset)
            offset += 4
        if count <= 0:
            return None
    name, offset = _read_string(frame, offset, is_flexible)
    if owner.is_second:
        name, offset = _read_string(frame, offset, is_flexible)
    return name


def _read_string(frame: Buffer, offset: int, is_flexible: bool) -> tuple[bytes | None, int]:
    if is_flexible:
        length, offset = read_unsigned_varint(frame, offset)
        length -= 1
    else:
        (length,) = _unpack_int16(frame, offset)
        offset += 2
    if length < 0:
        return None, offset
    return bytes(frame[offset : offset + length]), offset + length


CONTROLLER_KEYS: Final = frozenset([int(key) for key in ApiKey if key.owner is CONTROLLER])
"""APIs that change metadata, which only the controller writes."""

_PRODUCE: Final = int(ApiKey.PRODUCE)
_INIT_PRODUCER_ID: Final = int(ApiKey.INIT_PRODUCER_ID)

MAYBE_CONTROLLER_KEYS: Final = CONTROLLER_KEYS | {_INIT_PRODUCER_ID}
"""APIs with some requests for the controller; a single handler gets all others."""

_TOPIC_ID_ENTROPY_BYTES: Final = 12
_ACKS_AND_TIMEOUT_BYTES: Final = 6

_INTERNAL_TOPIC_HASHES: Final = {name: zlib.crc32(name.encode()) for name in INTERNAL_TOPICS}

_crc32 = zlib.crc32


def topic_hash(name: bytes) -> int:
    """Stable hash of a topic name or transactional id: its CRC-32."""
    return _crc32(name)


def topic_id_hash(topic_id: bytes) -> int:
    """Return the `topic_hash` that a topic id made by `topic_id_for` carries in its last four bytes."""
    return int.from_bytes(topic_id[-4:], "big")


def topic_id_for(name: bytes, entropy: bytes) -> bytes:
    """Return a topic id of 16 bytes for a new topic: 12 bytes of `entropy`, then the topic's hash.

    It has the version and variant bits of a random UUID, and its text form never starts with "-", which Kafka avoids
    because command lines parse it as an option.
    """
    head = bytearray(entropy[:_TOPIC_ID_ENTROPY_BYTES])
    if head[0] >> 2 == 0x3E:  # "-" in URL-safe base64
        head[0] &= 0x7F
    head[6] = head[6] & 0x0F | 0x40
    head[8] = head[8] & 0x3F | 0x80
    return bytes(head) + _crc32(name).to_bytes(4, "big")


def owner_of(name_hash: int, partition: int, handlers: int) -> int:
    """Return the index of the handler that owns a partition (`E04`, `E23`): round-robin within a topic."""
    return (name_hash + partition) % handlers


def owner_of_coordinator(topic: str, partition: int, handlers: int) -> int:
    """Index of the handler that owns a partition of an internal topic, and so coordinates the ids in it."""
    return (_INTERNAL_TOPIC_HASHES[topic] + partition) % handlers


def route(
    frame: Buffer,
    api_key: int,
    api_version: int,
    connection_id: int,
    handlers: int,
    coordinators: CoordinatorPartitions = CoordinatorPartitions(),  # noqa: B008 - an immutable value
) -> int:
    """Return the index of the target of a request: a handler, or `handlers` for the controller.

    `frame` starts at the api key and reaches at least to the first partition index. InvalidReceive when a required
    routing key is missing.
    """
    if api_key == _PRODUCE:
        if handlers == 1:
            return 0
        return route_produce(frame, api_version, connection_id, handlers)[0]
    if api_key in CONTROLLER_KEYS:
        return handlers
    if api_key in COORDINATED_KEYS:
        kept_in = coordinator_of(frame, api_key, api_version, coordinators)
        if kept_in is not None:
            return owner_of_coordinator(*kept_in, handlers)
        if api_key == _INIT_PRODUCER_ID:
            # Without a transactional id the controller hands out a producer id.
            return handlers
    return (connection_id + (connection_id >> 48)) % handlers


def route_produce(frame: Buffer, version: int, connection_id: int, handlers: int) -> tuple[int, bool]:
    """Return (the handler of a Produce, whether it names no more than one partition).

    InvalidReceive when the routing key is missing.
    """
    try:
        key, is_single = _flexible_produce_key(frame, version) if version >= 9 else _legacy_produce_key(frame)
    except MALFORMED as error:
        raise InvalidReceive(f"Produce without a routing key: {error}") from error
    return (connection_id + (connection_id >> 48) if key is None else key) % handlers, is_single


def _after_client_id(frame: Buffer) -> int:
    length: int = _unpack_int16(frame, _CLIENT_ID_OFFSET)[0]
    return _CLIENT_ID_OFFSET + 2 + length if length > 0 else _CLIENT_ID_OFFSET + 2


def _legacy_produce_key(frame: Buffer) -> tuple[int | None, bool]:
    offset = _after_client_id(frame)
    (length,) = _unpack_int16(frame, offset)
    offset += 2 + _ACKS_AND_TIMEOUT_BYTES
    if length > 0:
        offset += length
    (topics,) = _unpack_int32(frame, offset)
    if topics <= 0:
        return None, True
    (length,) = _unpack_int16(frame, offset + 4)
    if length < 0:
        raise InvalidReceive("null topic name in Produce")
    offset += 6
    stop = offset + length
    (partitions,) = _unpack_int32(frame, stop)
    if partitions <= 0:
        return None, topics == 1
    (partition,) = _unpack_int32(frame, stop + 4)
    return _crc32(frame[offset:stop]) + partition, topics == 1 and partitions == 1


def _flexible_produce_key(frame: Buffer, version: int) -> tuple[int | None, bool]:
    offset = _after_client_id(frame)
    offset = offset + 1 if frame[offset] == 0 else skip_tagged_fields(frame, offset, len(frame))
    length = frame[offset]
    offset += 1
    if length:
        length, offset = read_unsigned_varint(frame, offset - 1)
        offset += length - 1
    topics, offset = read_unsigned_varint(frame, offset + _ACKS_AND_TIMEOUT_BYTES)
    # Compact counts are one more than the number of elements.
    if topics <= 1:
        return None, True
    if version >= 13:
        offset += 16
        name_hash = int.from_bytes(frame[offset - 4 : offset], "big")
    else:
        length, offset = read_unsigned_varint(frame, offset)
        if length == 0:
            raise InvalidReceive("null topic name in Produce")
        stop = offset + length - 1
        name_hash = _crc32(frame[offset:stop])
        offset = stop
    partitions, offset = read_unsigned_varint(frame, offset)
    if partitions <= 1:
        return None, topics == 2
    partition: int = _unpack_int32(frame, offset)[0]
    return name_hash + partition, topics == 2 and partitions == 2
