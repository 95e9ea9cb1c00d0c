"""The validation of topic requests: Kafka's rules on names, partition counts, replicas and assignments.

Pure functions over plain values, with Kafka's own error codes and messages. The controller calls them before it writes;
nothing here depends on storage, and the cluster is assumed to have only this broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

MAX_NAME_LENGTH = 249
USE_DEFAULT = -1

#: Kafka's limit for one request, all its topics together.
MOST_PARTITIONS_AT_ONCE = 10_000

#: Kafka's own metadata log; it looks like a topic to tools, and cannot be created.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class NewTopic(NamedTuple):
    """A topic to create. -1 partitions or replicas: the default. ``assignments``: (partition, broker ids)."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = {}


class AddedPartitions(NamedTuple):
    """A topic with its new number of partitions. ``assignments``: the broker ids of each added partition."""

    name: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None


def check_topic_name(name: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) unless the name is legal."""
    if not name:
        _invalid_name("the empty string is not allowed")
    if name in {".", ".."}:
        _invalid_name(f"'{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        _invalid_name(f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    if not _LEGAL_NAME.fullmatch(name):
        _invalid_name(f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")


def metric_name(topic: str) -> str:
    """Return the name in which two topics may collide: in metric names a period becomes an underscore."""
    return topic.replace(".", "_")


def check_total_partitions(topics: Iterable[NewTopic], default_partitions: int) -> None:
    """Raise ApiError(POLICY_VIOLATION) if one request creates topics with too many partitions."""
    total = 0
    for topic in topics:
        wanted = default_partitions if topic.partitions == USE_DEFAULT else max(0, topic.partitions)
        total += len(topic.assignments) or wanted
    if total > MOST_PARTITIONS_AT_ONCE:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def partition_count(topic: NewTopic, config: BrokerConfig) -> int:
    """Return the number of partitions of a new topic.

    Raises ApiError with INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT or INVALID_REQUEST.
    """
    if topic.assignments:
        return _assigned_partitions(topic, config.node_id)
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions < USE_DEFAULT or topic.partitions == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    wanted = topic.replication_factor
    replication = config.default_replication_factor if wanted == USE_DEFAULT else wanted
    if replication > 1 and not config.one_replica_suffices:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication} time(s): The target replication factor of "
            f"{replication} cannot be reached because only 1 broker(s) are registered.",
        )
    return config.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions


def check_added_partitions(
    name: str, current: int, wanted: int, assignments: Sequence[Sequence[int]] | None, broker_id: int
) -> None:
    """Raise ApiError unless a topic of ``current`` partitions may be extended to ``wanted`` in all.

    ``assignments`` holds the broker ids of each added partition; None leaves the choice to the broker.
    """
    if wanted == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if wanted < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {wanted} would not be an increase.",
        )
    if assignments is None:
        return
    if len(assignments) != wanted - current:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {wanted - current} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified.",
        )
    for brokers in assignments:
        _check_assignment(brokers, broker_id)


def _assigned_partitions(topic: NewTopic, broker_id: int) -> int:
    prefix = "A manual partition assignment was specified, but"
    if topic.replication_factor != USE_DEFAULT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{prefix} replication factor was not set to -1.")
    if topic.partitions != USE_DEFAULT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{prefix} numPartitions was not set to -1.")
    seen: set[int] = set()
    for partition, brokers in topic.assignments:
        if partition in seen:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        seen.add(partition)
        _check_assignment(brokers, broker_id)
    if seen != set(range(len(seen))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(seen)


def _check_assignment(brokers: Sequence[int], broker_id: int) -> None:
    prefix = "The manual partition assignment includes"
    if not brokers:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} an empty replica list.")
    previous = None
    for broker in sorted(brokers):
        if broker != broker_id:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{prefix} broker {broker}, but no such broker is registered.",
            )
        if broker == previous:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} the broker {broker_id} more than once.")
        previous = broker


def _invalid_name(reason: str) -> None:
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_internal_topic(name: str, partitions: int, needed: int) -> None:
    """Raise ApiError(INVALID_PARTITIONS) unless an internal topic has the partitions that its ids hash to."""
    if partitions != needed:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{name}' has {needed} partitions and cannot have {partitions}: its coordinators find groups and "
            "transactional ids by that number.",
        )


def internal_topic_configs(name: str, config: BrokerConfig) -> dict[str, str]:
    """Return the settings of an internal topic: in segments of its own size, stored as written.

    It is compacted, except for the state of share groups, whose owner deletes the records that snapshots replace.
    """
    segment_bytes = {
        GROUP_TOPIC: config.offsets_topic_segment_bytes,
        TRANSACTION_TOPIC: config.transaction_state_log_segment_bytes,
        SHARE_TOPIC: config.share_coordinator_state_topic_segment_bytes,
    }[name]
    configs = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), "compression.type": "producer"}
    return {**configs, "cleanup.policy": "delete", "retention.ms": "-1"} if name == SHARE_TOPIC else configs
