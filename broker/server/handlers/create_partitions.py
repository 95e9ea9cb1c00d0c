"""CreatePartitions: give topics more partitions. Served by the controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.controlling import controller_of
from broker.server.request_context import RequestContext


def handle_create_partitions(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return an outcome for each topic asked for."""
    times_asked = Counter(topic.name for topic in request.topics)
    results = [
        _result(name, ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, times in times_asked.items()
        if times > 1
    ]
    for topic in request.topics:
        if times_asked[topic.name] > 1:
            continue
        try:
            _create(context, topic, request.validate_only)
            results.append(_result(topic.name, None))
        except ApiError as error:
            results.append(_result(topic.name, error))
    context.broker.announce_metadata()
    return {"throttle_time_ms": 0, "results": results}


def _create(context: RequestContext, wanted: Any, validate_only: bool) -> None:
    topic = context.broker.metadata.topic(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignments = None
    if wanted.assignments is not None:
        assignments = [assignment.broker_ids for assignment in wanted.assignments]
    controller_of(context).create_partitions(topic, wanted.count, assignments, validate_only=validate_only)


def _result(name: str, error: ApiError | None) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": 0 if error is None else error.code,
        "error_message": None if error is None else error.message or text_of(error.code),
    }
