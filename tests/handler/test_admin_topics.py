"""CreateTopics, DeleteTopics, CreatePartitions: every version, every error, and the resulting state."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.shm.tables.partitions import STATE_CLOSED
from tests.support.admin_cluster import AdminCluster
from tests.support.results import present

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)
PARTITIONS_VERSIONS = range(4)


def wanted(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **fields}


def create(cluster: AdminCluster, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> Any:
    fields = {"topics": list(topics), "timeout_ms": 1000, "validate_only": validate_only}
    response = cluster.call(ApiKey.CREATE_TOPICS, version, fields)
    return {topic.name: topic for topic in response.topics}


def delete(cluster: AdminCluster, *names: str, version: int = 5) -> dict[str, tuple[int, str | None]]:
    fields: dict[str, Any] = {"timeout_ms": 1000}
    if version < 6:
        fields["topic_names"] = list(names)
    else:
        fields["topics"] = [{"name": name} for name in names]
    response = cluster.call(ApiKey.DELETE_TOPICS, version, fields)
    return {each.name: (each.error_code, getattr(each, "error_message", None)) for each in response.responses}


def add_partitions(
    cluster: AdminCluster, name: str, count: int, assignments: Any = None, version: int = 3, **fields: Any
) -> tuple[int, str | None]:
    topic = {"name": name, "count": count, "assignments": assignments}
    request = {"topics": [topic], "timeout_ms": 1000, "validate_only": False, **fields}
    response = cluster.call(ApiKey.CREATE_PARTITIONS, version, request)
    [result] = response.results
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_created_topic_is_there_in_every_version(cluster: AdminCluster, version: int) -> None:
    topic = create(cluster, wanted("orders", num_partitions=3), version=version)["orders"]
    assert topic.error_code == 0
    stored = present(cluster.metadata.topic("orders"))
    assert len(stored.partitions) == 3
    assert cluster.announced == [cluster.controller.version]
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert {config.name: config.value for config in topic.configs}["cleanup.policy"] == "delete"
    if version >= 7:
        assert topic.topic_id == stored.topic_id


def test_defaults_are_the_brokers(tmp_path: Path) -> None:
    cluster = AdminCluster(tmp_path, settings={"num.partitions": "4"})
    topic = create(cluster, wanted("orders", num_partitions=-1, replication_factor=-1))["orders"]
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 4, 1)
    cluster.close()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": ""}, 17, "the empty string is not allowed"),
        ({"name": "."}, 17, "'.' is not allowed"),
        ({"name": ".."}, 17, "'..' is not allowed"),
        ({"name": "a" * 250}, 17, "longer than the max allowed length 249"),
        ({"name": "white space"}, 17, "other than ASCII alphanumerics"),
        ({"name": "ümlaut"}, 17, "other than ASCII alphanumerics"),
        ({"name": "line\n"}, 17, "other than ASCII alphanumerics"),
        ({"name": "there"}, 36, "Topic 'there' already exists."),
        ({"name": "a_b"}, 17, "Topic 'a_b' collides with existing topic: a.b"),
        ({"num_partitions": 0}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"num_partitions": -2}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"num_partitions": 1000}, 37, "max.partitions is 64"),
        ({"replication_factor": 0}, 38, "Replication factor must be larger than 0"),
        ({"replication_factor": 3}, 38, "only 1 broker(s) are registered"),
        ({"configs": [{"name": "no.such", "value": "1"}]}, 40, "Unknown topic config name: no.such"),
        ({"configs": [{"name": "segment.bytes", "value": None}]}, 40, "Null value not supported"),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, 40, "Invalid value soon"),
        ({"configs": [{"name": "cleanup.policy", "value": "burn"}]}, 40, "cleanup.policy"),
    ],
)
def test_rejections_in_kafkas_words(cluster: AdminCluster, fields: dict[str, Any], error: int, message: str) -> None:
    cluster.create("there")
    cluster.create("a.b")
    version_before = cluster.controller.version
    asked = wanted(fields.get("name", "fresh")) | fields
    [topic] = create(cluster, asked).values()
    assert topic.error_code == error
    assert message in topic.error_message
    assert cluster.controller.version == version_before


UNKNOWN_CONFIG = [{"name": "no.such", "value": "1"}]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "bad name", "num_partitions": 0, "configs": UNKNOWN_CONFIG}, 17),
        ({"name": "there", "num_partitions": 0, "configs": UNKNOWN_CONFIG}, 36),
        ({"name": "a_b", "num_partitions": 0, "configs": UNKNOWN_CONFIG}, 17),
        ({"name": "__cluster_metadata", "num_partitions": 0, "configs": UNKNOWN_CONFIG}, 42),
        ({"num_partitions": 0, "replication_factor": 0, "configs": UNKNOWN_CONFIG}, 40),
        ({"num_partitions": 0, "replication_factor": 0}, 38),
        ({"num_partitions": 0, "replication_factor": 5}, 37),
        ({"num_partitions": 10_001, "replication_factor": 0, "configs": UNKNOWN_CONFIG}, 44),
    ],
)
def test_of_several_faults_kafkas_first_is_the_error(cluster: AdminCluster, fields: dict[str, Any], error: int) -> None:
    """Compared with Apache Kafka 4.4.0."""
    cluster.create("there")
    cluster.create("a.b")
    [topic] = create(cluster, wanted("fresh") | fields).values()
    assert topic.error_code == error


def test_too_many_partitions_at_once_are_rejected_for_all_topics(cluster: AdminCluster) -> None:
    asked = [wanted(name, num_partitions=4_000) for name in ("a", "b", "bad name", "twice", "twice")]
    topics = create(cluster, *asked)
    assert {(topic.error_code, topic.error_message) for topic in topics.values()} == {
        (44, "Excessively large number of partitions per request.")
    }
    assert set(topics) == {"a", "b", "bad name", "twice"}


@pytest.mark.parametrize(
    ("assignments", "fields", "error", "message"),
    [
        ([(0, [1]), (1, [1])], {}, 0, None),
        ([(0, [1])], {"num_partitions": 1}, 42, "numPartitions was not set to -1"),
        ([(0, [1])], {"replication_factor": 1}, 42, "replication factor was not set to -1"),
        ([(0, [2])], {}, 39, "broker 2, but no such broker is registered"),
        ([(0, [])], {}, 39, "an empty replica list"),
        ([(0, [1, 1])], {}, 39, "more than once"),
        ([(0, [7, 1, 1])], {}, 39, "the broker 1 more than once"),
        ([(0, [1, 1, 0])], {}, 39, "broker 0, but no such broker is registered"),
        ([(0, [1]), (0, [1])], {}, 39, "multiple manual partition assignments for partition 0"),
        ([(0, [1]), (2, [1])], {}, 39, "consecutive 0-based integer sequence"),
    ],
)
def test_a_manual_assignment_names_the_one_broker_for_each_partition(
    cluster: AdminCluster, assignments: Any, fields: dict[str, Any], error: int, message: str | None
) -> None:
    listed = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments]
    asked = wanted("assigned", num_partitions=-1, replication_factor=-1, assignments=listed) | fields
    topic = create(cluster, asked)["assigned"]
    assert topic.error_code == error
    assert (message or "") in (topic.error_message or "")
    assert (cluster.metadata.topic("assigned") is not None) == (error == 0)


def test_one_request_makes_one_change_of_the_good_topics_only(cluster: AdminCluster) -> None:
    topics = create(
        cluster,
        wanted("good"),
        wanted("twice"),
        wanted("twice"),
        wanted("bad", num_partitions=0),
        wanted("x.y"),
        wanted("x_y"),
    )
    errors = {name: topic.error_code for name, topic in topics.items()}
    assert errors == {"good": 0, "twice": 42, "bad": 37, "x.y": 0, "x_y": 0}, (
        "only what is there already is collided with"
    )
    assert list(topics)[-1] == "twice", "after the others, as in Kafka"
    assert topics["twice"].error_message == "Duplicate topic name."
    assert cluster.controller.version == 1


def test_validate_only_creates_nothing_and_allocates_no_rows(cluster: AdminCluster) -> None:
    for _ in range(3):
        topic = create(cluster, wanted("maybe", num_partitions=64), validate_only=True)["maybe"]
        assert (topic.error_code, topic.num_partitions) == (0, 64)
    assert cluster.metadata.topic("maybe") is None
    assert cluster.controller.version == 0
    assert create(cluster, wanted("real", num_partitions=64))["real"].error_code == 0


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_topic_is_deleted_before_the_response(cluster: AdminCluster, version: int) -> None:
    """users.md row 14: delete and create take effect before the reply."""
    cluster.create("orders", 2)
    assert delete(cluster, "orders", "never", version=version)["orders"][0] == 0
    assert cluster.announced == [cluster.controller.version]
    assert cluster.metadata.topic("orders") is None
    assert delete(cluster, "orders", version=version)["orders"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(cluster, wanted("orders"))["orders"].error_code == 0


def test_deletion_by_id_and_its_rejections(cluster: AdminCluster) -> None:
    first, second = cluster.create("first"), cluster.create("second")
    unknown = uuid.uuid4().bytes

    def asked(*topics: tuple[str | None, bytes | None]) -> list[tuple[Any, ...]]:
        fields = {
            "topics": [{"name": name, "topic_id": topic_id or ZERO_TOPIC_ID} for name, topic_id in topics],
            "timeout_ms": 1000,
        }
        response = cluster.call(ApiKey.DELETE_TOPICS, 6, fields)
        return [(each.name, each.error_code, each.error_message) for each in response.responses]

    first_id = first.topic_id
    assert asked((None, None)) == [(None, 42, "Neither topic name nor id were specified.")]
    assert asked(("first", first_id)) == [("first", 42, "You may not specify both topic name and topic id.")]
    assert asked((None, first_id), (None, first_id)) == [(None, 42, "Duplicate topic id.")]
    assert asked(("second", None), ("second", None)) == [("second", 42, "Duplicate topic name.")]
    assert asked((None, unknown))[0][:2] == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert cluster.metadata.topics() == [first, second]
    assert asked((None, first_id), ("first", None)) == [
        ("first", 0, None),
        ("first", 42, "The provided topic name maps to an ID that was already supplied."),
    ]
    assert cluster.metadata.topics() == [second]


def test_rows_are_free_again_when_the_owners_have_released_them(tmp_path: Path) -> None:
    cluster = AdminCluster(tmp_path, rows=4)
    cluster.create("full", 4)
    assert create(cluster, wanted("more"))["more"].error_code == ErrorCode.INVALID_PARTITIONS
    delete(cluster, "full")
    rejected = create(cluster, wanted("more"))["more"]
    assert rejected.error_code == ErrorCode.INVALID_PARTITIONS
    assert "max.partitions is 4" in rejected.error_message
    cluster.settle()
    for _ in range(10):
        assert create(cluster, wanted("more", num_partitions=4))["more"].error_code == 0
        cluster.settle()
        delete(cluster, "more")
        cluster.settle()
    cluster.close()


def test_a_new_controller_knows_the_unreleased_rows(tmp_path: Path) -> None:
    cluster = AdminCluster(tmp_path, rows=2)
    cluster.create("two", 2)
    delete(cluster, "two")
    cluster.restart_controller()
    assert create(cluster, wanted("more"))["more"].error_code == ErrorCode.INVALID_PARTITIONS
    cluster.settle()
    cluster.restart_controller()
    assert cluster.table.state(0) == STATE_CLOSED
    assert create(cluster, wanted("more", num_partitions=2))["more"].error_code == 0
    cluster.close()


@pytest.mark.parametrize("version", PARTITIONS_VERSIONS)
def test_partitions_are_added(cluster: AdminCluster, version: int) -> None:
    before = cluster.create("growing", 2)
    assert add_partitions(cluster, "growing", 5, version=version) == (0, None)
    after = present(cluster.metadata.topic("growing"))
    assert after.partitions[:2] == before.partitions
    assert len({partition.row for partition in after.partitions}) == 5
    assert after.topic_id == before.topic_id
    assert cluster.announced == [cluster.controller.version]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error", "message"),
    [
        ("growing", 3, None, 37, "Topic already has 3 partition(s)."),
        ("growing", 2, None, 37, "2 would not be an increase"),
        ("growing", -1, None, 37, "-1 would not be an increase"),
        ("growing", 1000, None, 37, "max.partitions"),
        ("growing", 5, [[1]], 39, "only 1 assignment(s) were specified"),
        ("growing", 4, [[2]], 39, "broker 2"),
        ("growing", 4, [[1]], 0, None),
        ("nowhere", 4, None, 3, None),
    ],
)
def test_adding_partitions_is_rejected_in_kafkas_words(
    cluster: AdminCluster, name: str, count: int, assignments: Any, error: int, message: str | None
) -> None:
    cluster.create("growing", 3)
    listed = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    code, text = add_partitions(cluster, name, count, listed)
    assert code == error
    assert (message or "") in (text or "")


def test_adding_partitions_can_be_tried_first(cluster: AdminCluster) -> None:
    cluster.create("growing", 3)
    assert add_partitions(cluster, "growing", 64, validate_only=True) == (0, None)
    assert cluster.metadata.partition("growing", 3) is None
    assert add_partitions(cluster, "growing", 64) == (0, None)


def test_auto_creation_returns_the_error_of_each_name(cluster: AdminCluster) -> None:
    cluster.create("there")
    outcome = cluster.controller.auto_create(["there", "new", "new", "bad name"])
    assert outcome == {"there": 36, "new": 0, "bad name": 17}
    assert cluster.metadata.topic("new") is not None
