"""Metadata and related APIs: the cluster, its topics and its coordinators, as clients see them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.apis.cluster.api_versions import unsupported_version_response
from rotunda.broker.apis.cluster.describe_cluster import handle_describe_cluster
from rotunda.broker.apis.cluster.describe_quorum import handle_describe_quorum
from rotunda.broker.apis.groups.find_coordinator import handle_find_coordinator
from rotunda.broker.apis.topics.metadata import handle_metadata
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.security.session import Session
from tests.support.admin_cluster import CLUSTER_ID, LISTENER, AdminCluster

METADATA_VERSIONS = range(14)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
NOT_ASKED_FOR = -2147483648


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def metadata(cluster: AdminCluster, topics: Any, version: int = 13, **fields: bool) -> Any:
    return cluster.call(ApiKey.METADATA, version, {"topics": topics, **fields})


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_the_cluster_is_one_broker_on_the_requests_listener(cluster: AdminCluster, version: int) -> None:
    """C18: the advertised address is that of the request's listener."""
    cluster.create("orders", 2)
    answer = metadata(cluster, None, version)
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (1, "broker.test", 19092, None)
    ]
    assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    for index, partition in enumerate(topic.partitions):
        assert (partition.partition_index, partition.error_code, partition.leader_id) == (index, 0, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((1,), (1,), ())


def test_all_topics_are_described_by_name_and_an_empty_list_describes_none(cluster: AdminCluster) -> None:
    for name in ("c", "a", "__consumer_offsets", "b"):
        cluster.create(name, 4)
    everything = metadata(cluster, None).topics
    assert [topic.name for topic in everything] == ["__consumer_offsets", "a", "b", "c"]
    assert [topic.is_internal for topic in everything] == [True, False, False, False]
    assert metadata(cluster, []).topics == ()
    assert len(metadata(cluster, [], version=0).topics) == 4, "in version 0 it asks for all"


def test_topics_are_found_by_name_and_by_id(cluster: AdminCluster) -> None:
    topic = cluster.create("orders")
    request = [{"topic_id": topic.topic_id, "name": None}]
    [told] = metadata(cluster, request).topics
    assert (told.error_code, told.name, told.topic_id) == (0, "orders", topic.topic_id)
    [told] = metadata(cluster, [{"topic_id": b"x" * 16, "name": None}]).topics
    assert (told.error_code, told.name, told.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16)
    assert metadata(cluster, request, version=11).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_unknown_and_illegal_names_are_errors_of_their_topic(cluster: AdminCluster) -> None:
    cluster.create("orders")
    request = named("nowhere", "bad name", "orders", "orders")
    answer = metadata(cluster, request, allow_auto_topic_creation=False)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", 0),
    ]
    assert cluster.asked_to_create == []


def test_authorized_operations_are_described_on_request(cluster: AdminCluster) -> None:
    cluster.create("orders")
    silent = metadata(cluster, None, 10)
    assert silent.cluster_authorized_operations == NOT_ASKED_FOR
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    included = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    asked = metadata(cluster, None, 10, **included)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


def test_a_missing_topic_is_created_while_the_response_waits(cluster: AdminCluster) -> None:
    cluster.create("a.b")
    handler = cluster.handlers[0]
    asked = cluster.asked(ApiKey.METADATA, 12, cache=handler)
    fields = {"topics": named("new", "new", "a_b", "bad name", "a.b")}
    answer = handle_metadata(*asked, cluster.request(ApiKey.METADATA, 12, fields))
    assert isinstance(answer, Deferred)
    assert cluster.asked_to_create == [["new"]]
    assert answer.retry(False) is None
    cluster.controller.auto_create(["new"])
    assert answer.retry(False) is None
    handler.refresh()
    told = cluster.sent(ApiKey.METADATA, 12, answer.retry(False))
    assert [(topic.name, topic.error_code) for topic in told.topics] == [
        ("new", 0),
        ("a_b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", 0),
    ]


def test_a_topic_that_cannot_be_created_is_an_error_at_the_deadline(cluster: AdminCluster) -> None:
    request = cluster.request(ApiKey.METADATA, 4, {"topics": named("never")})
    answer = handle_metadata(*cluster.asked(ApiKey.METADATA, 4), request)
    assert isinstance(answer, Deferred)
    assert answer.retry(True)["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_only_if_the_broker_allows_it_too(tmp_path: Path) -> None:
    cluster = AdminCluster(tmp_path, settings={"auto.create.topics.enable": "false"})
    [topic] = metadata(cluster, named("never")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.close()


def test_the_leader_epoch_is_known_once_the_owner_has_opened_the_partition(cluster: AdminCluster) -> None:
    cluster.create("orders")
    row = cluster.partition("orders").row
    cluster.table.set_leader_epoch(row, 4)
    assert metadata(cluster, None).topics[0].partitions[0].leader_epoch == 4
    cluster.table.set_state(row, 0)
    assert metadata(cluster, None).topics[0].partitions[0].leader_epoch == -1


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(cluster: AdminCluster, version: int) -> None:
    fields = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    answer = cluster.call(ApiKey.DESCRIBE_CLUSTER, version, fields)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 1)
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "broker.test", 19092)]
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(("endpoint_type", "error"), [(2, 114), (3, 115)])
def test_describe_cluster_serves_brokers_only(cluster: AdminCluster, endpoint_type: int, error: int) -> None:
    fields = {"include_cluster_authorized_operations": False, "endpoint_type": endpoint_type}
    answer = cluster.call(ApiKey.DESCRIBE_CLUSTER, 1, fields)
    assert answer.error_code == error
    assert answer.error_message


