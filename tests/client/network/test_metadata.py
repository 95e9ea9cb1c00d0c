"""A client's metadata of the cluster, and when it is refreshed."""

from __future__ import annotations

import random
import threading
from uuid import UUID

import pytest

from rotunda.broker.client.errors import (
    DeliveryTimeout,
    IllegalState,
    InvalidTopic,
    ProducerClosed,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
)
from rotunda.broker.client.network.addresses import HostAndPort
from rotunda.broker.client.network.metadata import LeaderIdAndEpoch, ProducerMetadata
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.snapshot import (
    MetadataResponse,
    Node,
    PartitionMetadata,
    TopicMetadata,
    metadata_response,
)
from rotunda.broker.clock import SystemClock
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import decode, decode_response, encode_response
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from tests.client.network.fake_selector import SEED
from tests.support.deadline import deadline_s
from tests.support.fakes import FakeClock

NODES = {1: Node(1, "one", 1), 2: Node(2, "two", 2)}


def new_metadata(clock: FakeClock | SystemClock | None = None) -> ProducerMetadata:
    return ProducerMetadata(NetworkConfig(), random.Random(SEED), clock or FakeClock())


def topic(name: str, *epochs: int | None, error: int = 0, number: int = 0, partition_error: int = 0) -> TopicMetadata:
    """Return a topic of which broker 1 leads all partitions."""
    partitions = tuple(
        PartitionMetadata(name, index, partition_error, 1, epoch, (1, 2), (1,)) for index, epoch in enumerate(epochs)
    )
    return TopicMetadata(name, error, UUID(int=number) if number else None, False, partitions)


def update(metadata: ProducerMetadata, *topics: TopicMetadata, now_ms: float = 0.0) -> None:
    """Request the metadata that are needed and respond with these topics."""
    asked = metadata.new_request(now_ms)
    response = MetadataResponse(NODES, topics, "cluster", 1)
    metadata.update(asked.request_version, response, asked.is_partial, now_ms)


def asked_for(metadata: ProducerMetadata, now_ms: float) -> set[str]:
    """Return the topics in the request that would be sent."""
    wire = b"".join(metadata.new_request(now_ms).build(12, 1, "me"))
    header = parse_header(wire, 4, len(wire))
    body = decode(ApiKey.METADATA, 12, wire, header.body_offset, len(wire))
    assert body.allow_auto_topic_creation
    return {each.name for each in body.topics}


def test_g02_in_the_beginning_there_are_addresses_and_a_wish() -> None:
    metadata = new_metadata()
    assert metadata.update_version == 0
    metadata.bootstrap([HostAndPort("a", 1), HostAndPort("b", 2)])
    assert metadata.update_version == 1
    assert metadata.update_requested
    assert metadata.time_to_next_update_ms(0) == 0
    snapshot = metadata.fetch()
    assert snapshot.is_bootstrap
    assert list(snapshot.nodes.values()) == [Node(-1, "a", 1), Node(-2, "b", 2)]
    assert snapshot.partition_count("any") is None


def test_g08_it_is_asked_again_when_it_is_too_old() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    update(metadata, topic("t", 0), now_ms=100)
    assert metadata.time_to_next_update_ms(100) == 300_000
    assert metadata.time_to_next_update_ms(300_099) == 1
    assert metadata.time_to_next_update_ms(300_100) == 0


def test_g08_a_new_topic_is_asked_for_alone_and_at_once() -> None:
    metadata = new_metadata()
    metadata.add("old", 0)
    update(metadata, topic("old", 0))
    metadata.add("new", 10)
    assert metadata.time_to_next_update_ms(10) == 0, "no backoff"
    assert asked_for(metadata, 10) == {"new"}
    update(metadata, topic("new", 0), now_ms=10)
    assert set(metadata.fetch().topics) == {"old", "new"}, "the others stay"
    assert not metadata.new_topics
    assert not metadata.update_requested
    metadata.request_update()
    assert asked_for(metadata, 10) == {"old", "new"}


def test_g08_a_topic_added_while_a_request_is_on_its_way_is_still_wanted() -> None:
    metadata = new_metadata()
    metadata.add("first", 0)
    asked = metadata.new_request(0)
    metadata.add("second", 0)
    metadata.update(asked.request_version, MetadataResponse(NODES, (topic("first", 0),)), asked.is_partial, 0)
    assert metadata.update_requested
    assert metadata.new_topics == {"second"}


