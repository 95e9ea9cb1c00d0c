"""Subscriptions and assignments of consumers: their exact bytes in every version."""

import struct

import pytest

from rotunda.broker.client.admin.groups import assigned_partitions
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.messages.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from tests.support.groups.members import subscription_bytes

ALL = frozenset(range(4))


def test_subscriptions_and_assignments_are_read_in_every_version() -> None:
    for version in range(4):
        data = subscription_bytes(version, "a", "b", owned={"a": [1, 2]})
        owned = {"a": frozenset({1, 2})} if version else {}
        rack = "rack" if version == 3 else None
        assert decode_subscription(data) == Subscription(version, frozenset({"a", "b"}), owned, rack)
        for size in range(len(data)):
            with pytest.raises(ApiError):
                decode_subscription(data[:size])
    assert encode_assignment(2, {"a": frozenset({1})}) == b"\0\x02\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff"
    assert decode_assignment(encode_assignment(1, {"a": ALL, "b": frozenset({9})})) == {"a": ALL, "b": frozenset({9})}
    assert decode_assignment(b"") == {}
    assert assigned_partitions(encode_assignment(0, {"b": [1], "a": [2, 0]})) == (
        TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1),
    )  # fmt: skip
    assert assigned_partitions(b"whatever its members understand") is None


def test_the_topics_of_subscriptions_of_any_version() -> None:
    first, third = encode_subscription(["b", "a"]), subscription_bytes(3, "c")
    assert first == subscription_bytes(0, "a", "b")
    newer = struct.pack(">h", 4) + third[2:] + b"fields of a later version"
    assert subscribed_topics([first, newer]) == {"a", "b", "c"}
    assert subscribed_topics([first, b"\x00"]) is None
    assert subscribed_topics([]) == frozenset()
