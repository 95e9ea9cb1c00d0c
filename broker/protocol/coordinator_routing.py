"""The routing of groups and transactional ids: their partition of the internal topic, and so their handler. HOT.

Pure; processors call it once per request of these APIs. As in Kafka, an id belongs to the partition of
`__consumer_offsets` or `__transaction_state` that the Java hash of its text selects, and the owner of that partition is
its coordinator: it commits its promises to a log of its own, in its own process. The delivery state of a share group is
in `__share_group_state`, by the same hash of its group id.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import FLEXIBLE_FROM, GROUP, SHARE_GROUP, TRANSACTIONAL_ID, ApiKey, Owner
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
    (length,) = _unpack_int16(frame, _CLIENT_ID_OFFSET)
    offset = _CLIENT_ID_OFFSET + 2 + max(length, 0)
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
