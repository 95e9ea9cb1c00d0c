"""The codec of the classic consumer protocol: subscriptions and assignments, as members exchange them.

Pure. ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. To a coordinator of classic groups
they are bytes; it reads them only where such consumers are members of a consumer group (KIP-848).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.errors import ApiError, InvalidReceive
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import (
    INT16,
    INT32,
    MALFORMED,
    check_end,
    read_array_count,
    read_nullable_string,
    read_string,
    string_bytes,
)

#: By topic, the partitions.
Partitions = Mapping[str, frozenset[int]]

_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_NULL: Final = INT32.pack(-1)


class Subscription(NamedTuple):
    """What a consumer subscribes to, and what it owns as it joins."""

    version: int
    topic_names: frozenset[str]
    owned: Partitions
    rack_id: str | None


def decode_subscription(data: bytes) -> Subscription:
    """Return a subscription. ApiError INCONSISTENT_GROUP_PROTOCOL when it is malformed."""
    try:
        end = len(data)
        (version,) = INT16.unpack_from(data)
        count, offset = read_array_count(data, INT16.size, end)
        names = []
        for _ in range(count):
            name, offset = read_string(data, offset, end)
            names.append(name)
        (size,) = INT32.unpack_from(data, offset)
        offset += INT32.size + max(size, 0)
        owned: Partitions = {}
        if version >= _OWNED_FROM:
            owned, offset = _read_partitions(data, offset)
        if version >= _GENERATION_FROM:
            offset += INT32.size
        check_end(offset, end)
        rack_id = read_nullable_string(data, offset, end)[0] if version >= _RACK_FROM else None
    except (*MALFORMED, InvalidReceive) as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed subscription: {error}") from error
    return Subscription(version, frozenset(names), owned, rack_id)


def decode_assignment(data: bytes) -> Partitions:
    """Return the partitions of an assignment; none for no bytes. ApiError when it is malformed."""
    if not data:
        return {}
    try:
        return _read_partitions(data, INT16.size)[0]
    except (*MALFORMED, InvalidReceive) as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed assignment: {error}") from error


def encode_assignment(version: int, partitions: Partitions) -> bytes:
    """Return the bytes of an assignment."""
    parts = [INT16.pack(version), INT32.pack(len(partitions))]
    for name, indexes in sorted(partitions.items()):
        parts.append(string_bytes(name))
        parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *sorted(indexes)))
    return b"".join(parts) + _NULL


def _read_partitions(data: bytes, offset: int) -> tuple[Partitions, int]:
    count, offset = read_array_count(data, offset, len(data))
    found: dict[str, frozenset[int]] = {}
    for _ in range(count):
        name, offset = read_string(data, offset, len(data))
        size, offset = read_array_count(data, offset, len(data))
        size = max(size, 0)
        indexes = struct.unpack_from(f">{size}i", data, offset)
        found[name] = found.get(name, frozenset()).union(indexes)
        offset += size * INT32.size
    return found, offset
