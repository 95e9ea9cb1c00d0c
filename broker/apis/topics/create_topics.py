"""CreateTopics: topics are on disk and known to every process before the response. Served by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from rotunda.broker.apis.cluster.controller_access import (
    TOPICS_AT_ONCE,
    announce,
    controller_of,
    mutation_quota_of,
    part_of,
    request_id_of,
)
from rotunda.broker.apis.configs.config_entries import creation_summary
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import Changed
from rotunda.broker.metadata.configs.config_descriptions import describe_topic
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.metadata.topics.topic_validation import CLUSTER_METADATA_TOPIC, NewTopic
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.quotas.controller_mutations import ControllerMutationQuota
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType

_DUPLICATE, _FORBIDDEN = int(ErrorCode.INVALID_REQUEST), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

#: From this version on topics are rejected while the quota of controller mutations is used up (KIP-599).
QUOTA_IS_STRICT_FROM = 6


def handle_create_topics(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each topic, with its settings when it was created or only validated."""
    times_asked = Counter(topic.name for topic in body.topics)
    wanted: list[NewTopic] = []
    denied: list[str] = []

    def sort(topic: Any) -> None:
        if _is_rejected(request, broker, topic.name):
            denied.append(topic.name)
        else:
            wanted.append(_new_topic(topic))

    yield from each_of((topic for topic in body.topics if times_asked[topic.name] == 1), sort)
    controller, request_id = controller_of(broker), request_id_of(request)
    try:
        controller.check_size(wanted)
    except ApiError as error:
        failed = partial(_failed, error=error.code, message=error.message)
        return {"topics": Lazily(times_asked, failed)}
    not_tried = [TopicOutcome(name, _DUPLICATE, "Duplicate topic name.") for name, n in times_asked.items() if n > 1]
    not_tried += [TopicOutcome(name, _FORBIDDEN, "Authorization failed.") for name in denied]
    quota = mutation_quota_of(request, broker, QUOTA_IS_STRICT_FROM)
    create = partial(_create_some, controller, quota, request_id, body.validate_only)
    response = yield from _create(request, broker, wanted, not_tried, create)
    return Changed(quota.charged, throttle_time_ms=quota.throttle_ms(), **response)


def _create(
    request: Request,
    broker: BrokerContext,
    wanted: list[NewTopic],
    not_tried: list[TopicOutcome],
    create: Callable[[int, list[NewTopic]], Any],
) -> Work:
    """Create topics in portions; each is one change, which a replacement finds done or makes again."""
    outcomes: list[TopicOutcome] = []
    for start in range(0, len(wanted), TOPICS_AT_ONCE):
        outcomes += create(start, wanted[start : start + TOPICS_AT_ONCE])
        announce(broker)
        yield None
    outcomes += not_tried
    return {"topics": Lazily(outcomes, partial(_result, request, broker))}


def _is_rejected(request: Request, broker: BrokerContext, name: str) -> bool:
    """Return whether the client may not create a topic; the metadata topic is rejected elsewhere."""
    authorizer, session = broker.metadata.authorizer, request.session
    if authorizer is None or name == CLUSTER_METADATA_TOPIC:
        return False
    if authorizer.allows(session, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False):
        return False
    return bool(broker.access.rejection(request, ResourceType.TOPIC, name, Operation.CREATE))


def _create_some(
    controller: Controller,
    quota: ControllerMutationQuota,
    request_id: str,
    validate_only: bool,
    start: int,
    wanted: list[NewTopic],
) -> list[TopicOutcome]:
    part = part_of(request_id, start)
    try:
        return controller.create_topics(wanted, validate_only=validate_only, request=part, charge=quota.charge)
    except ApiError as error:
        return [TopicOutcome(topic.name, error.code, error.message) for topic in wanted]


def _result(request: Request, broker: BrokerContext, outcome: TopicOutcome) -> dict[str, Any]:
    if outcome.error_code:
        return _failed(outcome.name, outcome.error_code, outcome.message)
    config = broker.metadata.broker_config
    if hidden := broker.access.rejection(request, ResourceType.TOPIC, outcome.name, Operation.DESCRIBE_CONFIGS):
        return {
            "name": outcome.name,
            "topic_id": outcome.topic_id,
            "error_code": 0,
            "error_message": None,
            "topic_config_error_code": hidden,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": [],
        }
    return {
        "name": outcome.name,
        "topic_id": outcome.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": outcome.partitions,
        "replication_factor": 1,
        "configs": creation_summary(describe_topic(outcome.configs, config)),
    }


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _failed(name: str, error: int, message: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": bytes(16),
        "error_code": error,
        "error_message": message or text_of(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
