"""CreateTopics: on disk and known to every process before the answer. Served by the controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.config_metadata import describe_topic
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.config_entries import creation_summary
from broker.server.handlers.controlling import controller_of, request_id_of
from broker.server.request_context import RequestContext
from broker.topic_rules import NewTopic


def handle_create_topics(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return an outcome for each topic, with its settings when it was created or only checked."""
    times_asked = Counter(topic.name for topic in request.topics)
    wanted = [_new_topic(topic) for topic in request.topics if times_asked[topic.name] == 1]
    try:
        outcomes = controller_of(context).create_topics(
            wanted, validate_only=request.validate_only, request=request_id_of(context)
        )
    except ApiError as error:
        results = [_failed(name, error.code, error.message) for name in times_asked]
        return {"throttle_time_ms": 0, "topics": results}
    context.broker.announce_metadata()
    results = []
    config = context.broker.metadata.broker_config
    for outcome in outcomes:
        if outcome.error_code:
            results.append(_failed(outcome.name, outcome.error_code, outcome.message))
            continue
        results.append(
            {
                "name": outcome.name,
                "topic_id": outcome.topic_id,
                "error_code": 0,
                "error_message": None,
                "num_partitions": outcome.partitions,
                "replication_factor": 1,
                "configs": creation_summary(describe_topic(outcome.configs, config)),
            }
        )
    results += [
        _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, times in times_asked.items()
        if times > 1
    ]
    return {"throttle_time_ms": 0, "topics": results}


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
