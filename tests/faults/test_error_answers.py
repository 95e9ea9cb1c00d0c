"""Injected errors in the responses of a real broker: every API in its oldest and newest version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.schema.definitions import Structure
from rotunda.broker.testing import RotundaBroker
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient

ERROR = ErrorCode.BROKER_NOT_AVAILABLE
SASL = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
TOPIC, GROUP, ID = "there", "g", "t"

_RESOURCES = [{"resource_type": 2, "resource_name": TOPIC, "configs": []}]

#: The contents of requests that could not fail if they were empty.
ASKED: Mapping[ApiKey, dict[str, Any]] = {
    ApiKey.LIST_OFFSETS: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    ApiKey.METADATA: {"topics": [{"name": TOPIC}]},
    ApiKey.OFFSET_COMMIT: {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    ApiKey.OFFSET_FETCH: {
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        "groups": [{"group_id": GROUP, "topics": None}],
    },
    ApiKey.FIND_COORDINATOR: {"key": GROUP, "coordinator_keys": [GROUP]},
    ApiKey.DESCRIBE_GROUPS: {"groups": [GROUP]},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}]},
    ApiKey.DELETE_TOPICS: {"topic_names": [TOPIC], "topics": [{"name": TOPIC}]},
    ApiKey.DELETE_RECORDS: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": ID,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": ID,
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.WRITE_TXN_MARKERS: {"markers": [{"producer_id": 5, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
    ApiKey.CREATE_ACLS: {"creations": [{"resource_type": 2, "resource_name": TOPIC, "principal": "User:a"}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_type_filter": 2}]},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]},
    ApiKey.ALTER_CONFIGS: {"resources": _RESOURCES},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": _RESOURCES},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/x", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": TOPIC, "count": 5}]},
    ApiKey.ELECT_LEADERS: {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
    ApiKey.DELETE_GROUPS: {"groups_names": [GROUP]},
    ApiKey.ALTER_CLIENT_QUOTAS: {"entries": [{"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "a", "mechanism": 1}]},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [ID]},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP]},
    ApiKey.SHARE_GROUP_DESCRIBE: {"group_ids": [GROUP]},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": [{"group_id": GROUP, "topics": None}]},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}]},
    ApiKey.PRODUCE: {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": record_batch([b"x"])}]}],
    },
    ApiKey.FETCH: {
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
    },
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RotundaBroker]:
    """Return a broker with a topic."""
    with RotundaBroker({"num.io.threads": 1}) as broker:
        broker.create_topic(TOPIC)
        yield broker


def errors_in(value: Any) -> Iterator[int]:
    """Yield the error codes of a response, at any depth."""
    if isinstance(value, tuple):
        for each in value:
            yield from errors_in(each)
    elif isinstance(value, Structure):
        for name in value.DEFAULTS:
            if name.endswith("error_code"):
                yield int(getattr(value, name))
            else:
                yield from errors_in(getattr(value, name))


@pytest.mark.parametrize("api", [api for api in API_TABLE if api.key not in SASL], ids=lambda api: api.key.text)
def test_every_api_responds_with_the_injected_error(broker: RotundaBroker, api: Any) -> None:
    """The response can be decoded, has that error and no other, and the next request is served as ever."""
    port = int(broker.bootstrap.rpartition(":")[2])
    topic_id = _topic_id(port)
    for version in sorted({api.min_version, api.max_version}):
        asked = _with_ids(api.key, version, ASKED.get(api.key, {}), topic_id)
        with broker.fail(api.key.text, ERROR, times=1) as fault, WireClient(port) as wire:
            answer = ask(wire, api.key, version, asked)
            assert set(errors_in(answer)) - {0} == {int(ERROR)}, f"version {version}: {answer}"
            assert fault.count == 1
            assert ask(wire, ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}]}).topics[0].error_code == 0
    with WireClient(port) as wire:
        named = [each.name for each in ask(wire, ApiKey.METADATA, 9, {"topics": None}).topics if not each.is_internal]
        assert named == [TOPIC]
        offsets = ask(wire, ApiKey.LIST_OFFSETS, 5, ASKED[ApiKey.LIST_OFFSETS]).topics[0].partitions[0]
        assert offsets.offset == 0


def _topic_id(port: int) -> bytes:
    with WireClient(port) as wire:
        found = ask(wire, ApiKey.METADATA, 12, {"topics": [{"name": TOPIC}]}).topics[0].topic_id
        return bytes(found)


def _with_ids(key: ApiKey, version: int, asked: dict[str, Any], topic_id: bytes) -> dict[str, Any]:
    """Name the topic by its id where a version has no names."""
    if key == ApiKey.FETCH and version >= 13:
        return {**asked, "topics": [{**asked["topics"][0], "topic_id": topic_id}]}
    if key == ApiKey.PRODUCE and version >= 13:
        return {**asked, "topic_data": [{**asked["topic_data"][0], "topic_id": topic_id}]}
    if key == ApiKey.OFFSET_COMMIT and version >= 10:
        return {**asked, "topics": [{**asked["topics"][0], "topic_id": topic_id}]}
    return asked


@pytest.mark.parametrize("version", [0, 9, 13])
def test_of_many_topics_only_the_one_named_fails_where_nothing_is_changed(broker: RotundaBroker, version: int) -> None:
    broker.create_topic("other")
    port = int(broker.bootstrap.rpartition(":")[2])
    everything = [] if version == 0 else None
    with broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=TOPIC) as fault, WireClient(port) as wire:
        answer = ask(wire, ApiKey.METADATA, version, {"topics": [{"name": TOPIC}, {"name": "other"}]})
        errors = {topic.name: int(topic.error_code) for topic in answer.topics}
        assert errors == {TOPIC: 5, "other": 0}
        assert [len(topic.partitions) for topic in answer.topics if topic.name == "other"] == [1]
        # All topics: the request names none.
        assert {
            int(each.error_code) for each in ask(wire, ApiKey.METADATA, version, {"topics": everything}).topics
        } == {0}
        assert fault.count == 1
    broker.delete_topic("other")


def test_a_fetch_in_a_session_that_names_nothing_is_faulty_for_its_topic(broker: RotundaBroker) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    with WireClient(port) as wire:
        first = ask(wire, ApiKey.FETCH, 11, {**ASKED[ApiKey.FETCH], "session_epoch": 0})
        further = {"max_wait_ms": 0, "max_bytes": 1000, "session_id": first.session_id, "topics": []}
        with broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=TOPIC, times=1) as fault:
            answer = ask(wire, ApiKey.FETCH, 11, {**further, "session_epoch": 1})
            assert set(errors_in(answer)) == {0, 6}
            assert fault.count == 1
            answer = ask(wire, ApiKey.FETCH, 11, {**further, "session_epoch": 2})
            assert set(errors_in(answer)) <= {0}
        with broker.fail("Fetch", "FETCH_SESSION_ID_NOT_FOUND", times=1):
            answer = ask(wire, ApiKey.FETCH, 11, {**further, "session_epoch": 3})
            assert int(answer.error_code) == 70
            assert not answer.responses
