"""ConsumerProtocolSubscription and ConsumerProtocolAssignment: the messages between members of the classic protocol.

Pure. Members of this client use them, and the coordinator to find the topics in use, and the partitions of such members
in a consumer group (KIP-848). As in Kafka, a version above the newest is read as the newest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import ApiError, InvalidReceive
from rotunda.broker.protocol.codec import read, write
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import INT16, MALFORMED

_NEWEST: Final = 3

#: By topic, the partitions.
Partitions = Mapping[str, frozenset[int]]


class Subscription(NamedTuple):
    """A consumer's topics and the partitions that it owns as it joins."""

    version: int
    topic_names: frozenset[str]
    owned: Partitions
    rack_id: str | None


def decode_subscription(data: bytes) -> Subscription:
    """Return a subscription. ApiError INCONSISTENT_GROUP_PROTOCOL when it is malformed."""
    version, found = _read("ConsumerProtocolSubscription", data)
    return Subscription(version, frozenset(found.topics), _partitions(found.owned_partitions), found.rack_id)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Return a subscription of version 0, which all consumers read."""
    return INT16.pack(0) + write("ConsumerProtocolSubscription", 0, {"topics": sorted(topics)})


def decode_assignment(data: bytes) -> Partitions:
    """Return the partitions of an assignment; none for no bytes. ApiError when it is malformed."""
    return _partitions(_read("ConsumerProtocolAssignment", data)[1].assigned_partitions) if data else {}


def encode_assignment(version: int, partitions: Mapping[str, Collection[int]]) -> bytes:
    topics = [{"topic": name, "partitions": sorted(indexes)} for name, indexes in sorted(partitions.items())]
    values = {"assigned_partitions": topics}
    return INT16.pack(version) + write("ConsumerProtocolAssignment", min(version, _NEWEST), values)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None when one cannot be read."""
    try:
        return frozenset().union(*[decode_subscription(each).topic_names for each in subscriptions])
    except ApiError:
        return None


def _read(name: str, data: bytes) -> tuple[int, Any]:
    try:
        (version,) = INT16.unpack_from(data)
        return version, read(name, min(version, _NEWEST), data, INT16.size, len(data))
    except (*MALFORMED, InvalidReceive) as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed {name}: {error}") from error


def _partitions(topics: Iterable[Any]) -> Partitions:
    found: dict[str, frozenset[int]] = {}
    for each in topics:
        found[each.topic] = found.get(each.topic, frozenset()).union(each.partitions)
    return found
