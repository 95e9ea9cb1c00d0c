"""Coordinator routing: every request with a group or transactional id is routed to the owner of that id."""

import itertools
from typing import Any

import pytest

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import encode_request
from rotunda.broker.protocol.routing import (
    COORDINATED_KEYS,
    GROUP_TOPIC,
    SHARE_TOPIC,
    TRANSACTION_TOPIC,
    CoordinatorPartitions,
    coordinator_of,
    coordinator_partition,
    java_hash,
    owner_of,
    owner_of_coordinator,
    route,
    topic_hash,
)
from tests.support.feeds import mutations, random_seed

PARTITIONS = CoordinatorPartitions(groups=50, transactions=7, share_groups=9)
HANDLERS = 5
CONNECTION = (1 << 48) + (3 << 32) + 17

#: (key, versions, the internal topic with the id, the fields of the id in the shapes of all versions)
_GROUP_ID = {"group_id": "my-group"}
_TXN_ID = {"transactional_id": "my-txn"}
REQUESTS: list[tuple[ApiKey, range, str, dict[str, Any]]] = [
    (ApiKey.OFFSET_COMMIT, range(2, 10), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.OFFSET_FETCH, range(1, 8), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.OFFSET_FETCH, range(8, 10), GROUP_TOPIC, {"groups": [{"group_id": "my-group"}, {"group_id": "other"}]}),
    (ApiKey.JOIN_GROUP, range(10), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.HEARTBEAT, range(5), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.LEAVE_GROUP, range(6), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.SYNC_GROUP, range(6), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.DESCRIBE_GROUPS, range(6), GROUP_TOPIC, {"groups": ["my-group", "other"]}),
    (ApiKey.DELETE_GROUPS, range(3), GROUP_TOPIC, {"groups_names": ["my-group", "other"]}),
    (ApiKey.OFFSET_DELETE, range(1), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.TXN_OFFSET_COMMIT, range(5), GROUP_TOPIC, {"transactional_id": "another", "group_id": "my-group"}),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, range(1), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, range(1), GROUP_TOPIC, {"group_ids": ["my-group", "other"]}),
    (ApiKey.INIT_PRODUCER_ID, range(6), TRANSACTION_TOPIC, _TXN_ID),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(4), TRANSACTION_TOPIC, {"v3_and_below_transactional_id": "my-txn"}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(4, 6), TRANSACTION_TOPIC, {"transactions": [{"transactional_id": "my-txn"}]}),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(4), TRANSACTION_TOPIC, _TXN_ID),
    (ApiKey.END_TXN, range(5), TRANSACTION_TOPIC, _TXN_ID),
    (ApiKey.SHARE_GROUP_HEARTBEAT, range(1, 2), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.SHARE_GROUP_DESCRIBE, range(1, 2), GROUP_TOPIC, {"group_ids": ["my-group", "other"]}),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, range(2), GROUP_TOPIC, {"groups": [{"group_id": "my-group"}]}),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, range(1), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, range(1), GROUP_TOPIC, _GROUP_ID),
    (ApiKey.SHARE_FETCH, range(1, 3), SHARE_TOPIC, _GROUP_ID),
    (ApiKey.SHARE_ACKNOWLEDGE, range(1, 3), SHARE_TOPIC, _GROUP_ID),
    (ApiKey.DESCRIBE_TRANSACTIONS, range(1), TRANSACTION_TOPIC, {"transactional_ids": ["my-txn", "other"]}),
]
CASES = [(key, version, topic, values) for key, versions, topic, values in REQUESTS for version in versions]


@pytest.mark.parametrize("client_id", ["", "client", "c" * 300])
@pytest.mark.parametrize(
    ("key", "version", "topic", "values"), CASES, ids=[f"{key.name}-{version}" for key, version, *_ in CASES]
)
def test_a_request_goes_to_the_owner_of_its_id(
    key: ApiKey, version: int, topic: str, values: dict[str, Any], client_id: str
) -> None:
    name = "my-txn" if topic == TRANSACTION_TOPIC else "my-group"
    partition = coordinator_partition(name, PARTITIONS.of(topic))
    frame = encode_request(key, version, 1, client_id, values)[4:]
    assert coordinator_of(frame, key, version, PARTITIONS) == (topic, partition)
    target = route(memoryview(frame), key, version, CONNECTION, HANDLERS, PARTITIONS)
    assert target == owner_of_coordinator(topic, partition, HANDLERS)


def test_every_api_with_a_routing_key_has_a_case() -> None:
    assert {int(key) for key, *_ in REQUESTS} == COORDINATED_KEYS


def test_the_coordinator_is_the_owner_of_the_partition_that_keeps_the_id() -> None:
    for topic, partition in itertools.product((GROUP_TOPIC, TRANSACTION_TOPIC), range(50)):
        owner = owner_of(topic_hash(topic.encode()), partition, HANDLERS)
        assert owner_of_coordinator(topic, partition, HANDLERS) == owner


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("größe", 98762257),
        ("\U0001d4b3", 1772318),
    ],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_kafka_puts_these_groups_into_these_partitions() -> None:
    """Kafka's own choice for 50 partitions: abs(hash) % 50, with 0 for the smallest number."""
    assert coordinator_partition("hello", 50) == 99162322 % 50
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert java_hash("tg29-28754") < 0
    assert coordinator_partition("tg29-28754", 4) == 3


def test_an_empty_list_names_nobody() -> None:
    frame = encode_request(ApiKey.DESCRIBE_GROUPS, 5, 1, "c", {"groups": []})[4:]
    assert coordinator_of(frame, ApiKey.DESCRIBE_GROUPS, 5, PARTITIONS) is None
    assert 0 <= route(frame, ApiKey.DESCRIBE_GROUPS, 5, CONNECTION, HANDLERS, PARTITIONS) < HANDLERS


@pytest.mark.parametrize(
    ("key", "version", "topic", "values"),
    CASES[::5],
    ids=[f"{key.name}-{version}" for key, version, *_ in CASES[::5]],
)
def test_damaged_requests_are_routed_somewhere_or_rejected(
    key: ApiKey, version: int, topic: str, values: dict[str, Any]
) -> None:
    del topic
    frame = encode_request(key, version, 1, "client", values)[4:]
    seed = random_seed()
    for damaged in itertools.chain((frame[:length] for length in range(8, len(frame))), mutations(frame, seed, 50)):
        try:
            assert 0 <= route(damaged, key, version, CONNECTION, HANDLERS, PARTITIONS) <= HANDLERS
        except InvalidReceive:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {damaged.hex()}") from error
