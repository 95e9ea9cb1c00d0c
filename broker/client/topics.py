"""The topic operations of the command line, as requests on a connection. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import ApiError
from broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.client.connection import Connection

_METADATA_VERSION = 12
_CREATE_VERSION = 7
_DELETE_VERSION = 6
_CONFIGS_VERSION = 4
_TOPIC_RESOURCE = 2
_DYNAMIC_TOPIC_CONFIG = 1
_UNKNOWN_TOPIC = 3


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
    connection: Connection, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
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
    _check(answer.topics[0])


def delete(connection: Connection, name: str) -> None:
    """Delete a topic. Raises ApiError."""
    version = connection.highest_version(ApiKey.DELETE_TOPICS, _DELETE_VERSION)
    # Newer versions name topics in structures, older ones in a list of names; each takes what it knows.
    fields = {"topics": [{"name": name, "topic_id": None}], "topic_names": [name], "timeout_ms": 30_000}
    _check(connection.request(ApiKey.DELETE_TOPICS, version, fields).responses[0])


def names(connection: Connection) -> list[str]:
    """Return the names of all topics, sorted."""
    return sorted(str(topic.name) for topic in _metadata(connection, None).topics)


def describe(connection: Connection, name: str) -> Topic:
    """Return one topic. Raises ApiError when there is none of that name."""
    found = _metadata(connection, name).topics[0]
    _check(found)
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
    topic_id = str(getattr(found, "topic_id", None) or "")
    return Topic(name, topic_id, bool(found.is_internal), partitions, _configs(connection, name))


def _metadata(connection: Connection, name: str | None) -> Any:
    version = connection.highest_version(ApiKey.METADATA, _METADATA_VERSION)
    topics = None if name is None else [{"name": name, "topic_id": None}]
    return connection.request(ApiKey.METADATA, version, {"topics": topics, "allow_auto_topic_creation": False})


def _configs(connection: Connection, name: str) -> dict[str, str]:
    version = connection.highest_version(ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION)
    resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
    answer = connection.request(ApiKey.DESCRIBE_CONFIGS, version, {"resources": [resource]})
    _check(answer.results[0])
    return {
        str(each.name): str(each.value)
        for each in answer.results[0].configs
        if each.config_source == _DYNAMIC_TOPIC_CONFIG
    }


def _check(result: Any) -> None:
    if int(result.error_code):
        raise ApiError(int(result.error_code), getattr(result, "error_message", None))