def test_g08_backoff_after_failures_and_after_responses_without_news() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    for base in (100, 200, 400, 800, 1000, 1000):
        metadata.failed_update(0)
        assert 0.8 * base <= metadata.time_to_allow_update_ms(0) <= min(1.2 * base, 1000)
    update(metadata, topic("t", 0))
    assert metadata.time_to_allow_update_ms(0) <= 120, "a response ends it; the first wait is that after any response"
    for base in (100, 200, 400, 800, 1000):
        metadata.request_update()
        update(metadata, topic("t", 0))
        assert 0.8 * base <= metadata.time_to_allow_update_ms(0) <= min(1.2 * base, 1000)
    update(metadata, topic("t", 1))
    assert metadata.time_to_allow_update_ms(0) <= 120, "a new leader is news"
    update(metadata, topic("t", 1))
    metadata.request_update(reset_backoff=True)
    assert metadata.time_to_allow_update_ms(0) <= 120


@pytest.mark.parametrize(
    "described",
    [
        topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        topic("t", error=ErrorCode.LEADER_NOT_AVAILABLE),
        topic("t", 0, partition_error=ErrorCode.LEADER_NOT_AVAILABLE),
        topic("t", 0, partition_error=ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_g08_errors_that_mend_themselves_are_asked_about_again(described: TopicMetadata) -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    update(metadata, described)
    assert metadata.update_requested
    update(metadata, topic("t", 0), now_ms=1000)
    assert not metadata.update_requested


def test_g08_an_older_leader_epoch_changes_nothing_unless_the_topic_is_another() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    update(metadata, topic("t", 5, number=1))
    update(metadata, topic("t", 3, number=1))
    assert metadata.fetch().leader_epoch("t", 0) == 5
    update(metadata, topic("t", 0, number=2))
    assert metadata.fetch().leader_epoch("t", 0) == 0
    assert metadata.fetch().topic_ids == {"t": UUID(int=2)}
    assert metadata.fetch().topic_names == {UUID(int=2): "t"}


def test_g08_epochs_of_old_brokers_are_not_relied_on() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    response = MetadataResponse(NODES, (topic("t", 5),), has_reliable_leader_epochs=False)
    metadata.update(1, response, False, 0)
    assert metadata.fetch().leader_epoch("t", 0) is None
    assert metadata.fetch().leader_for("t", 0) == NODES[1]


def test_g08_responses_become_values() -> None:
    partition = {
        "partition_index": 3, "leader_id": -1, "leader_epoch": -1, "replica_nodes": [1, 2], "isr_nodes": [2],
        "offline_replicas": [1], "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
    }  # fmt: skip
    fields = {
        "brokers": [{"node_id": 4, "host": "h", "port": 9, "rack": "r"}],
        "topics": [{"name": "t", "topic_id": UUID(int=7).bytes, "is_internal": True, "partitions": [partition]}],
        "controller_id": -1,
        "cluster_id": None,
    }
    for version in range(1, 14):
        wire = encode_response(ApiKey.METADATA, version, 7, fields)
        found = metadata_response(decode_response(ApiKey.METADATA, version, wire, 4, len(wire)), version)
        assert found.nodes == {4: Node(4, "h", 9, "r")}
        assert found.controller_id is None
        [described] = found.topics
        assert described.topic_id == (UUID(int=7) if version >= 10 else None)
        assert described.is_internal
        offline = (1,) if version >= 5 else ()
        assert described.partitions == (PartitionMetadata("t", 3, 5, None, None, (1, 2), (2,), offline),)
        assert found.has_reliable_leader_epochs == (version >= 9)


def test_g10_a_newer_leader_from_another_response_is_used() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    update(metadata, topic("t", 5, 5, 5, 5, number=1))
    before = metadata.fetch()
    third = Node(3, "three", 3)
    leaders = {
        ("t", 0): LeaderIdAndEpoch(3, 6),
        ("t", 1): LeaderIdAndEpoch(2, 5),  # not newer
        ("t", 2): LeaderIdAndEpoch(9, 8),  # no known leader
        ("t", 3): LeaderIdAndEpoch(2, -1),  # no epoch in the response
        ("gone", 0): LeaderIdAndEpoch(2, 9),
    }
    assert metadata.update_partition_leadership(leaders, [third]) == {("t", 0)}
    after = metadata.fetch()
    assert after.leader_for("t", 0) == third
    assert after.leader_epoch("t", 0) == 6
    assert [after.leader_for("t", each) for each in (1, 2, 3)] == [NODES[1]] * 3
    assert after.topic_ids == before.topic_ids
    assert before.leader_for("t", 0) == NODES[1], "a snapshot does not change"
    update(metadata, topic("t", 5, 5, 5, 5, number=1))
    assert metadata.fetch().leader_epoch("t", 0) == 6, "a response from a lagging broker"


def test_g05_a_topic_that_is_not_used_is_forgotten() -> None:
    metadata = new_metadata()
    metadata.add("used", 0)
    metadata.add("idle", 0)
    update(metadata, topic("used", 0), topic("idle", 0))
    metadata.add("used", 200_000)
    metadata.request_update()
    update(metadata, topic("used", 0), topic("idle", 0), now_ms=300_000)
    assert metadata.topics == {"used"}
    assert set(metadata.fetch().topics) == {"used"}
    metadata.add("never answered", 300_000)
    metadata.request_update()
    update(metadata, topic("used", 0), now_ms=499_999)
    assert metadata.topics == {"used", "never answered"}, "a new request is kept until its response"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopic),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailed),
    ],
)
def test_g05_the_error_of_a_topic_is_raised_for_that_topic_once(code: int, error: type[Exception]) -> None:
    metadata = new_metadata()
    metadata.add("good", 0)
    metadata.add("bad", 0)
    update(metadata, topic("good", 0), topic("bad", error=code))
    metadata.raise_error_for_topic("good")
    update(metadata, topic("good", 0), topic("bad", error=code))
    assert metadata.error_of_topic("bad") == code
    assert metadata.error_of_topic("good") == 0
    with pytest.raises(error, match="bad"):
        metadata.raise_error_for_topic("bad")
    metadata.raise_error_for_topic("bad")