@pytest.mark.parametrize("version", range(7))
def test_the_broker_coordinates_every_group_and_transaction(cluster: AdminCluster, version: int) -> None:
    """C18: the address of a coordinator depends on the request's listener, too."""
    cluster.create("__consumer_offsets", 4)
    cluster.create("__transaction_state", 4)
    for key_type in (0, 1) if version else (0,):
        fields = {"key": "group", "key_type": key_type, "coordinator_keys": ["group", "other"]}
        answer = cluster.call(ApiKey.FIND_COORDINATOR, version, fields)
        found = answer.coordinators if version >= 4 else [answer]
        assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
            (0, 1, "broker.test", 19092)
        ] * len(found)
        assert version < 4 or [each.key for each in found] == ["group", "other"]


def test_c18_a_listener_on_all_interfaces_advertises_the_address_of_the_connection(cluster: AdminCluster) -> None:
    """Each client by its own address; a client without a known address gets the default one."""
    cluster.create("__consumer_offsets", 4)
    request, broker = cluster.asked(ApiKey.METADATA, 12)
    everywhere = cluster.listeners[0].advertised_at("", 9092)
    cluster.listeners[:] = [everywhere]
    quorum = SimpleNamespace(
        topics=[SimpleNamespace(topic_name="__cluster_metadata", partitions=[SimpleNamespace(partition_index=0)])]
    )
    for reached, given in (
        ("10.1.2.3", ("10.1.2.3", 9092)),
        ("fd00::1", ("fd00::1", 9092)),
        ("", ("broker.test", 19092)),
    ):
        request.session = Session("alice", "10.9.9.9", reached)
        [told] = handle_metadata(request, broker, cluster.request(ApiKey.METADATA, 12, {"topics": []}))["brokers"]
        assert (told["host"], told["port"]) == given
        group = SimpleNamespace(key_type=0, coordinator_keys=["group"])
        nodes = [
            *handle_describe_cluster(
                request, broker, SimpleNamespace(include_cluster_authorized_operations=False, endpoint_type=1)
            )["brokers"],
            *handle_find_coordinator(request, broker, group)["coordinators"],
            *handle_describe_quorum(request, broker, quorum)["nodes"][0]["listeners"],
        ]
        assert [(each["host"], each["port"]) for each in nodes] == [given] * 3
    cluster.listeners[:] = [everywhere.advertised_at("kafka.example", 1)]
    request.session = Session("alice", "", "10.1.2.3")
    assert broker.address_for(request) == ("kafka.example", 1)


def test_a_request_for_the_first_coordinator_waits_for_its_topic(cluster: AdminCluster) -> None:
    request = SimpleNamespace(key_type=0, coordinator_keys=["group"])
    answer = handle_find_coordinator(*cluster.asked(ApiKey.FIND_COORDINATOR, 4), request)
    assert isinstance(answer, Deferred)
    assert cluster.asked_to_create == [["__consumer_offsets"]]
    assert answer.retry(False) is None
    assert answer.retry(True)["coordinators"][0]["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.create("__consumer_offsets", 4)
    assert answer.retry(False)["coordinators"][0]["error_code"] == 0


@pytest.mark.parametrize("version", range(1, 7))
def test_share_groups_have_no_coordinator(cluster: AdminCluster, version: int) -> None:
    fields = {"key": "group", "key_type": 2, "coordinator_keys": ["group"]}
    answer = cluster.call(ApiKey.FIND_COORDINATOR, version, fields)
    [found] = answer.coordinators if version >= 4 else [answer]
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_api_versions_are_those_of_the_registry(cluster: AdminCluster) -> None:
    """C08: the response lists exactly the served versions."""
    cluster.apis = [(18, 0, 4), (3, 0, 13), (0, 3, 12)]
    for version in range(5):
        fields = {"client_software_name": "kcat", "client_software_version": "1.7.1"}
        answer = cluster.call(ApiKey.API_VERSIONS, version, fields)
        served = [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]
        assert (answer.error_code, served) == (0, [(0, 3, 12), (3, 0, 13), (18, 0, 4)])


def test_c08_the_response_to_an_unsupported_version_has_version_0() -> None:
    wire = unsupported_version_response(258, 0, 4)
    assert wire == bytes.fromhex("00000010 00000102 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("apache-kafka-java", "4.1.0", 0),
        ("unknown", "unknown", 0),
        ("", "1", 42),
        ("a", "", 42),
        ("-a", "1", 42),
        ("a.", "1", 42),
        ("a b", "1", 42),
        ("a", "1_2", 42),
    ],
)
def test_client_software_must_have_a_proper_name(cluster: AdminCluster, name: str, version: str, error: int) -> None:
    """C09: anything but letters, digits, "-" and "." between letters or digits is error 42."""
    fields = {"client_software_name": name, "client_software_version": version}
    assert cluster.call(ApiKey.API_VERSIONS, 3, fields).error_code == error


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, 0),
        (CLUSTER_ID, 1, 0),
        (CLUSTER_ID, -1, 42),
        (None, 1, 42),
        ("another", 1, 129),
        (CLUSTER_ID, 2, 129),
        (CLUSTER_ID, -2, 129),
    ],
)
def test_v01_a_client_learns_that_it_has_reached_another_node(
    cluster: AdminCluster, cluster_id: str | None, node_id: int, error: int
) -> None:
    """KIP-1242. V02: not before it has authenticated. V03: whatever its address, and the one that is advertised."""
    fields = {
        "client_software_name": "me",
        "client_software_version": "1",
        "cluster_id": cluster_id,
        "node_id": node_id,
    }
    answer = cluster.call(ApiKey.API_VERSIONS, 5, fields)
    assert (answer.error_code, list(answer.api_keys)) == (error, [])
    cluster.listeners[0] = LISTENER._replace(protocol="SASL_PLAINTEXT")
    before = cluster.call(ApiKey.API_VERSIONS, 5, fields).error_code
    assert before == (error if error == 42 else 0)


