"""The topic operations of the command line, as requests on a connection. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker.client.admin import settings
from broker.client.admin.connection import check
from broker.client.admin.settings import Resource
from broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.client.admin.connection import Connection

_METADATA_VERSION = 12
_CREATE_VERSION = 7
_DELETE_VERSION = 6
_PARTITIONS_VERSION = 3


class Partition(NamedTuple):
    """One partition of a description."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Topic(NamedTuple):
    """A topic as the broker describes it; `configs` holds what was set on the topic itself."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[Partition, ...]
    configs: dict[str, str]


def create(
    connection: Connection, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | None]
) -> None:
    """Create a topic; -1 partitions or replicas mean the broker's default. Raises ApiError."""
    version = connection.highest_version(ApiKey.CREATE_TOPICS, _CREATE_VERSION)
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    answer = connection.request(ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": 30_000})
    check(answer.topics[0])


def delete(connection: Connection, *names: str) -> None:
    """Delete topics, by one request. Raises ApiError for the first that cannot be; the others are deleted."""
    version = connection.highest_version(ApiKey.DELETE_TOPICS, _DELETE_VERSION)
    # Newer versions name topics in structures, older ones in a list of names; each takes what it knows.
    structures = [{"name": name} for name in names]
    fields = {"topics": structures, "topic_names": names, "timeout_ms": 30_000}
    for response in connection.request(ApiKey.DELETE_TOPICS, version, fields).responses:
        check(response)


def alter(
    connection: Connection,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Raise a topic's partition count, set its settings, and delete those whose value is None. Raises ApiError.

    With `validate_only` the broker answers whether it would do so.
    """
    if configs:
        settings.alter(connection, Resource(settings.TOPIC, name), configs, validate_only=validate_only)
    if partitions is not None:
        version = connection.highest_version(ApiKey.CREATE_PARTITIONS, _PARTITIONS_VERSION)
        topic = {"name": name, "count": partitions, "assignments": None}
        fields = {"topics": [topic], "timeout_ms": 30_000, "validate_only": validate_only}
        check(connection.request(ApiKey.CREATE_PARTITIONS, version, fields).results[0])


def partition_counts(connection: Connection, wanted: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic that exists."""
    topics = [{"name": name} for name in wanted]
    return {
        str(topic.name): len(topic.partitions)
        for topic in (_metadata(connection, topics).topics if topics else ())
        if int(topic.error_code) == 0
    }


def names(connection: Connection) -> list[str]:
    """Return the names of all topics, sorted."""
    return sorted(str(topic.name) for topic in _metadata(connection, None).topics)


def describe(connection: Connection, name: str) -> Topic:
    """Return one topic. Raises ApiError when there is none of that name."""
    found = _metadata(connection, [{"name": name}]).topics[0]
    check(found)
    partitions = tuple(
        sorted(
            Partition(
                int(each.partition_index),
                int(each.leader_id),
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
            )
            for each in found.partitions
        )
    )
    topic_id = str(UUID(bytes=found.topic_id)) if any(found.topic_id) else ""
    return Topic(name, topic_id, bool(found.is_internal), partitions, _configs(connection, name))


def _metadata(connection: Connection, topics: list[dict[str, Any]] | None) -> Any:
    version = connection.highest_version(ApiKey.METADATA, _METADATA_VERSION)
    return connection.request(ApiKey.METADATA, version, {"topics": topics, "allow_auto_topic_creation": False})


def _configs(connection: Connection, name: str) -> dict[str, str]:
    described = settings.describe_resource(connection, Resource(settings.TOPIC, name))
    return {each.name: each.value for each in described if each.is_set}
