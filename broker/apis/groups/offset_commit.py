"""OffsetCommit: stores a group's committed offsets. HOT.

Runs in the group's coordinator. A commit of very many partitions is handled in portions, each like a commit of its own:
validated, stored and written in one slice. Later requests of its connection wait until it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.offsets.commits import (
    Committer,
    CommitTime,
    apply_commit,
    drop_unused,
    is_too_large,
    validate_commit,
)
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.following import after
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.metadata.metadata_cache import TopicInfo
    from rotunda.broker.security.acl.authorizer import Authorizer
    from rotunda.broker.security.session import Session

_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)

#: From this version on topics have ids instead of names.
TOPIC_ID_FROM = 10
NO_RETENTION = -1

#: Partitions handled at once: a few milliseconds.
AT_ONCE = 500

#: The latest time that a record can contain.
_LAST_MS = 2**63 - 1


class ValidatedCommit(NamedTuple):
    """The outcome of a commit: the response, and the records that must be written before it is sent."""

    response: dict[str, Any]
    error: int = 0
    """The first error in the response."""
    shard: GroupShard | None = None
    records: Sequence[Record] = ()
    row: int = -1
    """Partition table row of the first partition; -1 if unknown."""
    partitions: int = 0
    """The number of partitions."""


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
            # Unknown topics are rejected in `validated_commit`.
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
    validated = validated_commit(broker, request.api_version, body)
    if validated.shard is None or not validated.records:
        return validated.response
    deferred = Deferred()

    def done(error: int) -> None:
        deferred.complete(rejected(body.topics, error) if error else validated.response)

    broker.coordinators.linger.connections.add(request.connection_id)
    validated.shard.append(validated.records, done, patient=True)
    return deferred


def validated_commit(broker: BrokerContext, version: int, request: Any) -> ValidatedCommit:
    """Validate a commit and store its valid offsets. The caller must append the outcome's records at once."""
    group_id, topics = request.group_id, request.topics
    groups = broker.coordinators.groups
    by_id = version >= TOPIC_ID_FROM
    try:
        shard = groups.shard_of(group_id)
    except ApiError as failure:
        return rejected_commit(broker, topics, failure.code, by_id=by_id)
    error = validate_commit(
        shard, committer_of(request, version), lambda: existing_partitions(broker, topics, by_id=by_id)
    )
    if error:
        return rejected_commit(broker, topics, error, by_id=by_id)
    group = shard.groups[group_id]
    groups.protocols[group.kind].committed(shard, group, request.member_id)
    metadata = broker.metadata
    now_ms = broker.clock.wall_ms()
    retention_ms = request.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, _LAST_MS)
    time = CommitTime(now_ms, expire_ms, metadata.broker_config.offset_metadata_max_bytes)
    records: list[Record] = []
    topic_responses = []
    row, first_error, partitions = -1, 0, 0
    for asked in topics:
        parts = asked.partitions
        topic = find_topic(broker, asked, by_id=by_id)
        if not parts:
            continue
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic_responses.append(rejected_topic(asked, error))
        else:
            known = (topic.name, topic.topic_id, len(topic.partitions))
            if not partitions and 0 <= parts[0].partition_index < known[2]:
                row = topic.partitions[parts[0].partition_index].row
            partition_responses, error = apply_commit(shard, group_id, known, parts, time, records)
            topic_responses.append({"name": asked.name, "topic_id": asked.topic_id, "partitions": partition_responses})
        first_error = first_error or error
        partitions += len(parts)
    if not records:
        drop_unused(shard, group_id)
    return ValidatedCommit({"topics": topic_responses}, first_error, shard, records, row, partitions)


def find_topic(broker: BrokerContext, asked: Any, *, by_id: bool) -> TopicInfo | None:
    """Return the topic that a commit names, by its id or its name; None if it does not exist."""
    return broker.metadata.topic_by_id(asked.topic_id) if by_id else broker.metadata.topic(asked.name)


def existing_partitions(broker: BrokerContext, topics: Sequence[Any], *, by_id: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the existing partitions of a commit."""
    for asked in topics:
        topic = find_topic(broker, asked, by_id=by_id)
        if topic is not None:
            for part in asked.partitions:
                if 0 <= part.partition_index < len(topic.partitions):
                    yield topic.topic_id, part.partition_index


def committer_of(request: Any, version: int) -> Committer:
    """Return the committer in a request."""
    generation = request.generation_id_or_member_epoch
    return Committer(request.group_id, request.member_id, request.group_instance_id, generation, version)


def rejected(topics: Sequence[Any], error: int) -> dict[str, Any]:
    """Return a response with the same error for every partition."""
    return {"topics": [rejected_topic(topic, error) for topic in topics]}


def rejected_topic(topic: Any, error: int) -> dict[str, Any]:
    """Return the same error for every partition of a topic."""
    partition_responses = [{"partition_index": part.partition_index, "error_code": error} for part in topic.partitions]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partition_responses}


def rejected_commit(broker: BrokerContext, topics: Sequence[Any], error: int, *, by_id: bool) -> ValidatedCommit:
    """Return the group's error for every existing partition, and an unknown-topic error for the others."""
    topic_responses = []
    row, partitions, first_error = -1, 0, 0
    for asked in topics:
        topic = find_topic(broker, asked, by_id=by_id)
        count = 0 if topic is None else len(topic.partitions)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition_responses: list[dict[str, int]] = []
        for part in asked.partitions:
            index = part.partition_index
            is_there = 0 <= index < count
            if topic is not None and is_there and not partitions and not partition_responses:
                row = topic.partitions[index].row
            partition_responses.append({"partition_index": index, "error_code": error if is_there else unknown})
        first_error = first_error or (partition_responses[0]["error_code"] if partition_responses else 0)
        partitions += len(partition_responses)
        if partition_responses:
            topic_responses.append({"name": asked.name, "topic_id": asked.topic_id, "partitions": partition_responses})
    return ValidatedCommit({"topics": topic_responses}, first_error, row=row, partitions=partitions)