def test_producer_ids_are_unique_across_restarts_of_the_controller(cluster: AdminCluster) -> None:
    given = []
    fields = {"transaction_timeout_ms": 60_000}
    for _ in range(3):
        for _ in range(1500):
            answer = cluster.call(ApiKey.INIT_PRODUCER_ID, 4, fields)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            given.append(answer.producer_id)
        cluster.restart_controller()
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_have_real_sizes(cluster: AdminCluster, version: int, tmp_path: Path) -> None:
    """users.md row 20: sizes of partitions and of the volume."""
    cluster.create("orders", 2)
    cluster.create("other")
    cluster.publish(cluster.partition("orders", 1).row, end=10, log_bytes=12345)

    def described(topics: Any) -> Any:
        answer = cluster.call(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
        [directory] = answer.results
        assert (directory.error_code, directory.log_dir) == (0, str(tmp_path))
        if version >= 4:
            assert directory.total_bytes >= directory.usable_bytes > 0
        return [
            (topic.name, [(part.partition_index, part.partition_size) for part in topic.partitions])
            for topic in directory.topics
        ]

    assert described(None) == [("orders", [(0, 0), (1, 12345)]), ("other", [(0, 0)])]
    asked = [{"topic": "orders", "partitions": [1, 7]}, {"topic": "nowhere", "partitions": [0]}]
    assert described(asked) == [("orders", [(1, 12345)])]


def page(cluster: AdminCluster, names: list[str], limit: int, cursor: Any) -> tuple[list[Any], Any]:
    fields = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = cluster.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    told = [
        (topic.name, topic.error_code, [partition.partition_index for partition in topic.partitions])
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return told, following and (following.topic_name, following.partition_index)


@pytest.mark.parametrize("limit", range(1, 8))
def test_topic_partitions_are_described_page_by_page(cluster: AdminCluster, limit: int) -> None:
    for name, partitions in (("a", 3), ("b", 1), ("c", 2)):
        cluster.create(name, partitions)
    told: list[tuple[str, int]] = []
    cursor: Any = None
    while True:
        topics, cursor = page(cluster, [], limit, cursor)
        assert sum(len(partitions) for _, _, partitions in topics) <= limit
        told += [(name, partition) for name, _, partitions in topics for partition in partitions]
        if cursor is None:
            break
    assert told == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


def test_topic_partitions_from_before_the_first_are_rejected(cluster: AdminCluster) -> None:
    """As in Kafka each requested topic has the error: the response has no other field for it."""
    cluster.create("known")
    told, cursor = page(cluster, ["known", "unknown"], 100, ("known", -5))
    assert told == [("known", 42, []), ("unknown", 42, [])]
    assert cursor is None
    assert page(cluster, [], 100, ("known", -1)) == ([], None)


def test_topic_partitions_of_unknown_topics_are_errors(cluster: AdminCluster) -> None:
    topic = cluster.create("known")
    told, cursor = page(cluster, ["unknown", "known", "bad name"], 100, None)
    assert told == [("bad name", 17, []), ("known", 0, [0]), ("unknown", 3, [])]
    assert cursor is None
    fields = {"topics": [{"name": "known"}], "response_partition_limit": 1, "cursor": None}
    answer = cluster.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    assert answer.topics[0].topic_id == topic.topic_id
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
