"""Faults of other servers that implement Kafka's protocol, by row of users.md: 3, 8, 14, 20, 39.

Each test's docstring names the server that had the fault.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE, Api, advertised
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import produce, read_partition

TOPIC, BROKER = 2, 4
UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION = 3, 35


def create(wire: WireClient, topic: str, partitions: int = 1, **configs: str) -> Any:
    """Create a topic and return the broker's description of it."""
    listed = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": listed}
    [created] = ask(wire, ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout_ms": 10_000}).topics
    assert created.error_code == 0, created.error_message
    return created


def delete(wire: WireClient, topic: str) -> None:
    [outcome] = ask(wire, ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": topic}], "timeout_ms": 10_000}).responses
    assert outcome.error_code == 0, outcome.error_message


def metadata(wire: WireClient, topic: str) -> Any:
    """Return the metadata of a topic, which is not created by the request."""
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    [described] = ask(wire, ApiKey.METADATA, 12, fields).topics
    return described


def describe(wire: WireClient, resource_type: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    [result] = ask(wire, ApiKey.DESCRIBE_CONFIGS, 4, fields).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


#: Those of telemetry are advertised and served with a setting only.
_KEYS = {key for key, _, _ in advertised(has_telemetry=False)}
SERVED = [api for api in API_TABLE if int(api.key) in _KEYS]


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.key.name)
def test_row_3_every_version_that_is_advertised_is_answered(broker: BrokerProcess, api: Api) -> None:
    """Row 3: Redpanda, KoP and others advertised versions that they closed the connection over, or too old ones.

    An empty request of each version has a response in that version's form, and the connection stays open.
    """
    with WireClient(broker.port) as wire:
        for version in range(api.min_version, api.max_version + 1):
            fields = {"acks": 1} if api.key is ApiKey.PRODUCE else {}
            assert ask(wire, api.key, version, fields) is not None


def test_row_3_what_clients_start_with_is_advertised(wire: WireClient) -> None:
    """Row 3: default producers need InitProducerId (redpanda#292); Sarama, Terraform and kafka.js their versions."""
    answer = ask(wire, ApiKey.API_VERSIONS, 4, {"client_software_name": "test", "client_software_version": "1"})
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert {int(api.key): (api.advertised_min, api.max_version) for api in SERVED} == ranges
    for key, version in ((0, 12), (1, 17), (2, 8), (3, 12), (10, 4), (18, 4), (19, 7), (22, 4), (32, 4), (60, 1)):
        assert ranges[key][0] <= version <= ranges[key][1]


def test_row_8_a_topic_tells_all_of_its_settings(wire: WireClient, topic: str) -> None:
    """Row 8: Schema Registry crashed when cleanup.policy was missing (redpanda#591); Nisshi returned none at all."""
    create(wire, topic, 1, cleanup_policy="compact")
    configs = describe(wire, TOPIC, topic)
    assert configs["cleanup.policy"].value == "compact"
    assert len(configs) > 30
    for name, config in configs.items():
        assert config.config_type in {1, 2, 3, 5, 6, 7}, name
        assert config.documentation, name
        assert config.config_source in {1, 2, 3, 4, 5}, name
        assert config.value is not None, name
        assert config.synonyms or config.config_source == 5, name
    assert configs["cleanup.policy"].config_source == 1
    assert configs["retention.ms"].config_source == 5


def test_row_8_the_broker_tells_all_of_its_settings(wire: WireClient) -> None:
    """Row 8: tools read the broker's settings, too: value, source, whether they can be changed, type and text."""
    configs = describe(wire, BROKER, "1")
    assert {"log.retention.hours", "message.max.bytes", "num.partitions", "log.dirs", "node.id"} <= set(configs)
    assert configs["node.id"].read_only
    assert not configs["message.max.bytes"].read_only
    assert all(config.documentation and config.config_type for config in configs.values())


def test_row_8_a_tool_that_reads_changes_and_writes_back_breaks_nothing(wire: WireClient, topic: str) -> None:
    """Row 8: AlterConfigs resets settings that are not named; a tool that received none reset all (Nisshi)."""
    create(wire, topic, 1, cleanup_policy="compact", retention_ms="1000")
    told = {name: config.value for name, config in describe(wire, TOPIC, topic).items()}
    told["retention.ms"] = "2000"
    listed = [{"name": name, "value": value} for name, value in told.items()]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": listed}
    [outcome] = ask(wire, ApiKey.ALTER_CONFIGS, 2, {"resources": [resource]}).responses
    assert outcome.error_code == 0, outcome.error_message
    assert {name: config.value for name, config in describe(wire, TOPIC, topic).items()} == told


def test_row_14_a_topic_is_gone_and_there_again_before_the_response(wire: WireClient, topic: str) -> None:
    """Row 14: tests that delete and create a topic raced with it (ksql#3973; kafka-go gives up on no leader)."""
    seen = set()
    for round_number in range(5):
        # The records of `record_batch` are years old.
        created = create(wire, topic, 3, retention_ms="-1")
        seen.add(created.topic_id)
        described = metadata(wire, topic)
        assert described.error_code == 0
        assert described.topic_id == created.topic_id
        assert [part.leader_id for part in described.partitions] == [1, 1, 1]
        value = b"%d" % round_number
        assert produce(wire, topic, 2, record_batch([value])).error_code == 0
        assert [record.value for record in read_partition(wire, topic, 2)] == [value]
        delete(wire, topic)
        assert metadata(wire, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert len(seen) == 5


def test_row_20_log_dirs_have_their_sizes(wire: WireClient, topic: str) -> None:
    """Row 20: without DescribeLogDirs dashboards stayed empty (kafka-ui#3261), and redpanda#18279 lacked the volume."""
    create(wire, topic, 2)
    batch = record_batch([bytes(5000)])
    assert produce(wire, topic, 1, batch).error_code == 0
    [result] = ask(wire, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": topic, "partitions": [0, 1]}]}).results
    assert result.error_code == 0
    assert result.total_bytes >= result.usable_bytes > 0
    [described] = result.topics
    assert {part.partition_index: part.partition_size for part in described.partitions} == {0: 0, 1: len(batch)}
    log = Path(result.log_dir) / f"{topic}-1" / f"{0:020}.log"
    assert log.stat().st_size >= len(batch)


def epoch_end(wire: WireClient, topic: str, epoch: int) -> tuple[int, int]:
    """Return (epoch, end offset) of OffsetForLeaderEpoch."""
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    asked = {"topics": [{"topic": topic, "partitions": [partition]}], "replica_id": -1}
    [[outcome]] = [each.partitions for each in ask(wire, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, asked).topics]
    assert outcome.error_code == 0
    return outcome.leader_epoch, outcome.end_offset


def leader_epoch(wire: WireClient, topic: str) -> int:
    """Return the leader epoch once the partition's owner has opened it; until then it is -1."""
    seen: list[int] = []

    def is_open() -> bool:
        seen.append(metadata(wire, topic).partitions[0].leader_epoch)
        return seen[-1] >= 0

    wait_until(is_open, "the partition is open")
    return seen[-1]


def test_row_39_leader_epochs_say_where_a_log_may_have_been_cut(broker_directory: Path) -> None:
    """Row 39: Redpanda (#1181, #3788) returned epochs that made clients see truncation; kafka-python checks them now.

    Every start begins an epoch, and the end of the last one is stored; a topic created again starts from the beginning.
    """
    topic = f"epochs-{uuid.uuid4().hex[:8]}"
    running = BrokerProcess(broker_directory, ephemeral=False).start()
    try:
        with WireClient(running.port) as wire:
            create(wire, topic, retention_ms="-1")
            first = leader_epoch(wire, topic)
            assert produce(wire, topic, 0, record_batch([b"a", b"b"])).error_code == 0
            assert epoch_end(wire, topic, first) == (first, 2)
        running.stop()
        running.start()
        with WireClient(running.port) as wire:
            second = leader_epoch(wire, topic)
            assert second > first
            assert produce(wire, topic, 0, record_batch([b"c"])).error_code == 0
            assert epoch_end(wire, topic, first) == (first, 2)
            assert epoch_end(wire, topic, second) == (second, 3)
            delete(wire, topic)
            create(wire, topic)
            again = leader_epoch(wire, topic)
            assert epoch_end(wire, topic, again) == (again, 0)
            if first < again:
                assert epoch_end(wire, topic, first) == (first, 0)
            assert read_partition(wire, topic, 0) == []
    finally:
        running.stop()
