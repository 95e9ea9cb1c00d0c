"""Share groups request by request: requests of other kinds of group, offsets, coordinators, the feature off."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support import described_requests
from tests.support.broker_process import BrokerProcess, output_of
from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient, request_frame

MEMBER = "a-member"


def ask(broker: BrokerProcess, key: ApiKey, version: int, **fields: Any) -> Any:
    """Return the response to one request on a connection of its own."""
    with WireClient(broker.port) as client:
        return described_requests.ask(client, key, version, fields)


def heartbeat(broker: BrokerProcess, group: str, epoch: int = 0, member: str = MEMBER, **fields: Any) -> Any:
    said = {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}
    return ask(broker, ApiKey.SHARE_GROUP_HEARTBEAT, 1, **said)


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Return a topic of 2 partitions without records."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    output_of("topic", "create", name, "--partitions", "2", "--bootstrap", broker.bootstrap)
    return name


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """Return a share group with one member, which subscribes to the topic."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    wait_until(
        lambda: heartbeat(broker, name, subscribed_topic_names=[topic]).error_code == 0, "the coordinator of the group"
    )
    return name


def test_requests_of_other_kinds_of_group_are_rejected(broker: BrokerProcess, group: str) -> None:
    """S14."""
    join = {"group_id": group, "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": ""}
    join |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    assert ask(broker, ApiKey.JOIN_GROUP, 3, **join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member = {"group_id": group, "member_id": MEMBER, "generation_id": 1}
    for key in (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP):
        assert ask(broker, key, 3, **member).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leave = ask(broker, ApiKey.LEAVE_GROUP, 2, group_id=group, member_id=MEMBER)
    assert leave.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = {"group_id": group, "member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 1000}
    consumer |= {"subscribed_topic_names": ["x"], "topic_partitions": []}
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **consumer).error_code == not_found
    assert ask(broker, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group]).groups[0].error_code == not_found
    fetch = ask(broker, ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": None}])
    assert fetch.groups[0].error_code == not_found
    described = [ask(broker, ApiKey.DESCRIBE_GROUPS, version, groups=[group]).groups[0] for version in (5, 6)]
    assert [(each.error_code, each.group_state) for each in described] == [(0, "Dead"), (not_found, "Dead")]
    assert ask(broker, ApiKey.DELETE_GROUPS, 2, groups_names=[group]).results[0].error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_share_group_does_not_replace_an_empty_group(broker: BrokerProcess, topic: str, group: str) -> None:
    """S10, S15."""
    other = f"{group}-classic"
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
    commit = {"group_id": other, "generation_id_or_member_epoch": -1, "member_id": ""}
    commit["topics"] = [{"name": topic, "partitions": [partition]}]
    committed = ask(broker, ApiKey.OFFSET_COMMIT, 8, **commit)
    assert committed.topics[0].partitions[0].error_code == 0
    joined = heartbeat(broker, other, subscribed_topic_names=[topic])
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    altered = ask(broker, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=other, topics=[])
    assert altered.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("member", ["", "m" * 37])
def test_member_ids_have_up_to_36_characters(broker: BrokerProcess, group: str, member: str) -> None:
    """S20."""
    assert heartbeat(broker, group, member=member).error_code == ErrorCode.INVALID_REQUEST


def test_offsets_are_described_set_and_deleted(broker: BrokerProcess, topic: str, group: str) -> None:
    """S112-S115."""
    named = [{"topic_name": topic, "partitions": [0, 9]}, {"topic_name": "missing", "partitions": [0]}]
    asked = [{"group_id": group, "topics": named}, {"group_id": "unknown", "topics": None}]
    described = ask(broker, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked).groups
    found = [[(each.start_offset, each.error_code) for each in topic.partitions] for topic in described[0].topics]
    assert found == [[(-1, 0), (-1, 3)], [(-1, 3)]]
    assert (described[1].error_code, len(described[1].topics)) == (0, 0)
    wanted = [{"partition_index": index, "start_offset": 5} for index in (0, 9)]
    change = {"group_id": group, "topics": [{"topic_name": topic, "partitions": wanted}]}
    assert ask(broker, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **change).error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(broker, group, -1)
    altered = ask(broker, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **change).responses[0]
    assert [each.error_code for each in altered.partitions] == [0, 3]
    [offsets] = ask(broker, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked[:1]).groups
    assert offsets.topics[0].partitions[0].start_offset == 5
    topics = [{"topic_name": name} for name in (topic, "missing")]
    deleted = ask(broker, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)
    assert [(each.topic_name, each.error_code) for each in deleted.responses] == [(topic, 0), ("missing", 3)]
    again = ask(broker, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics[:1])
    assert again.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = ask(broker, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="unknown", topics=topics)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_unknown_partitions_create_no_group(broker: BrokerProcess, topic: str, group: str) -> None:
    """S114."""
    other = f"{group}-altered"
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": 9, "start_offset": 5}]} for name in (topic, "missing")
    ]
    altered = ask(broker, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=other, topics=topics)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for found in altered.responses for each in found.partitions] == [unknown, unknown]
    deleted = ask(broker, ApiKey.DELETE_GROUPS, 3, groups_names=[other]).results
    assert [each.error_code for each in deleted] == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_partitions_of_share_groups_have_a_coordinator(broker: BrokerProcess) -> None:
    """S05."""
    topic_id = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
    keys = [f"a:group:{topic_id}:3", f"group:{topic_id}:x", "group"]
    found = ask(broker, ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=keys).coordinators
    errors = {each.key: each.error_code for each in found}
    assert errors == {keys[0]: 0, keys[1]: ErrorCode.INVALID_REQUEST, keys[2]: ErrorCode.INVALID_REQUEST}
    old = ask(broker, ApiKey.FIND_COORDINATOR, 5, key_type=2, coordinator_keys=keys[:1]).coordinators
    assert [each.error_code for each in old] == [ErrorCode.INVALID_REQUEST]


