"""DeleteTopics: by name, from version 6 also by id. Served by the controller; in force before the answer."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from broker.errors import ApiError
from broker.kept_outcomes import TopicOutcome
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.controlling import controller_of, request_id_of
from broker.server.metadata_cache import MetadataCache, TopicInfo
from broker.server.request_context import RequestContext

_NO_ID = bytes(16)


class _Asked(NamedTuple):
    """One topic to delete: a name, or an id that is not all zero."""

    name: str | None
    topic_id: bytes


def handle_delete_topics(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return an outcome for each topic asked for."""
    times_asked = Counter(_asked(request))
    outcomes = controller_of(context).outcomes_of(request_id_of(context))
    if outcomes is None:
        outcomes = _delete(context, times_asked)
    responses = [_result(each, outcome) for each, outcome in zip(times_asked, outcomes, strict=True)]
    return {"throttle_time_ms": 0, "responses": responses}


def _delete(context: RequestContext, times_asked: Mapping[_Asked, int]) -> list[TopicOutcome]:
    found: list[TopicInfo] = []
    outcomes = []
    for each, times in times_asked.items():
        try:
            topic = _find(context.broker.metadata, each, times, found)
        except ApiError as error:
            outcomes.append(TopicOutcome(each.name or "", error.code, error.message, each.topic_id))
            continue
        found.append(topic)
        outcomes.append(TopicOutcome(topic.name, topic_id=topic.topic_id))
    if found:
        try:
            controller_of(context).delete_topics(found, request_id_of(context), outcomes)
        except ApiError as error:
            outcomes = [
                outcome if outcome.error_code else outcome._replace(error_code=error.code, message=error.message)
                for outcome in outcomes
            ]
        context.broker.announce_metadata()
    return outcomes


def _asked(request: Any) -> Sequence[_Asked]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [_Asked(name, _NO_ID) for name in names]
    return [_Asked(topic.name, _id_bytes(topic.topic_id)) for topic in request.topics]


def _id_bytes(topic_id: uuid.UUID | None) -> bytes:
    return _NO_ID if topic_id is None else topic_id.bytes


def _find(metadata: MetadataCache, asked: _Asked, times: int, found: Collection[TopicInfo]) -> TopicInfo:
    name, topic_id = asked
    by_id = topic_id != _NO_ID
    if name is None and not by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id." if by_id else "Duplicate topic name.")
    topic = metadata.topic_by_id(topic_id) if name is None else metadata.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in found:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
    return topic


def _result(asked: _Asked, outcome: TopicOutcome) -> dict[str, Any]:
    error = outcome.error_code
    return {
        # A topic that was asked for by its id has a name if there was such a topic.
        "name": outcome.name or asked.name,
        "topic_id": outcome.topic_id,
        "error_code": error,
        "error_message": outcome.message or text_of(error) if error else None,
    }
