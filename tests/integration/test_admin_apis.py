"""Unmodified admin clients against the APIs of one node: confluent-kafka (librdkafka) and kafka-python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as PythonTopicPartition
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s


@pytest.fixture
def python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: AdminClient, topic: str) -> str:
    """Return a topic of two partitions that is there."""
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(deadline_s())
    return topic


def test_confluent_elects_leaders(admin: AdminClient, topic: str) -> None:
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    outcomes = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(deadline_s())
    names = {part.partition: error.name() for part, error in outcomes.items()}
    assert names == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PART"}
    assert admin.elect_leaders(ElectionType.UNCLEAN).result(deadline_s()) == {}


def test_kafka_python_updates_features(python: KafkaAdminClient) -> None:
    assert python.describe_features()["transaction.version"]["finalized"] == (2, 2)
    python.update_features({"transaction.version": ("SAFE_DOWNGRADE", 1)})
    described = python.describe_features()["transaction.version"]
    assert (described["supported"], described["finalized"]) == ((0, 2), (1, 1))
    python.update_features({"transaction.version": ("UPGRADE", 2)})
    with pytest.raises(errors.KafkaError):
        python.update_features({"no.such.feature": ("UPGRADE", 1)})
    release = python.describe_features()["metadata.version"]
    assert (release["supported"], release["finalized"]) == ((7, 33), (33, 33))
    with pytest.raises(errors.KafkaError):
        python.update_features({"metadata.version": ("SAFE_DOWNGRADE", 32)})
    assert python.describe_features()["transaction.version"]["finalized"] == (2, 2)


def test_kafka_python_sees_a_quorum_of_one(python: KafkaAdminClient) -> None:
    described = python.describe_metadata_quorum()
    assert "__cluster_metadata" in str(described)


def test_kafka_python_moves_partitions_to_where_they_are(python: KafkaAdminClient, topic: str) -> None:
    part = PythonTopicPartition(topic, 0)
    assert not python.list_partition_reassignments()
    assert python.alter_partition_reassignments({part: [1]}) == {part: None}
    assert python.alter_partition_reassignments({part: [2]}) == {part: errors.for_code(39)}


def test_kafka_python_lists_resources_with_settings(python: KafkaAdminClient, topic: str) -> None:
    assert topic in str(python.list_config_resources())


def test_kafka_python_alters_only_described_settings(python: KafkaAdminClient, topic: str) -> None:
    """Row 8: it reads all settings first, and changes only the ones in its request."""
    with pytest.raises(ValueError, match=r"no\.such\.key"):
        python.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"no.such.key": "1"})])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})
    python.alter_configs([resource])
    assert "5000" in str(python.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
