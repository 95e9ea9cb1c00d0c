"""OffsetCommit: stores a group's committed offsets. HOT.

Runs in the group's coordinator. A commit of very many partitions is handled in portions, each like a commit of its own:
validated, stored and written in one slice. Later requests of its connection wait until it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.group import TOPIC_ID_FROM, Committer
from rotunda.broker.coordinator.offsets.commits import commit_offsets, is_too_large, rejected_topic
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.following import after
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection

if TYPE_CHECKING:
    from rotunda.broker.security.acl.authorizer import Authorizer
    from rotunda.broker.security.session import Session

_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)

#: Partitions handled at once: a few milliseconds.
AT_ONCE = 500


def handle_offset_commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return an error for each partition, once the valid offsets are committed."""
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body)
    return _commit(request, broker, body)


def is_rejected(broker: BrokerContext, authorizer: Authorizer, session: Session, version: int, request: Any) -> bool:
    """Return whether the client is not authorized for the group, or for one of the topics."""
    metadata = broker.metadata
    if rejection(authorizer, session, _OFFSET_COMMIT, ResourceType.GROUP, request.group_id):
        return True
    for each in request.topics:
        topic = metadata.topic_by_id(each.topic_id) if version >= TOPIC_ID_FROM else None
        name = each.name if topic is None else topic.name
        if rejection(authorizer, session, _OFFSET_COMMIT, ResourceType.TOPIC, name):
            return True
    return False


def _authorized(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Commit the offsets that the client is authorized for, and reject the others."""
    error = broker.access.rejection(request, ResourceType.GROUP, body.group_id)
    if error:
        return rejected(body.topics, error)
    accepted, rejections = [], []
    for each in body.topics:
        name: str | None = each.name
        if request.api_version >= TOPIC_ID_FROM:
            topic = broker.metadata.topic_by_id(each.topic_id)
            # Unknown topics are rejected in `commit_offsets`.
            name = None if topic is None else topic.name
        error = 0 if name is None else broker.access.rejection(request, ResourceType.TOPIC, name)
        if error:
            rejections.append(rejected_topic(each, error))
        else:
            accepted.append(each)
    if not rejections:
        return _commit(request, broker, body)
    if not accepted:
        return {"topics": rejections}
    response = _commit(request, broker, body.replaced(topics=accepted))
    return after(response, lambda response: {"topics": [*response["topics"], *rejections]})  # type: ignore[no-any-return]


def _commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    if is_long(body.topics) or request.in_slices:
        return _in_portions(request, broker, body)
    return _at_once(request, broker, body)


def _in_portions(request: Request, broker: BrokerContext, body: Any) -> Work:
    named = ((topic.name, len(topic.partitions)) for topic in body.topics)
    if (yield from is_too_large(body.group_id, named)):
        return rejected(body.topics, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    outcomes: list[dict[str, Any] | Deferred] = []
    for topics in portions_of(body.topics):
        outcomes.append(_at_once(request, broker, body.replaced(topics=topics)))
        yield None
    merged: list[dict[str, Any]] = []
    for outcome in outcomes:
        response = (yield outcome) if isinstance(outcome, Deferred) else outcome
        merge_topics(merged, response["topics"])
        yield None
    return {"topics": merged}


def merge_topics(merged: list[dict[str, Any]], topics: Sequence[dict[str, Any]]) -> None:
    """Add the topics of the next portion; its first topic may continue the last one."""
    for topic in topics:
        last = merged[-1] if merged else {}
        if all(last.get(name) == topic.get(name) for name in ("name", "topic_id")):
            last["partitions"] += topic["partitions"]
        else:
            merged.append(topic)


def is_long(topics: Sequence[Any]) -> bool:
    """Return whether a commit has more partitions than are handled at once."""
    return len(topics) > AT_ONCE or sum(len(topic.partitions) for topic in topics) > AT_ONCE


def portions_of(topics: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the topics in their order, split so that together they have no more than `AT_ONCE` partitions."""
    portion: list[Any] = []
    room = AT_ONCE
    for topic in topics:
        parts: Any = topic.partitions
        start = 0
        while start < len(parts):
            some = parts[start : start + room]
            portion.append(topic.replaced(partitions=some))
            start, room = start + len(some), room - len(some)
            if not room:
                yield portion
                portion, room = [], AT_ONCE
    if portion:
        yield portion


def _at_once(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    committer = committer_of(body, request.api_version)
    validated = commit_offsets(broker.coordinators.groups, committer, body.topics, body.retention_time_ms)
    if validated.shard is None or not validated.records:
        return validated.response
    deferred = Deferred()

    def done(error: int) -> None:
        deferred.complete(rejected(body.topics, error) if error else validated.response)

    broker.coordinators.linger.connections.add(request.connection_id)
    validated.shard.append(validated.records, done, patient=True)
    return deferred


def committer_of(request: Any, version: int, *, transactional: bool = False) -> Committer:
    """Return the committer in a request."""
    generation, instance_id = request.generation_id_or_member_epoch, request.group_instance_id
    return Committer(request.group_id, request.member_id, instance_id, generation, version, transactional)


def rejected(topics: Sequence[Any], error: int) -> dict[str, Any]:
    """Return a response with the same error for every partition."""
    return {"topics": [rejected_topic(topic, error) for topic in topics]}
