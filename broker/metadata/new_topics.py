"""Validates new topics and added partitions against the current metadata and settings. Runs in the controller.

Rules that need only the request are in `topic_validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.config.topic_config import validate_topic_configs
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.metadata.topics.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    AddedPartitions,
    NewTopic,
    check_added_partitions,
    check_internal_topic,
    check_topic_name,
    partition_count,
)
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import INTERNAL_TOPICS

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import MetadataCache, TopicInfo
    from rotunda.broker.protocol.routing import CoordinatorPartitions


#: Charges the client's quota for new partitions. Raises ApiError if it is used up.
Charge = Callable[[int], None]


def free_of_charge(_partitions: int) -> None:
    """Charge nothing, for clients without a quota."""


def check_new_topic(metadata: MetadataCache, coordinators: CoordinatorPartitions, topic: NewTopic) -> TopicOutcome:
    """Return the layout of a new topic. Raises ApiError when it cannot be created."""
    name = topic.name
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    check_topic_name(name)
    if metadata.topic(name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = metadata.colliding(name)
    if other is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    config = metadata.broker_config
    validate_topic_configs(topic.configs, config)
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    count = partition_count(topic, config)
    if name in INTERNAL_TOPICS:
        check_internal_topic(name, count, coordinators.of(name))
    return TopicOutcome(name, partitions=count, configs=configs)


def check_more_partitions(metadata: MetadataCache, wanted: AddedPartitions) -> TopicInfo:
    """Return the topic to which partitions are added. Raises ApiError when they cannot be added."""
    name, count, assignments = wanted
    topic = metadata.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if topic.internal:
        check_internal_topic(name, count, current)
    check_added_partitions(name, current, count, assignments, metadata.broker_config.node_id)
    return topic
