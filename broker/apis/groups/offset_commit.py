"""OffsetCommit: a group remembers how far it has read. HOT.

A commit of very many partitions is taken in portions, each like a commit of its own: judged, kept and written in one
slice. What its connection sends meanwhile is taken behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from broker.apis.context import BrokerContext
from broker.coordinator.offsets.commits import (
    Committer,
    CommitTime,
    drop_unused,
    is_too_large,
    take_commit,
    validate_commit,
)
from broker.coordinator.offsets.offsets import NO_EXPIRY
from broker.errors import ApiError
from broker.ipc.request import Request
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.offset_commit import (
    NO_RETENTION,
    TOPIC_ID_FROM,
    OffsetCommitPartResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
    refused,
    refused_topic,
)
from broker.scheduling.deferred import Deferred
from broker.scheduling.following import after
from broker.scheduling.slices import Work
from broker.security.acl.acls import ResourceType
from broker.security.acl.checks import refusal

if TYPE_CHECKING:
    from broker.coordinator.group_shard import GroupShard
    from broker.coordinator.records import Record
    from broker.security.session import Session

_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)

#: Partitions that are taken at once: a few milliseconds of work.
AT_ONCE = 500

#: The last time that a record can name.
_LAST_MS = 2**63 - 1


class _HasPartitions(Protocol):
    @property
    def partitions(self) -> Sequence[Any]: ...


_Topic = TypeVar("_Topic", bound=_HasPartitions)


class ValidatedCommit(NamedTuple):
    """What has become of a commit: the answer, and the records that must be written before it is given."""

    response: OffsetCommitResponse
    error: int = 0
    """The first error in the answer."""
    shard: GroupShard | None = None
    records: Sequence[Record] = ()
    row: int = -1
    """That of the first partition named, in the partition table; -1 if there is no such partition."""
    partitions: int = 0
    """How many are named."""


def handle_offset_commit(
    request: Request, broker: BrokerContext, body: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred | Work:
    """Return an error for each partition, once what was taken is committed."""
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body)
    return _taken(request, broker, body)


def is_refused(broker: BrokerContext, session: Session, version: int, request: OffsetCommitRequest) -> bool:
    """Return whether the client may not commit for the group, or not for one of the topics."""
    authorizer, metadata = broker.metadata.authorizer, broker.metadata
    if authorizer is None:
        return False
    if refusal(authorizer, session, _OFFSET_COMMIT, ResourceType.GROUP, request.group_id):
        return True
    for name, topic_id, _ in request.topics:
        topic = metadata.topic_by_id(topic_id) if version >= TOPIC_ID_FROM else None
        if refusal(authorizer, session, _OFFSET_COMMIT, ResourceType.TOPIC, name if topic is None else topic.name):
            return True
    return False


def _authorized(
    request: Request, broker: BrokerContext, body: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred | Work:
    """Commit what the client may commit, and refuse the rest."""
    error = broker.access.refusal(request, ResourceType.GROUP, body.group_id)
    if error:
        return refused(body.topics, error)
    taken, answers = [], []
    for each in body.topics:
        name: str | None = each.name
        if request.api_version >= TOPIC_ID_FROM:
            topic = broker.metadata.topic_by_id(each.topic_id)
            # What there is not is answered by who knows that.
            name = None if topic is None else topic.name
        error = 0 if name is None else broker.access.refusal(request, ResourceType.TOPIC, name)
        if error:
            answers.append(refused_topic(each.name, each.topic_id, each.partitions, error))
        else:
            taken.append(each)
    if not answers:
        return _taken(request, broker, body)
    if not taken:
        return OffsetCommitResponse(answers)
    response = _taken(request, broker, body._replace(topics=taken))
    return after(response, lambda response: OffsetCommitResponse([*response.topics, *answers]))  # type: ignore[no-any-return]


def _taken(
    request: Request, broker: BrokerContext, body: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred | Work:
    if is_long(body.topics) or request.in_slices:
        return _in_portions(request, broker, body)
    return _at_once(request, broker, body)


def _in_portions(request: Request, broker: BrokerContext, body: OffsetCommitRequest) -> Work:
    named = ((topic.name, len(topic.partitions)) for topic in body.topics)
    if (yield from is_too_large(body.group_id, named)):
        return refused(body.topics, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    answers: list[OffsetCommitResponse | Deferred] = []
    for topics in portions_of(body.topics, lambda topic, parts: topic._replace(partitions=parts)):
        answers.append(_at_once(request, broker, body._replace(topics=topics)))
        yield None
    merged: list[tuple[str, bytes, list[OffsetCommitPartResponse]]] = []
    for answer in answers:
        response = (yield answer) if isinstance(answer, Deferred) else answer
        for name, topic_id, parts in response.topics:
            if not merged or merged[-1][:2] != (name, topic_id):
                merged.append((name, topic_id, []))
            merged[-1][2].extend(parts)
        yield None
    return OffsetCommitResponse([OffsetCommitTopicResponse(*topic) for topic in merged])


def is_long(topics: Sequence[_HasPartitions]) -> bool:
    """Return whether a commit names more than is taken at once."""
    return len(topics) > AT_ONCE or sum(len(topic.partitions) for topic in topics) > AT_ONCE


def portions_of(topics: Sequence[_Topic], with_parts: Callable[[_Topic, Any], _Topic]) -> Iterator[list[_Topic]]:
    """Yield the topics in their order, split so that together they have no more than `AT_ONCE` partitions."""
    portion: list[_Topic] = []
    room = AT_ONCE
    for topic in topics:
        parts: Any = topic.partitions
        start = 0
        while start < len(parts):
            some = parts[start : start + room]
            portion.append(with_parts(topic, some))
            start, room = start + len(some), room - len(some)
            if not room:
                yield portion
                portion, room = [], AT_ONCE
    if portion:
        yield portion


def _at_once(request: Request, broker: BrokerContext, body: OffsetCommitRequest) -> OffsetCommitResponse | Deferred:
    judged = judge_commit(broker, request.api_version, body)
    if judged.shard is None or not judged.records:
        return judged.response
    deferred = Deferred()

    def done(error: int) -> None:
        deferred.complete(refused(body.topics, error) if error else judged.response)

    broker.coordinators.linger.connections.add(request.connection_id)
    judged.shard.append(judged.records, done, patient=True)
    return deferred


def judge_commit(broker: BrokerContext, version: int, request: OffsetCommitRequest) -> ValidatedCommit:
    """Take the offsets that may be taken. The records of the outcome are to be appended at once."""
    group_id, generation, member_id, instance_id, retention_ms, topics = request
    groups = broker.coordinators.groups
    try:
        shard = groups.shard_of(group_id)
    except ApiError as failure:
        return _refused(broker, version, topics, failure.code)
    error = validate_commit(shard, Committer(group_id, member_id, instance_id, generation, version))
    if error:
        return _refused(broker, version, topics, error)
    group = shard.groups[group_id]
    groups.protocols[group.kind].committed(shard, group, member_id)
    metadata = broker.metadata
    now_ms = broker.clock.wall_ms()
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, _LAST_MS)
    time = CommitTime(now_ms, expire_ms, metadata.broker_config.offset_metadata_max_bytes)
    by_id = version >= TOPIC_ID_FROM
    records: list[Record] = []
    answered = []
    row, first_error, partitions = -1, 0, 0
    for name, topic_id, parts in topics:
        topic = metadata.topic_by_id(topic_id) if by_id else metadata.topic(name)
        if not parts:
            continue
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered.append(refused_topic(name, topic_id, parts, error))
        else:
            known = (topic.name, topic.topic_id, len(topic.partitions))
            if not partitions and 0 <= parts[0][0] < known[2]:
                row = topic.partitions[parts[0][0]].row
            answers, error = take_commit(shard, group_id, known, parts, time, records)
            answered.append(OffsetCommitTopicResponse(name, topic_id, answers))
        first_error = first_error or error
        partitions += len(parts)
    if not records:
        drop_unused(shard, group_id)
    return ValidatedCommit(OffsetCommitResponse(answered), first_error, shard, records, row, partitions)


def _refused(broker: BrokerContext, version: int, topics: Sequence[OffsetCommitTopic], error: int) -> ValidatedCommit:
    """Return an error of the group for every partition that there is; what there is not is said to be unknown."""
    metadata, by_id = broker.metadata, version >= TOPIC_ID_FROM
    answered = []
    row, partitions = -1, 0
    for name, topic_id, parts in topics:
        topic = metadata.topic_by_id(topic_id) if by_id else metadata.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = [OffsetCommitPartResponse(part[0], error if 0 <= part[0] < count else unknown) for part in parts]
        if topic is not None and parts and not partitions and 0 <= parts[0][0] < count:
            row = topic.partitions[parts[0][0]].row
        partitions += len(parts)
        if parts:
            answered.append(OffsetCommitTopicResponse(name, topic_id, answers))
    first_error = answered[0].partitions[0].error_code if answered else 0
    return ValidatedCommit(OffsetCommitResponse(answered), first_error, row=row, partitions=partitions)
