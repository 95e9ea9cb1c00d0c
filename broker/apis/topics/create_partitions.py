"""CreatePartitions: adds partitions to topics. Served by the controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rotunda.broker.apis.cluster.controller_access import (
    TOPICS_AT_ONCE,
    announce,
    controller_of,
    mutation_quota_of,
    part_of,
    request_id_of,
)
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import Changed
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

#: From this version on topics are rejected while the quota of controller mutations is used up (KIP-599).
QUOTA_IS_STRICT_FROM = 3


def handle_create_partitions(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each requested topic, changed in portions; each portion is one change."""
    times_asked = Counter(topic.name for topic in body.topics)
    results = [
        _result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, times in times_asked.items()
        if times > 1
    ]
    wanted: list[AddedPartitions] = []

    def sort(topic: Any) -> None:
        if rejection := broker.access.rejection(request, ResourceType.TOPIC, topic.name):
            results.append(_result(topic.name, rejection, None))
        else:
            wanted.append(_added(topic))

    yield from each_of((topic for topic in body.topics if times_asked[topic.name] == 1), sort)
    request_id, quota = request_id_of(request), mutation_quota_of(request, broker, QUOTA_IS_STRICT_FROM)
    for start in range(0, len(wanted), TOPICS_AT_ONCE):
        some = wanted[start : start + TOPICS_AT_ONCE]
        try:
            outcomes = controller_of(broker).create_partitions(
                some, validate_only=body.validate_only, request=part_of(request_id, start), charge=quota.charge
            )
            results += [_result(outcome.name, outcome.error_code, outcome.message) for outcome in outcomes]
        except ApiError as error:
            results += [_result(each.name, error.code, error.message) for each in some]
        announce(broker)
        yield None
    return Changed(quota.charged, throttle_time_ms=quota.throttle_ms(), results=results)


def _added(topic: Any) -> AddedPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    return AddedPartitions(topic.name, topic.count, assignments)


def _result(name: str, error: int, message: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": error,
        "error_message": message or text_of(error) if error else None,
    }
