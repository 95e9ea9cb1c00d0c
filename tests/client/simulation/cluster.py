"""A cluster of brokers that serves a producer by Kafka's rules. It never loses an acknowledged record.

Requests arrive as bytes and are read with the broker's and kio's codecs; responses are sent as bytes. The logs survive
a change of leader, as with acks=all.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import RequestHeader, parse_header
from rotunda.broker.protocol.messages.produce import (
    PartResponse,
    ProduceRequest,
    encode_produce_response,
    parse_produce,
)
from rotunda.broker.records.record_batch import read_header
from tests.client.simulation.coordinator import Coordinator
from tests.client.simulation.partition_log import Appended, PartitionLog

FIRST_IMPLICIT = 12
"""The first version of Produce that adds its partitions to the transaction."""


@dataclass
class ClusterConfig:
    """The kind of a cluster."""

    nodes: int = 3
    partitions: int = 3
    transaction_version: int = 2
    newest_produce: int = 13
    largest_batch: int = 1 << 20


@dataclass
class Cluster:
    """The brokers, as one: each request has the id of the broker that received it."""

    config: ClusterConfig
    later: Callable[[Callable[[], None]], None]
    chance: random.Random
    is_up: dict[int, bool] = field(default_factory=dict)
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    leaders: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    coordinator_node: int = 0
    refuse: Callable[[int], int] = lambda _api: 0
    """An error for a request to this API, 0 for none: what passes by itself."""

    outcome: PartResponse | None = None
    """The answer to each batch that comes, in the place of appending it."""
    throttle_ms: int = 0
    """The throttle time of every Produce response."""
    produced: list[tuple[int, int]] = field(default_factory=list)
    """Of each Produce that came: to which node, and with how many partitions."""
    first_epoch: int = 0
    """That of every new producer id without transactions."""
    append_errors: float = 0.0
    """How often a batch is answered with an error that passes, before or after it was appended."""

    def __post_init__(self) -> None:
        self.topic_id = uuid.UUID(int=7).bytes
        self.is_up = dict.fromkeys(range(self.config.nodes), True)
        for index in range(self.config.partitions):
            partition = TopicPartition("events", index)
            self.logs[partition] = PartitionLog()
            self.leaders[partition] = index % self.config.nodes, 0
        self.coordinator = Coordinator(
            self.later,
            lambda partition, producer_id, epoch, committed: self.logs[partition].write_marker(
                producer_id, epoch, committed
            ),
        )

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        self.leaders[partition] = node_id, self.leaders[partition][1] + 1

    def response(self, node_id: int, wire: bytes) -> bytes | None:
        """Return the response of a broker to a request, both with their sizes as prefix; None for none."""
        header = parse_header(wire, 4, len(wire))
        if header.api_key == ApiKey.PRODUCE:
            return self._produce(node_id, header, wire)
        body = codec.decode(header.api_key, header.api_version, wire, header.body_offset, len(wire))
        handle = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end_txn,
        }[ApiKey(header.api_key)]
        fields = {"throttle_time_ms": 0, **handle(node_id, header, body)}
        if header.api_key == ApiKey.FIND_COORDINATOR and header.api_version == 0:
            fields.pop("throttle_time_ms")
        return codec.encode_response(header.api_key, header.api_version, header.correlation_id, fields)

    def _api_versions(self, _node_id: int, _header: RequestHeader, _body: Any) -> dict[str, Any]:
        served = {
            ApiKey.PRODUCE: (3, self.config.newest_produce),
            ApiKey.METADATA: (0, 13),
            ApiKey.FIND_COORDINATOR: (0, 6),
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.INIT_PRODUCER_ID: (0, 5),
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
            ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
            ApiKey.END_TXN: (0, 5),
            ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        }
        level = self.config.transaction_version
        return {
            "error_code": 0,
            "api_keys": [
                {"api_key": int(key), "min_version": low, "max_version": high} for key, (low, high) in served.items()
            ],
            "finalized_features_epoch": 1,
            "finalized_features": [
                {"name": "transaction.version", "max_version_level": level, "min_version_level": level}
            ],
        }

    def _metadata(self, _node_id: int, _header: RequestHeader, _body: Any) -> dict[str, Any]:
        return {
            "brokers": [{"node_id": node, "host": f"broker{node}", "port": 9092, "rack": None} for node in self.is_up],
            "cluster_id": "simulated",
            "controller_id": 0,
            "topics": [
                {
                    "error_code": 0,
                    "name": "events",
                    "topic_id": self.topic_id,
                    "is_internal": False,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": partition.partition,
                            "leader_id": leader,
                            "leader_epoch": epoch,
                            "replica_nodes": list(self.is_up),
                            "isr_nodes": [leader],
                            "offline_replicas": [],
                        }
                        for partition, (leader, epoch) in self.leaders.items()
                    ],
                }
            ],
        }

    def _find_coordinator(self, _node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        node = self.coordinator_node
        found = {
            "error_code": self.refuse(header.api_key),
            "error_message": None,
            "node_id": node,
            "host": f"broker{node}",
            "port": 9092,
        }
        if header.api_version < 4:
            return found
        return {"coordinators": [{"key": body.coordinator_keys[0], **found}]}

    def _not_coordinator(self, node_id: int, api_key: int) -> int:
        return self.refuse(api_key) or (0 if node_id == self.coordinator_node else ErrorCode.NOT_COORDINATOR)

    def _init_producer_id(self, node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        error, producer_id, epoch = self.refuse(header.api_key), -1, -1
        if not error and body.transactional_id is None:
            producer_id, epoch = self.coordinator.new_producer_id(), self.first_epoch
        elif not error:
            error = self._not_coordinator(node_id, header.api_key)
            if not error:
                present = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
                error, producer_id, epoch = self.coordinator.init_producer_id(body.transactional_id, *present)
        return {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}

    def _add_partitions(self, node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        partitions = {
            TopicPartition(topic.name, int(index)) for topic in body.v3_and_below_topics for index in topic.partitions
        }
        error = self._not_coordinator(node_id, header.api_key) or self.coordinator.add(
            body.v3_and_below_transactional_id,
            int(body.v3_and_below_producer_id),
            int(body.v3_and_below_producer_epoch),
            partitions,
        )
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": "events",
                    "results_by_partition": [
                        {"partition_index": each.partition, "partition_error_code": error} for each in partitions
                    ],
                }
            ]
        }

    def _add_offsets(self, node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        who = body.transactional_id, int(body.producer_id), int(body.producer_epoch)
        return {"error_code": self._not_coordinator(node_id, header.api_key) or self.coordinator.add(*who, set())}

    def _commit_offsets(self, node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        who = body.transactional_id, int(body.producer_id), int(body.producer_epoch)
        error = self._not_coordinator(node_id, header.api_key)
        if not error and header.api_version >= 5:
            error = self.coordinator.add(*who, set())
        offsets = {
            (body.group_id, TopicPartition(topic.name, each.partition_index)): int(each.committed_offset)
            for topic in body.topics
            for each in topic.partitions
        }
        error = error or self.coordinator.commit_offsets(*who, offsets)
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, "error_code": error} for each in topic.partitions
                    ],
                }
                for topic in body.topics
            ]
        }

    def _end_txn(self, node_id: int, header: RequestHeader, body: Any) -> dict[str, Any]:
        error, producer_id, epoch = self._not_coordinator(node_id, header.api_key), -1, -1
        if not error:
            who = body.transactional_id, int(body.producer_id), int(body.producer_epoch)
            error, producer_id, epoch = self.coordinator.end(*who, bool(body.committed), header.api_version >= 5)
        return {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}

    def _produce(self, node_id: int, header: RequestHeader, wire: bytes) -> bytes | None:
        request = parse_produce(wire, header.api_version, header.body_offset, len(wire))
        self.produced.append((node_id, len(request.parts)))
        responses = []
        for part in request.parts:
            partition = TopicPartition("events", part.partition)
            records = memoryview(wire)[part.records_offset :][: part.records_size]
            if self.outcome is not None:
                place = part.topic_name, part.topic_id, part.partition
                responses.append(PartResponse(*place, *self.outcome[3:]))
                continue
            appended = self._append(node_id, header, request, partition, records)
            start = self.logs[partition].start
            responses.append(PartResponse(part.topic_name, part.topic_id, part.partition, *appended, start))
        if request.acks == 0:
            return None
        return encode_produce_response(header.api_version, header.correlation_id, self.throttle_ms, responses)

    def _not_in_transaction(
        self, version: int, name: str | None, partition: TopicPartition, records: memoryview
    ) -> int:
        head = read_header(records)
        assert head is not None
        if name is None:
            return 0
        who = name, head.producer_id, head.producer_epoch
        if version < FIRST_IMPLICIT:
            return 0 if self.coordinator.has(*who, partition) else ErrorCode.INVALID_TXN_STATE
        error = self.coordinator.add(*who, {partition})
        return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error

    def _append(
        self,
        node_id: int,
        header: RequestHeader,
        request: ProduceRequest,
        partition: TopicPartition,
        records: memoryview,
    ) -> Appended:
        if self.leaders[partition][0] != node_id:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(records) > self.config.largest_batch:
            return Appended(ErrorCode.MESSAGE_TOO_LARGE)
        rejection = self._not_in_transaction(header.api_version, request.transactional_id, partition, records)
        if rejection:
            return Appended(rejection)
        appended = Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        mishap = self.chance.random() < self.append_errors
        if not mishap or self.chance.random() < 0.5:
            appended = self.logs[partition].append(records)
            if mishap and not appended.error:
                appended = Appended(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return appended