def test_g05_waiting_ends_with_a_newer_version_an_error_or_the_end() -> None:
    metadata = new_metadata(SystemClock())
    metadata.add("t", 0)
    version = metadata.request_update_for_topic("t")
    waiting = threading.Thread(target=metadata.await_update, args=(version, 60_000))
    waiting.start()
    update(metadata, topic("t", 0))
    waiting.join(deadline_s())
    assert not waiting.is_alive()
    with pytest.raises(DeliveryTimeout, match="no metadata within 1 ms"):
        metadata.await_update(metadata.update_version, 1)
    failures: list[Exception] = []

    def wait() -> None:
        try:
            metadata.await_update(metadata.update_version, 60_000)
        except (SaslAuthenticationFailed, ProducerClosed) as failure:
            failures.append(failure)

    for end in (lambda: metadata.fatal_error(SaslAuthenticationFailed("wrong")), metadata.close):
        waiting = threading.Thread(target=wait)
        waiting.start()
        end()
        waiting.join(deadline_s())
    assert [type(each) for each in failures] == [SaslAuthenticationFailed, ProducerClosed]
    with pytest.raises(IllegalState):
        update(metadata, topic("t", 0))


def test_g05_an_unknown_topic_is_asked_for_alone_a_known_one_with_all() -> None:
    metadata = new_metadata()
    metadata.add("known", 0)
    update(metadata, topic("known", 0))
    metadata.add("new", 0)
    metadata.request_update_for_topic("new")
    assert asked_for(metadata, 0) == {"new"}
    metadata.request_update_for_topic("known")
    assert asked_for(metadata, 0) == {"known", "new"}


def test_a_snapshot_responses_about_partitions_and_leaders() -> None:
    metadata = new_metadata()
    metadata.add("t", 0)
    homeless = PartitionMetadata("t", 2, ErrorCode.LEADER_NOT_AVAILABLE, None, None)
    led = tuple(PartitionMetadata("t", index, 0, index + 1, 0) for index in range(2))
    update(metadata, TopicMetadata("t", partitions=(homeless, *led)))
    snapshot = metadata.fetch()
    assert [each.partition for each in snapshot.partitions_for("t")] == [0, 1, 2]
    assert [each.partition for each in snapshot.available_partitions("t")] == [0, 1]
    assert snapshot.partition_count("t") == 3
    assert snapshot.partitions_of_node(2) == (led[1],)
    assert snapshot.leader_for("t", 2) is None
    assert snapshot.leader_for("t", 9) is None
    assert str(snapshot.leader_for("t", 0)) == "one:1 (id: 1 rack: None)"
