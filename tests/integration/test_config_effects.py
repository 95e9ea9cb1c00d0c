"""Settings of topics and of the broker are in force as soon as the admin client has its response.

librdkafka's admin client sets them; their effects are seen through raw requests and in the data directory.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.deadline import deadline_s
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import fetch, produce, read_partition

MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP = 10, 19, 32
HOUR_MS = 3600 * 1000
LOG_APPEND_TIME_BIT = 8


@pytest.fixture
def topic(admin: AdminClient, topic: str) -> str:
    """Return a topic of one partition that is there."""
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(deadline_s())
    return topic


def alter(admin: AdminClient, name: str, key: str, value: str | None, **options: Any) -> None:
    """Set, or with None delete, one setting of a topic."""
    kind = options.get("operation", AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE)
    entry = ConfigEntry(key, value, incremental_operation=kind)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(deadline_s())


def described(admin: AdminClient, resource_type: ResourceType, name: str) -> dict[str, ConfigEntry]:
    [future] = admin.describe_configs([ConfigResource(resource_type, name)]).values()
    return future.result(deadline_s())


def alter_all_brokers(wire: WireClient, key: str, value: str | None) -> None:
    """Set, or with None delete, the default of all brokers (kafka-configs --entity-default)."""
    config = {"name": key, "config_operation": 0 if value is not None else 1, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    [outcome] = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses
    assert outcome.error_code == 0, outcome.error_message


def send(wire: WireClient, topic: str, size: int = 10, *, acks: int = 1, timestamp_ms: int | None = None) -> int:
    """Produce one record and return the error code."""
    now_ms = int(time.time() * 1000)
    batch = record_batch([bytes(size)], timestamp_ms=now_ms if timestamp_ms is None else timestamp_ms)
    return produce(wire, topic, 0, batch, acks).error_code


def time_of_batch(wire: WireClient, topic: str, offset: int) -> tuple[int, int]:
    """Return the timestamp type bit of the batch at an offset, and its largest timestamp."""
    records = fetch(wire, topic, 0, offset).records
    (attributes,) = struct.unpack_from(">h", records, 21)
    (timestamp_ms,) = struct.unpack_from(">q", records, 35)
    return attributes & LOG_APPEND_TIME_BIT, timestamp_ms


def test_max_message_bytes(admin: AdminClient, wire: WireClient, topic: str) -> None:
    assert send(wire, topic, 2000) == 0
    alter(admin, topic, "max.message.bytes", "1000")
    assert send(wire, topic, 2000) == MESSAGE_TOO_LARGE
    alter(admin, topic, "max.message.bytes", None)
    assert send(wire, topic, 2000) == 0


def test_message_timestamp_type(admin: AdminClient, wire: WireClient, topic: str) -> None:
    alter(admin, topic, "retention.ms", "-1")
    before_ms = int(time.time() * 1000)
    assert send(wire, topic, timestamp_ms=1000) == 0
    alter(admin, topic, "message.timestamp.type", "LogAppendTime")
    assert send(wire, topic, timestamp_ms=1000) == 0
    assert time_of_batch(wire, topic, 0) == (0, 1000)
    kind, timestamp_ms = time_of_batch(wire, topic, 1)
    assert kind == LOG_APPEND_TIME_BIT
    assert before_ms <= timestamp_ms <= int(time.time() * 1000)


def test_message_timestamp_before_and_after(admin: AdminClient, wire: WireClient, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    old, new = now_ms - 2 * HOUR_MS, now_ms + 2 * HOUR_MS
    assert send(wire, topic, timestamp_ms=old) == 0
    assert send(wire, topic, timestamp_ms=new) == INVALID_TIMESTAMP
    alter(admin, topic, "message.timestamp.before.max.ms", str(HOUR_MS))
    alter(admin, topic, "message.timestamp.after.max.ms", str(3 * HOUR_MS))
    assert send(wire, topic, timestamp_ms=old) == INVALID_TIMESTAMP
    assert send(wire, topic, timestamp_ms=new) == 0


def test_min_insync_replicas(admin: AdminClient, wire: WireClient, topic: str) -> None:
    alter(admin, topic, "min.insync.replicas", "2")
    assert send(wire, topic, acks=-1) == NOT_ENOUGH_REPLICAS
    assert send(wire, topic, acks=1) == 0
    alter(admin, topic, "min.insync.replicas", "1")
    assert send(wire, topic, acks=-1) == 0
    assert len(read_partition(wire, topic, 0)) == 2


def test_segment_bytes(admin: AdminClient, wire: WireClient, topic: str) -> None:
    directory = Path(described(admin, ResourceType.BROKER, "1")["log.dirs"].value) / f"{topic}-0"
    for _ in range(3):
        assert send(wire, topic, 700_000) == 0
    assert len(list(directory.glob("*.log"))) == 1
    alter(admin, topic, "segment.bytes", str(1 << 20))
    for _ in range(3):
        assert send(wire, topic, 700_000) == 0
    assert len(list(directory.glob("*.log"))) == 4
    assert len(read_partition(wire, topic, 0)) == 6


def test_cleanup_policy_by_append_and_subtract(admin: AdminClient, wire: WireClient, topic: str) -> None:
    alter(admin, topic, "cleanup.policy", "compact", operation=AlterConfigOpType.APPEND)
    assert described(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "delete,compact"
    assert send(wire, topic) == 87  # no key, which a compacted topic needs
    alter(admin, topic, "cleanup.policy", "compact", operation=AlterConfigOpType.SUBTRACT)
    assert described(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "delete"
    assert send(wire, topic) == 0


def test_defaults_of_all_brokers(admin: AdminClient, wire: WireClient, topic: str) -> None:
    """Row 8: a topic's configs show a default that was set at run time, with its source."""
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == str(7 * 24 * HOUR_MS)
    alter_all_brokers(wire, "log.retention.ms", "5000000")
    alter_all_brokers(wire, "message.max.bytes", "1000")
    try:
        entry = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
        assert (entry.value, entry.source) == ("5000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
        assert send(wire, topic, 2000) == MESSAGE_TOO_LARGE
        alter(admin, topic, "retention.ms", "6000000")
        entry = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
        assert (entry.value, entry.source) == ("6000000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    finally:
        alter_all_brokers(wire, "log.retention.ms", None)
        alter_all_brokers(wire, "message.max.bytes", None)
    assert send(wire, topic, 2000) == 0


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retention.mss", "1", "Unknown topic config name: retention.mss"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms"),
        ("cleanup.policy", "forget", "Invalid value forget for configuration cleanup.policy"),
    ],
)
def test_what_kafka_rejects_is_rejected(admin: AdminClient, topic: str, key: str, value: str, says: str) -> None:
    """Row 8: unknown keys and bad values are INVALID_CONFIG, in CreateTopics and in IncrementalAlterConfigs."""
    with pytest.raises(KafkaException) as altered:
        alter(admin, topic, key, value)
    created = admin.create_topics([NewTopic(f"{topic}-new", 1, 1, config={key: value})])[f"{topic}-new"]
    with pytest.raises(KafkaException) as refused:
        created.result(deadline_s())
    for failure in (altered, refused):
        error = failure.value.args[0]
        assert error.name() == "INVALID_CONFIG"
        assert says in error.str()
