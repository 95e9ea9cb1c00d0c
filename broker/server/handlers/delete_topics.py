"""DeleteTopics: by name, from version 6 also by id. Served by the controller; in force before the answer."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.controlling import controller_of
from broker.server.metadata_cache import MetadataCache, TopicInfo
from broker.server.request_context import RequestContext

_NO_ID = bytes(16)


class _Asked(NamedTuple):
    """One topic to delete: a name, or an id that is not all zero."""

    name: str | None
    topic_id: bytes


def handle_delete_topics(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return an outcome for each topic asked for."""
    asked = _asked(request)
    times_asked = Counter(asked)
    metadata = context.broker.metadata
    found: dict[_Asked, TopicInfo] = {}
    failures: dict[_Asked, ApiError] = {}
    for each in times_asked:
        try:
            found[each] = _find(metadata, each, times_asked[each], found.values())
        except ApiError as error:
            failures[each] = error
    if found:
        try:
            controller_of(context).delete_topics(list(found.values()))
        except ApiError as error:
            failures.update(dict.fromkeys(found, error))
        context.broker.announce_metadata()
    responses = [_result(each, found.get(each), failures.get(each)) for each in times_asked]
    return {"throttle_time_ms": 0, "responses": responses}


def _asked(request: Any) -> Sequence[_Asked]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [_Asked(name, _NO_ID) for name in names]
    return [_Asked(topic.name, _id_bytes(topic.topic_id)) for topic in request.topics]


def _id_bytes(topic_id: uuid.UUID | None) -> bytes:
    return _NO_ID if topic_id is None else topic_id.bytes


def _find(metadata: MetadataCache, asked: _Asked, times: int, found: Any) -> TopicInfo:
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


def _result(asked: _Asked, topic: TopicInfo | None, failure: ApiError | None) -> dict[str, Any]:
    return {
        "name": asked.name if topic is None else topic.name,
        "topic_id": asked.topic_id if topic is None else topic.topic_id,
        "error_code": 0 if failure is None else failure.code,
        "error_message": None if failure is None else failure.message or text_of(failure.code),
    }
