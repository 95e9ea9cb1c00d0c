"""DeleteTopics: by name, from version 6 also by id; done before the response. Served by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

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
from rotunda.broker.metadata.metadata_cache import TopicInfo
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.quotas.controller_mutations import ControllerMutationQuota
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType

_NO_ID, _FORBIDDEN = bytes(16), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_FIRST_WITH_DISABLED = 3

#: From this version on topics are rejected while the quota of controller mutations is used up (KIP-599).
QUOTA_IS_STRICT_FROM = 5


class _Asked(NamedTuple):
    """One topic to delete: a name, or an id that is not all zero."""

    name: str | None
    topic_id: bytes


def handle_delete_topics(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each requested topic, deleted in portions; each portion is one change."""
    times_asked: Counter[_Asked] = Counter()
    yield from each_of(_asked(body), lambda each: times_asked.update((each,)))
    asked = list(times_asked)
    if not broker.metadata.broker_config.delete_topic_enable:
        return {"responses": Lazily(asked, lambda each: _result(each, _disabled(request, each)))}
    controller, request_id = controller_of(broker), request_id_of(request)
    quota = mutation_quota_of(request, broker, QUOTA_IS_STRICT_FROM)
    outcomes: list[TopicOutcome] = []
    #: Ids of the topics that this request deletes.
    found: set[bytes] = set()
    for start in range(0, len(asked), TOPICS_AT_ONCE):
        part, some = part_of(request_id, start), asked[start : start + TOPICS_AT_ONCE]
        made = controller.outcomes_of(part)
        if made is None:
            made = _delete(request, broker, [(each, times_asked[each]) for each in some], found, part, quota)
        found.update(outcome.topic_id for outcome in made if not outcome.error_code)
        outcomes += made
        yield None
    results = list(zip(asked, outcomes, strict=True))
    responses = Lazily(results, lambda result: _result(*result))
    return Changed(quota.charged, throttle_time_ms=quota.throttle_ms(), responses=responses)


def _disabled(request: Request, asked: _Asked) -> TopicOutcome:
    """Return the error of disabled deletion: older clients get another."""
    newer = request.api_version >= _FIRST_WITH_DISABLED
    error = ErrorCode.TOPIC_DELETION_DISABLED if newer else ErrorCode.INVALID_REQUEST
    message = None if newer else "Topic deletion is disabled (delete.topic.enable)."
    return TopicOutcome(asked.name or "", error, message, asked.topic_id)


def _delete(
    request: Request,
    broker: BrokerContext,
    asked: Sequence[tuple[_Asked, int]],
    found: set[bytes],
    request_id: str,
    quota: ControllerMutationQuota,
) -> list[TopicOutcome]:
    topics: list[TopicInfo] = []
    outcomes = []
    for each, times in asked:
        try:
            topic = _find(request, broker, each, times, found)
            quota.charge(len(topic.partitions))
        except ApiError as error:
            name = each.name or (error.message if error.code == _FORBIDDEN else None) or ""
            message = None if error.code == _FORBIDDEN else error.message
            outcomes.append(TopicOutcome(name, error.code, message, each.topic_id))
            continue
        found.add(topic.topic_id)
        topics.append(topic)
        outcomes.append(TopicOutcome(topic.name, topic_id=topic.topic_id))
    if topics:
        try:
            controller_of(broker).delete_topics(topics, request_id, outcomes)
        except ApiError as error:
            outcomes = [
                outcome if outcome.error_code else outcome._replace(error_code=error.code, message=error.message)
                for outcome in outcomes
            ]
        announce(broker)
    return outcomes


def _asked(request: Any) -> Iterator[_Asked]:
    """Yield the topics of a request: in each version one of the arrays is empty."""
    yield from (_Asked(name, _NO_ID) for name in request.topic_names)
    yield from (_Asked(topic.name, topic.topic_id) for topic in request.topics)


def _find(request: Request, broker: BrokerContext, asked: _Asked, times: int, found: Collection[bytes]) -> TopicInfo:
    metadata, (name, topic_id) = broker.metadata, asked
    by_id = topic_id != _NO_ID
    if name is None and not by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id." if by_id else "Duplicate topic name.")
    topic = metadata.topic_by_id(topic_id) if name is None else metadata.topic(name)
    _check_allowed(request, broker, asked, topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.topic_id in found:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
    return topic


def _check_allowed(request: Request, broker: BrokerContext, asked: _Asked, topic: TopicInfo | None) -> None:
    """Raise ApiError if the client may not delete a topic, or may not know whether it exists.

    For a topic requested by its id, the message is its name if the client may know it.
    """
    authorizer, session = broker.metadata.authorizer, request.session
    name = asked.name if topic is None else topic.name
    if authorizer is None or name is None:
        return
    if authorizer.allows(session, Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False):
        return
    if broker.access.rejection(request, ResourceType.TOPIC, name, Operation.DESCRIBE):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is not None and broker.access.rejection(request, ResourceType.TOPIC, name, Operation.DELETE):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


def _result(asked: _Asked, outcome: TopicOutcome) -> dict[str, Any]:
    error = outcome.error_code
    return {
        # A topic requested by its id has a name if it existed.
        "name": outcome.name or asked.name,
        "topic_id": outcome.topic_id,
        "error_code": error,
        "error_message": outcome.message or text_of(error) if error else None,
    }
