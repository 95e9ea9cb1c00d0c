"""What a Metadata response says, as plain values, and the request that asks for it.

Used on the I/O thread. Of the compiled message only this module knows the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from broker.client.network.cluster.snapshot import Node, PartitionMetadata
from broker.client.network.requests import Build, codec_request
from broker.protocol.api_keys import ApiKey

#: Older brokers give no epochs that can be relied on (KAFKA-8659).
_RELIABLE_EPOCHS_FROM = 9


class TopicMetadata(NamedTuple):
    """One topic; `error` is the broker's code, `topic_id` None where the version has none."""

    name: str
    error: int = 0
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


class MetadataResponse(NamedTuple):
    """A response; `error` is the code of the whole (KIP-1102)."""

    nodes: Mapping[int, Node]
    topics: tuple[TopicMetadata, ...] = ()
    cluster_id: str | None = None
    controller_id: int | None = None
    has_reliable_leader_epochs: bool = True
    error: int = 0

    def errors(self) -> dict[str, int]:
        """Return the topics' errors, by name, of those that have one."""
        return {topic.name: topic.error for topic in self.topics if topic.error}


def metadata_fields(topics: Iterable[str] | None, *, allow_auto_topic_creation: bool) -> dict[str, Any]:
    """Return the fields of a request for these topics, or all."""
    named = None if topics is None else [{"name": topic} for topic in topics]
    return {"topics": named, "allow_auto_topic_creation": allow_auto_topic_creation}


def metadata_request(topics: Iterable[str]) -> Build:
    """Return a request for these topics."""
    return codec_request(ApiKey.METADATA, metadata_fields(topics, allow_auto_topic_creation=True))


def metadata_response(answer: Any, version: int) -> MetadataResponse:
    """Return the values of a compiled message."""
    controller_id = answer.controller_id
    return MetadataResponse(
        nodes={
            int(each.node_id): Node(int(each.node_id), each.host, int(each.port), each.rack) for each in answer.brokers
        },
        topics=tuple(_topic(each) for each in answer.topics),
        cluster_id=answer.cluster_id,
        controller_id=controller_id if controller_id >= 0 else None,
        has_reliable_leader_epochs=version >= _RELIABLE_EPOCHS_FROM,
        error=answer.error_code,
    )


def _topic(answer: Any) -> TopicMetadata:
    name = answer.name or ""
    return TopicMetadata(
        name=name,
        error=int(answer.error_code),
        topic_id=UUID(bytes=answer.topic_id) if any(answer.topic_id) else None,
        is_internal=bool(answer.is_internal),
        partitions=tuple(_partition(name, each) for each in answer.partitions),
    )


def _partition(topic: str, answer: Any) -> PartitionMetadata:
    leader, epoch = int(answer.leader_id), answer.leader_epoch
    return PartitionMetadata(
        topic=topic,
        partition=int(answer.partition_index),
        error=int(answer.error_code),
        leader_id=leader if leader >= 0 else None,
        leader_epoch=epoch if epoch >= 0 else None,
        replicas=tuple(map(int, answer.replica_nodes)),
        isr=tuple(map(int, answer.isr_nodes)),
        offline=tuple(map(int, answer.offline_replicas)),
    )
