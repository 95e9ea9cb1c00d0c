"""The cluster as described by Metadata responses: brokers, topics, leaders. Immutable values.

The I/O thread creates them, any thread reads them. Only this module uses the fields of the compiled message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from rotunda.broker.client.network.addresses import HostAndPort
from rotunda.broker.client.network.requests import Build, codec_request
from rotunda.broker.protocol.api_keys import ApiKey

#: Older brokers send unreliable leader epochs (KAFKA-8659).
_RELIABLE_EPOCHS_FROM = 9


class Node(NamedTuple):
    """A broker; bootstrap servers have negative ids."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


class PartitionMetadata(NamedTuple):
    """One partition. `error` is the broker's code; `leader_id` and `leader_epoch` are None if unknown."""

    topic: str
    partition: int
    error: int = 0
    leader_id: int | None = None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClusterSnapshot:
    """The cluster as of the last responses."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    #: By topic and partition.
    partitions: Mapping[tuple[str, int], PartitionMetadata] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int | None = None
    unauthorized_topics: frozenset[str] = frozenset()
    invalid_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()
    #: Whether only `bootstrap.servers` are known.
    is_bootstrap: bool = False

    @staticmethod
    def bootstrap(servers: Iterable[HostAndPort]) -> ClusterSnapshot:
        """Return a snapshot of the bootstrap servers alone; their ids are -1, -2 and so on."""
        nodes = {-number: Node(-number, host, port) for number, (host, port) in enumerate(servers, 1)}
        return ClusterSnapshot(nodes=nodes, is_bootstrap=True)

    @cached_property
    def topic_names(self) -> Mapping[UUID, str]:
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}

    @cached_property
    def _by_topic(self) -> Mapping[str, tuple[PartitionMetadata, ...]]:
        found: dict[str, list[PartitionMetadata]] = {}
        for each in self.partitions.values():
            found.setdefault(each.topic, []).append(each)
        return {topic: tuple(sorted(each, key=lambda one: one.partition)) for topic, each in found.items()}

    @cached_property
    def _available(self) -> Mapping[str, tuple[PartitionMetadata, ...]]:
        return {
            topic: tuple(each for each in partitions if each.leader_id in self.nodes)
            for topic, partitions in self._by_topic.items()
        }

    @cached_property
    def _by_leader(self) -> Mapping[int, tuple[PartitionMetadata, ...]]:
        found: dict[int, list[PartitionMetadata]] = {}
        for each in self.partitions.values():
            if each.leader_id is not None and each.leader_id in self.nodes:
                found.setdefault(each.leader_id, []).append(each)
        return {node_id: tuple(each) for node_id, each in found.items()}

    @property
    def topics(self) -> Iterable[str]:
        return self._by_topic.keys()

    def partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return a topic's partitions in order; empty if the topic is unknown."""
        return self._by_topic.get(topic, ())

    def partition_count(self, topic: str) -> int | None:
        """Return a topic's number of partitions; None if the topic is unknown."""
        partitions = self._by_topic.get(topic)
        return len(partitions) if partitions is not None else None

    def available_partitions(self, topic: str) -> tuple[PartitionMetadata, ...]:
        return self._available.get(topic, ())

    def partitions_of_node(self, node_id: int) -> tuple[PartitionMetadata, ...]:
        return self._by_leader.get(node_id, ())

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return a partition's metadata; None if unknown."""
        return self.partitions.get((topic, partition))

    def leader_for(self, topic: str, partition: int) -> Node | None:
        """Return the leader of a partition; None if it has none, or none is known."""
        found = self.partitions.get((topic, partition))
        return self.nodes.get(found.leader_id) if found is not None and found.leader_id is not None else None

    def leader_epoch(self, topic: str, partition: int) -> int | None:
        """Return a partition's leader epoch; None if unknown."""
        found = self.partitions.get((topic, partition))
        return found.leader_epoch if found is not None else None


class TopicMetadata(NamedTuple):
    """One topic. `error` is the broker's code; `topic_id` is None in versions without topic ids."""

    name: str
    error: int = 0
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


class MetadataResponse(NamedTuple):
    """A decoded response; `error` is its top-level error code (KIP-1102)."""

    nodes: Mapping[int, Node]
    topics: tuple[TopicMetadata, ...] = ()
    cluster_id: str | None = None
    controller_id: int | None = None
    has_reliable_leader_epochs: bool = True
    error: int = 0

    def errors(self) -> dict[str, int]:
        """Return the error codes by topic, failed topics only."""
        return {topic.name: topic.error for topic in self.topics if topic.error}


def metadata_fields(topics: Iterable[str] | None, *, allow_auto_topic_creation: bool) -> dict[str, Any]:
    """Return the request fields for these topics, or for all if None."""
    named = None if topics is None else [{"name": topic} for topic in topics]
    return {"topics": named, "allow_auto_topic_creation": allow_auto_topic_creation}


def metadata_request(topics: Iterable[str]) -> Build:
    return codec_request(ApiKey.METADATA, metadata_fields(topics, allow_auto_topic_creation=True))


def metadata_response(response: Any, version: int) -> MetadataResponse:
    controller_id = response.controller_id
    return MetadataResponse(
        nodes={
            int(each.node_id): Node(int(each.node_id), each.host, int(each.port), each.rack)
            for each in response.brokers
        },
        topics=tuple(_topic(each) for each in response.topics),
        cluster_id=response.cluster_id,
        controller_id=controller_id if controller_id >= 0 else None,
        has_reliable_leader_epochs=version >= _RELIABLE_EPOCHS_FROM,
        error=response.error_code,
    )


def _topic(response: Any) -> TopicMetadata:
    name = response.name or ""
    return TopicMetadata(
        name=name,
        error=int(response.error_code),
        topic_id=UUID(bytes=response.topic_id) if any(response.topic_id) else None,
        is_internal=bool(response.is_internal),
        partitions=tuple(_partition(name, each) for each in response.partitions),
    )


def _partition(topic: str, response: Any) -> PartitionMetadata:
    leader, epoch = int(response.leader_id), response.leader_epoch
    return PartitionMetadata(
        topic=topic,
        partition=int(response.partition_index),
        error=int(response.error_code),
        leader_id=leader if leader >= 0 else None,
        leader_epoch=epoch if epoch >= 0 else None,
        replicas=tuple(map(int, response.replica_nodes)),
        isr=tuple(map(int, response.isr_nodes)),
        offline=tuple(map(int, response.offline_replicas)),
    )