def advertised(broker: BrokerProcess) -> dict[int, tuple[int, int]]:
    """Return the advertised versions by API key."""
    return {each.api_key: (each.min_version, each.max_version) for each in ask(broker, ApiKey.API_VERSIONS, 0).api_keys}


def test_requests_of_share_groups_are_advertised_and_those_between_brokers_are_not(broker: BrokerProcess) -> None:
    """S01, S04."""
    keys = advertised(broker)
    assert [keys.get(key) for key in (76, 77, 78, 79, 90, 91, 92)] == [
        *[(1, 1)] * 2,
        *[(1, 2)] * 2,
        (0, 1),
        *[(0, 0)] * 2,
    ]
    between_brokers = range(83, 88)
    assert not keys.keys() & set(between_brokers)
    for key in between_brokers:
        with WireClient(broker.port) as client:
            client.send(request_frame(key, 0, 1, b"\0", flexible=True))
            with pytest.raises(AssertionError, match="closed by the broker"):
                client.receive_frame()


def test_without_the_feature_every_request_is_rejected(broker: BrokerProcess, topic: str, group: str) -> None:
    """S03, S07: committed state stays. S02: they are advertised all the same."""
    with_feature = advertised(broker)

    def set_level(level: int, kind: int) -> None:
        update = {"feature": "share.version", "max_version_level": level, "upgrade_type": kind}
        response = ask(broker, ApiKey.UPDATE_FEATURES, 2, timeout_ms=5000, feature_updates=[update])
        assert response.error_code == 0, response.error_message

    def is_rejected() -> bool:
        return bool(heartbeat(broker, group, 2).error_code == ErrorCode.UNSUPPORTED_VERSION)

    set_level(0, 2)
    try:
        wait_until(is_rejected, "the feature to be off")
        assert advertised(broker) == with_feature
        errors = [
            ask(broker, ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups[0].error_code,
            ask(broker, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": group}]).groups[0].error_code,
            ask(broker, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=[]).error_code,
            ask(broker, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=[]).error_code,
        ]
        assert errors == [ErrorCode.UNSUPPORTED_VERSION] * 4
    finally:
        set_level(2, 1)
    wait_until(lambda: not is_rejected(), "the feature to be on")
    [described] = ask(broker, ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    [member] = described.members
    assert (described.group_state, described.assignor_name, member.client_host) == ("Stable", "simple", "/127.0.0.1")
    assert [(each.topic_name, list(each.partitions)) for each in member.assignment.topic_partitions] == [
        (topic, [0, 1])
    ]
