"""Failed resources in a response, for every inspected API and every served version, in kio's encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.network.processor.throttling.failed_resources import (
    WATCHED,
    Resource,
    SentRequest,
    failed_resources,
)
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

NOT_LEADER, UNKNOWN = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_COORDINATOR, NO_MEMBER = int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.UNKNOWN_MEMBER_ID)
TOPIC_ID = bytes(range(1, 17))

Values = Mapping[str, Any]

#: By API: the fields of the topics, of their partitions, and of the partition number.
BY_PARTITION = {
    ApiKey.PRODUCE: ("responses", "partition_responses", "index"),
    ApiKey.FETCH: ("responses", "partitions", "partition_index"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions", "partition"),
}
#: Further fields of a request with one group or transactional id.
ONE_ID = {
    ApiKey.JOIN_GROUP: {"group_id": "g"},
    ApiKey.SYNC_GROUP: {"group_id": "g"},
    ApiKey.LEAVE_GROUP: {"group_id": "g"},
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "g"},
    ApiKey.INIT_PRODUCER_ID: {"transactional_id": "g"},
    ApiKey.END_TXN: {"transactional_id": "g"},
}
COMMITS = {
    ApiKey.OFFSET_COMMIT: {"group_id": "g"},
    ApiKey.TXN_OFFSET_COMMIT: {"transactional_id": "t", "group_id": "g"},
}


def served(*keys: ApiKey) -> list[tuple[ApiKey, int]]:
    return [(key, each) for key in keys for each in range(APIS[key].min_version, APIS[key].max_version + 1)]


def look(key: ApiKey, version: int, response: Values, request: Values | None = None) -> dict[Resource, bool] | None:
    frame = b"" if request is None else codec.encode_request(key, version, 1, "client", request)[4:]
    wire = codec.encode_response(key, version, 1, response)
    return failed_resources(SentRequest(key, version, frame), memoryview(wire))


def answer_by_partition(key: ApiKey, *errors: int) -> Values:
    topics, partitions, index = BY_PARTITION[key]
    named = {"name": "a", "topic": "a", "topic_id": TOPIC_ID}
    names = {name: value for name, value in named.items() if name in _names(key)}
    worth = {ApiKey.LIST_OFFSETS: {"offset": 5}, ApiKey.OFFSET_FOR_LEADER_EPOCH: {"end_offset": 5}}.get(key, {})
    parts = [{index: number, "error_code": error, **worth} for number, error in enumerate(errors)]
    return {topics: [{**names, partitions: parts}]}


def _names(key: ApiKey) -> set[str]:
    return {
        ApiKey.PRODUCE: {"name", "topic_id"},
        ApiKey.FETCH: {"topic", "topic_id"},
        ApiKey.LIST_OFFSETS: {"name"},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topic"},
    }[key]


@pytest.mark.parametrize(("key", "version"), served(*BY_PARTITION))
def test_d22_partitions_fail_each_by_itself(key: ApiKey, version: int) -> None:
    failed = look(key, version, answer_by_partition(key, NOT_LEADER, UNKNOWN))
    names = {name for name, _ in failed or ()}
    assert names in ({"a"}, {TOPIC_ID})
    assert {index: kind for (_, index), kind in (failed or {}).items()} == {0: True, 1: False}
    assert look(key, version, answer_by_partition(key, NOT_LEADER, 0)) is None


@pytest.mark.parametrize(("key", "version"), served(*ONE_ID))
def test_d22_the_one_id_of_a_request_fails(key: ApiKey, version: int) -> None:
    assert look(key, version, {"error_code": NOT_COORDINATOR}, ONE_ID[key]) == {(b"g",): True}
    assert look(key, version, {"error_code": NO_MEMBER}, ONE_ID[key]) == {(b"g",): False}
    assert look(key, version, {"error_code": 0}, ONE_ID[key]) is None
    assert look(key, version, {"error_code": NOT_COORDINATOR}) is None, "whose it was is not known"


@pytest.mark.parametrize(("key", "version"), served(*COMMITS))
def test_d22_partitions_of_a_commit_are_the_groups(key: ApiKey, version: int) -> None:
    def look_at(*errors: int) -> dict[Resource, bool] | None:
        parts = [{"partition_index": number, "error_code": error} for number, error in enumerate(errors)]
        return look(key, version, {"topics": [{"name": "a", "partitions": parts}]}, {**COMMITS[key], "topics": []})

    assert look_at(NO_MEMBER, NO_MEMBER) == {(b"g",): False}
    assert look_at(NO_MEMBER, NOT_COORDINATOR) == {(b"g",): True}
    assert look_at(NO_MEMBER, 0) is None


@pytest.mark.parametrize(("key", "version"), served(ApiKey.OFFSET_FETCH))
def test_d22_groups_of_an_offset_fetch(key: ApiKey, version: int) -> None:
    if version < 8:
        response: Values = {"error_code": NOT_COORDINATOR, "topics": []}
        # The first versions have no error for the group.
        expected = None if version < 2 else {(b"g",): True}
        assert look(key, version, response, {"group_id": "g", "topics": []}) == expected
        return
    request = {"groups": [{"group_id": name, "topics": []} for name in "gh"]}
    for second, expected in ((NO_MEMBER, {("g",): True, ("h",): False}), (0, None)):
        response = {
            "groups": [{"group_id": "g", "error_code": NOT_COORDINATOR}, {"group_id": "h", "error_code": second}]
        }
        assert look(key, version, response, request) == expected


@pytest.mark.parametrize(("key", "version"), served(ApiKey.FIND_COORDINATOR))
def test_d22_a_group_and_a_transactional_id_of_one_name_are_two(key: ApiKey, version: int) -> None:
    found = []
    for key_type in (0, 1):
        if version < 4:
            request, response = {"key": "g"}, {"error_code": NOT_COORDINATOR}
        else:
            request, response = {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "error_code": 15}]}
        failed = look(key, version, response, {**request, **({"key_type": key_type} if version else {})})
        assert failed is not None
        assert list(failed.values()) == [True]
        found += failed
    assert len(set(found)) == (2 if version else 1)
    assert look(key, version, {"coordinators": [{"key": "g"}]} if version >= 4 else {}, request) is None


@pytest.mark.parametrize(("key", "version"), served(ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS))
def test_d22_topics_and_their_partitions(key: ApiKey, version: int) -> None:
    leaderless, whole = ({"error_code": error, "leader_id": 1, "partition_index": 3} for error in (5, 0))
    request = {"topics": [{"name": "a"}]}

    def look_at(topic: Values, request: Values = request) -> dict[Resource, bool] | None:
        brokers = {"brokers": [{"node_id": 1}], "controller_id": 1} if key == ApiKey.METADATA else {}
        return look(key, version, {**brokers, "topics": [{"name": "a", "partitions": [], **topic}]}, request)

    assert look_at({"error_code": UNKNOWN}) == {("a",): False}
    assert look_at({"partitions": [leaderless]}) == {("a", 3): True}, "that the topic is there is worth nothing"
    assert look_at({"error_code": 5, "partitions": [leaderless]}) == {("a",): True, ("a", 3): True}
    assert look_at({"partitions": [leaderless, whole]}) is None
    if key == ApiKey.METADATA:
        for everything in ([], *([None] if version else [])):
            assert look_at({"error_code": UNKNOWN}, {"topics": everything}) is None, "the brokers are worth something"


def test_d22_offsets_that_are_not_known_are_worth_nothing() -> None:
    parts = [{"partition_index": 0, "offset": -1}, {"partition_index": 1, "error_code": UNKNOWN}]
    assert look(ApiKey.LIST_OFFSETS, 5, {"topics": [{"name": "a", "partitions": parts}]}) == {("a", 1): False}


def test_d22_a_fetch_may_fail_as_a_whole() -> None:
    failed = look(ApiKey.FETCH, 12, {"error_code": int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)})
    assert failed == {(): False}


def test_d22_other_apis_are_not_looked_at() -> None:
    assert look(ApiKey.HEARTBEAT, 4, {"error_code": NOT_COORDINATOR}, {"group_id": "g"}) is None
    assert len(WATCHED) == 16
