"""OffsetCommit: a group remembers how far it has read. HOT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.coordinator.offset_commits import Committer, CommitTime, take_commit, validate_commit
from broker.coordinator.offsets import NO_EXPIRY
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.offset_commit import (
    NO_RETENTION,
    TOPIC_ID_FROM,
    OffsetCommitPart,
    OffsetCommitPartResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)
from broker.server.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from broker.coordinator.coordinator_log import Record

_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)


def handle_offset_commit(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Deferred:
    """Return an error for each partition, once what was taken is committed."""
    broker = context.broker
    version = context.api_version
    groups = broker.coordinators.groups
    group_id, generation, member_id, instance_id, retention_ms, topics = request
    try:
        shard = groups.shard_of(group_id)
    except ApiError as failure:
        return _refused(topics, failure.code)
    error = validate_commit(shard, Committer(group_id, member_id, instance_id, generation, version))
    if error:
        return _refused(topics, error)
    group = shard.groups[group_id]
    groups.protocols[group.kind].committed(shard, group, member_id)
    metadata = broker.metadata
    now_ms = broker.clock.wall_ms()
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else now_ms + retention_ms
    time = CommitTime(now_ms, expire_ms, metadata.broker_config.offset_metadata_max_bytes)
    by_id = version >= TOPIC_ID_FROM
    records: list[Record] = []
    answered = []
    for name, topic_id, parts in topics:
        topic = metadata.topic_by_id(topic_id) if by_id else metadata.topic(name)
        if topic is None:
            error = _UNKNOWN_TOPIC_ID if by_id else _UNKNOWN_TOPIC_OR_PARTITION
            answered.append(_refused_topic(name, topic_id, parts, error))
        else:
            known = (topic.name, topic.topic_id, len(topic.partitions))
            errors = take_commit(shard, group_id, known, parts, time, records)
            answered.append(OffsetCommitTopicResponse(name, topic_id, errors))
    response = OffsetCommitResponse(answered)
    if not records:
        return response
    deferred = Deferred()

    def done(error: int) -> None:
        deferred.complete(_refused(topics, error) if error else response)

    shard.append(records, done)
    return deferred


def _refused(topics: Sequence[OffsetCommitTopic], error: int) -> OffsetCommitResponse:
    """Return the same error for everything."""
    return OffsetCommitResponse([_refused_topic(*topic, error) for topic in topics])


def _refused_topic(
    name: str, topic_id: bytes, parts: Sequence[OffsetCommitPart], error: int
) -> OffsetCommitTopicResponse:
    refused = [OffsetCommitPartResponse(part.partition, error) for part in parts]
    return OffsetCommitTopicResponse(name, topic_id, refused)
