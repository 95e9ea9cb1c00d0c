"""The admin APIs whose response is determined by a single broker, a single data directory, and no security."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.topics.elect_leaders import handle_elect_leaders
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, STATE_UNOPENED
from tests.support.admin_cluster import LISTENER, AdminCluster
from tests.support.slices import finished


@pytest.fixture
def cluster(cluster: AdminCluster) -> AdminCluster:
    cluster.create("orders", 2)
    return cluster


def elected_at_last(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    answer = finished(handle_elect_leaders(request, broker, body))
    return finished(answer.retry(True)) if isinstance(answer, Deferred) else answer


def elect(cluster: AdminCluster, topics: dict[str, list[int]] | None, kind: int = 0, version: int = 2) -> Any:
    asked = None if topics is None else [{"topic": name, "partitions": each} for name, each in topics.items()]
    fields = {"election_type": kind, "topic_partitions": asked}
    response = cluster.call(ApiKey.ELECT_LEADERS, version, fields, elected_at_last)
    outcomes = {
        (result.topic, part.partition_id): part.error_code
        for result in response.replica_election_results
        for part in result.partition_result
    }
    return getattr(response, "error_code", 0), outcomes


@pytest.mark.parametrize("version", range(3))
def test_an_election_is_never_needed(cluster: AdminCluster, version: int) -> None:
    """Spec I, row 43."""
    asked = {"orders": [0, 1, 7], "nowhere": [0]}
    error, outcomes = elect(cluster, asked, version=version)
    assert error == 0
    assert outcomes == {("orders", 0): 84, ("orders", 1): 84, ("orders", 7): 3, ("nowhere", 0): 3}
    assert elect(cluster, None, version=version) == (0, {})


def test_an_offline_partition_has_nobody_to_elect(cluster: AdminCluster) -> None:
    cluster.table.set_state(cluster.partition("orders", 1).row, STATE_CLOSED)
    assert elect(cluster, None) == (0, {("orders", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
    assert elect(cluster, None, kind=1) == (0, {("orders", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE})


def test_a_partition_that_is_about_to_be_opened_is_waited_for(cluster: AdminCluster) -> None:
    row = cluster.partition("orders", 1).row
    cluster.table.set_state(row, STATE_UNOPENED)
    request = SimpleNamespace(election_type=0, topic_partitions=None)
    answer = finished(handle_elect_leaders(*cluster.asked(ApiKey.ELECT_LEADERS, 2), request))
    assert isinstance(answer, Deferred)
    assert answer.retry(False) is None
    cluster.table.set_state(row, STATE_OPEN)
    assert list(finished(answer.retry(False))["replica_election_results"]) == []


def test_an_unknown_kind_of_election_is_rejected(cluster: AdminCluster) -> None:
    assert elect(cluster, {"orders": [0]}, kind=5) == (42, {("orders", 0): 42})
    assert elect(cluster, None, kind=5) == (42, {})


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "error", "says"),
    [
        ("orders", 0, [1], 0, None),
        ("orders", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        ("orders", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2, but no such broker is registered"),
        ("orders", 0, [2, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2"),
        ("orders", 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once"),
        ("orders", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        ("orders", 5, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition orders:5."),
        ("nowhere", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nowhere."),
    ],
)
def test_partitions_can_be_reassigned_to_where_they_are_only(
    cluster: AdminCluster, version: int, topic: str, index: int, replicas: Any, error: int, says: str | None
) -> None:
    """Spec I, row 45: to the broker itself a no-op, to others 39, cancelling 85."""
    partition = {"partition_index": index, "replicas": replicas}
    fields = {"topics": [{"name": topic, "partitions": [partition]}]}
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    response = cluster.call(key, version, fields)
    assert response.error_code == 0
    [[outcome]] = [each.partitions for each in response.responses]
    assert (outcome.partition_index, outcome.error_code) == (index, error)
    assert outcome.error_message == says if says is None else says in outcome.error_message


@pytest.mark.parametrize("topics", [None, [], [{"name": "orders", "partition_indexes": [0]}]])
def test_no_reassignment_is_under_way(cluster: AdminCluster, topics: Any) -> None:
    """Spec I, row 46: used by kafka-topics --describe."""
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    response = cluster.call(key, 0, {"topics": topics})
    assert (response.error_code, response.topics) == (0, ())


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_stay_in_the_one_directory(cluster: AdminCluster, version: int) -> None:
    """Spec I, row 34: an unknown directory is error 57."""
    here = cluster.config.log_dirs[0]
    dirs = [
        {"path": here, "topics": [{"name": "orders", "partitions": [0, 9]}]},
        {"path": "/elsewhere", "topics": [{"name": "orders", "partitions": [1]}, {"name": "x", "partitions": [0]}]},
    ]
    key = ApiKey.ALTER_REPLICA_LOG_DIRS
    response = cluster.call(key, version, {"dirs": dirs})
    outcomes = {
        (result.topic_name, part.partition_index): part.error_code
        for result in response.results
        for part in result.partitions
    }
    assert outcomes == {("orders", 0): 0, ("orders", 9): 9, ("orders", 1): 57, ("x", 0): 57}


def rejected(cluster: AdminCluster, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    return cluster.call(key, version, fields)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acl_requests_fail_as_without_an_authorizer(cluster: AdminCluster, version: int) -> None:
    """Spec I, rows 29-31: error 54."""
    described = cluster.call(ApiKey.DESCRIBE_ACLS, version, {})
    assert (described.error_code, described.resources) == (54, ())
    assert "No Authorizer is configured" in described.error_message
    creation = {"resource_type": 2, "resource_name": "orders", "principal": "User:a", "host": "*", "operation": 3}
    created = cluster.call(ApiKey.CREATE_ACLS, version, {"creations": [creation] * 2})
    assert [each.error_code for each in created.results] == [54, 54]
    deleted = cluster.call(ApiKey.DELETE_ACLS, version, {"filters": [{"operation": 1}]})
    assert [(each.error_code, each.matching_acls) for each in deleted.filter_results] == [(54, ())]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_delegation_tokens_are_not_given_to_strangers(cluster: AdminCluster, version: int) -> None:
    """Spec I, rows 38-41: error 64 on a listener of plain text."""
    fields = {"renewers": [], "max_lifetime_ms": -1}
    created = rejected(cluster, ApiKey.CREATE_DELEGATION_TOKEN, version, fields)
    assert (created.error_code, created.principal_name, created.hmac) == (64, "ANONYMOUS", b"")
    described = rejected(cluster, ApiKey.DESCRIBE_DELEGATION_TOKEN, version, {})
    assert (described.error_code, described.tokens) == (64, ())
    if version < 3:
        for key in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
            assert rejected(cluster, key, version, {"hmac": b"x"}).error_code == 64


def test_a_token_for_somebody_else_names_them(cluster: AdminCluster) -> None:
    fields = {"owner_principal_type": "User", "owner_principal_name": "alice", "renewers": []}
    created = rejected(cluster, ApiKey.CREATE_DELEGATION_TOKEN, 3, fields)
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "ANONYMOUS")


def quorum(cluster: AdminCluster, topic: str, partitions: list[int], version: int) -> Any:
    listed = [{"partition_index": index} for index in partitions]
    fields = {"topics": [{"topic_name": topic, "partitions": listed}]}
    return cluster.call(ApiKey.DESCRIBE_QUORUM, version, fields)


@pytest.mark.parametrize("version", range(3))
def test_the_broker_leads_a_quorum_of_one(cluster: AdminCluster, version: int) -> None:
    """Spec I, row 55."""
    response = quorum(cluster, "__cluster_metadata", [0], version)
    [[part]] = [topic.partitions for topic in response.topics]
    assert (response.error_code, part.error_code, part.leader_id) == (0, 0, 1)
    assert part.high_watermark == cluster.controller.version == 1
    [voter] = part.current_voters
    assert (voter.replica_id, voter.log_end_offset, part.observers) == (1, 1, ())
    if version >= 2:
        [node] = response.nodes
        [listener] = node.listeners
        assert (node.node_id, listener.host, listener.port) == (
            1,
            LISTENER.advertised_host,
            LISTENER.advertised_port,
        )


@pytest.mark.parametrize(("topic", "partitions"), [("orders", [0]), ("__cluster_metadata", [1]), ("orders", [0, 1])])
def test_other_partitions_have_no_quorum(cluster: AdminCluster, topic: str, partitions: list[int]) -> None:
    response = quorum(cluster, topic, partitions, 2)
    [described] = response.topics
    assert [part.error_code for part in described.partitions] == [3] * len(partitions)


@pytest.mark.parametrize(
    ("version", "types", "listed"),
    [
        (0, [], []),
        (1, [], [(2, "orders"), (4, "1"), (8, "1")]),
        (1, [4], [(4, "1")]),
        (1, [16, 8, 32], [(8, "1")]),
        (1, [2, 2], [(2, "orders")]),
    ],
)
def test_resources_with_settings_are_listed(cluster: AdminCluster, version: int, types: Any, listed: Any) -> None:
    """Spec I, row 74; version 0 requests subscriptions to client metrics, and there are none here."""
    key = ApiKey.LIST_CONFIG_RESOURCES
    response = cluster.call(key, version, {"resource_types": types})
    assert response.error_code == 0
    assert [(getattr(each, "resource_type", 16), each.resource_name) for each in response.config_resources] == listed


def test_an_unknown_type_of_resource_is_rejected(cluster: AdminCluster) -> None:
    key = ApiKey.LIST_CONFIG_RESOURCES
    response = cluster.call(key, 1, {"resource_types": [2, 77]})
    assert (response.error_code, response.config_resources) == (35, ())
