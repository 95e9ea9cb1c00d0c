"""The command line's topic operations, as requests on a client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rotunda.broker.client.admin import offsets, settings
from rotunda.broker.client.admin.settings import Resource
from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.client.admin.offsets import Bounds
    from rotunda.broker.client.network.blocking_client import BlockingClient

_METADATA_VERSION = 12
_CREATE_VERSION = 7
_DELETE_VERSION = 6
_PARTITIONS_VERSION = 3
_LOG_DIRS_VERSION = 4


class Partition(NamedTuple):
    """One partition of a described topic."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    #: None when the broker does not return offsets to this user.
    log_start_offset: int | None
    log_end_offset: int | None


class ListedTopic(NamedTuple):
    """A topic of a list; None is unknown. `records` counts offsets, so it includes deleted ones of compacted topics."""

    name: str
    partitions: int
    records: int | None
    size_bytes: int | None


class Topic(NamedTuple):
    """A described topic; `configs` has the settings of the topic itself."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[Partition, ...]
    configs: dict[str, str]


def create(
    client: BlockingClient, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | None]
) -> None:
    """Create a topic; -1 partitions or replicas mean the broker's default. Raises ApiError."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    response = client.request(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30_000}, _CREATE_VERSION)
    check(response.topics[0])


def delete(client: BlockingClient, *names: str) -> None:
    """Delete topics with one request. Raises ApiError for the first failure; the others are deleted."""
    # Newer versions use structures, older ones a list of names; each version encodes its own field.
    structures = [{"name": name} for name in names]
    fields = {"topics": structures, "topic_names": names, "timeout_ms": 30_000}
    for response in client.request(ApiKey.DELETE_TOPICS, fields, _DELETE_VERSION).responses:
        check(response)


def alter(
    client: BlockingClient,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Increase a topic's partition count, set its settings, and delete those with the value None. Raises ApiError.

    With `validate_only` the broker only validates the change.
    """
    if configs:
        settings.alter(client, Resource(settings.TOPIC, name), configs, validate_only=validate_only)
    if partitions is not None:
        topic = {"name": name, "count": partitions, "assignments": None}
        fields = {"topics": [topic], "timeout_ms": 30_000, "validate_only": validate_only}
        check(client.request(ApiKey.CREATE_PARTITIONS, fields, _PARTITIONS_VERSION).results[0])


def partition_counts(client: BlockingClient, wanted: Iterable[str]) -> dict[str, int]:
    topics = [{"name": name} for name in wanted]
    return {
        str(topic.name): len(topic.partitions)
        for topic in (_metadata(client, topics).topics if topics else ())
        if int(topic.error_code) == 0
    }


def names(client: BlockingClient) -> list[str]:
    """Return the names of all topics, sorted."""
    return sorted(str(topic.name) for topic in _metadata(client, None).topics)


def list_topics(client: BlockingClient) -> list[ListedTopic]:
    """Return all topics, sorted by name."""
    counts = {str(topic.name): len(topic.partitions) for topic in _metadata(client, None).topics}
    bounds = _bounds(client, [TopicPartition(name, each) for name, count in counts.items() for each in range(count)])
    records: Counter[str] = Counter()
    for partition, (start, _, end) in bounds.items():
        records[partition.topic] += end - start
    sizes = _sizes(client)
    known = {partition.topic for partition in bounds}
    return [
        ListedTopic(name, count, records[name] if name in known else None, sizes.get(name))
        for name, count in sorted(counts.items())
    ]


def describe(client: BlockingClient, name: str) -> Topic:
    """Return a topic's description. Raises ApiError if it does not exist."""
    found = _metadata(client, [{"name": name}]).topics[0]
    check(found)
    bounds = _bounds(client, [TopicPartition(name, int(each.partition_index)) for each in found.partitions])
    partitions = []
    for each in sorted(found.partitions, key=lambda partition: int(partition.partition_index)):
        number = int(each.partition_index)
        offsets_of = bounds.get(TopicPartition(name, number))
        start, end = (None, None) if offsets_of is None else (offsets_of.start, offsets_of.end)
        replicas, in_sync = tuple(each.replica_nodes), tuple(each.isr_nodes)
        partitions.append(Partition(number, int(each.leader_id), replicas, in_sync, start, end))
    topic_id = str(UUID(bytes=found.topic_id)) if any(found.topic_id) else ""
    return Topic(name, topic_id, bool(found.is_internal), tuple(partitions), _configs(client, name))


def _bounds(client: BlockingClient, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
    """Return the bounds of partitions; none when the broker returns an error, such as missing rights."""
    try:
        return offsets.bounds(client, partitions)
    except ApiError:
        return {}


def _sizes(client: BlockingClient) -> Mapping[str, int]:
    """Return the size of each topic on disk in bytes; none without the right to describe the cluster."""
    sizes: Counter[str] = Counter()
    for directory in client.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, _LOG_DIRS_VERSION, 1).results:
        for topic in directory.topics:
            sizes[str(topic.name)] += sum(int(each.partition_size) for each in topic.partitions)
    return sizes


def _metadata(client: BlockingClient, topics: list[dict[str, Any]] | None) -> Any:
    return client.request(ApiKey.METADATA, {"topics": topics, "allow_auto_topic_creation": False}, _METADATA_VERSION)


def _configs(client: BlockingClient, name: str) -> dict[str, str]:
    described = settings.describe_resource(client, Resource(settings.TOPIC, name))
    return {each.name: each.value for each in described if each.is_set}
