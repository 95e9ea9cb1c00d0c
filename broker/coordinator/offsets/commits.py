"""Offset commits: validation of the member, records and responses. HOT.

Runs in the handler that coordinates the group. A commit changes memory and appends its records in one step; the
response is sent when they are committed. A commit in a transaction is pending until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.offsets.offset_records import numbered_offset_value, offset_key_prefix, offset_value
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, CommitPartition, CommitPartitions, CommittedOffset
from rotunda.broker.coordinator.offsets.repeated_records import RepeatedRecords
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import INT32
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Committer
    from rotunda.broker.coordinator.group_coordinator import GroupCoordinator
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.metadata.metadata_cache import MetadataCache, TopicInfo

#: The retention time of a commit whose offsets are kept for offsets.retention.minutes.
NO_RETENTION: Final = -1
#: The latest time that a record can contain.
_LAST_MS: Final = 2**63 - 1
_WRONG_EPOCH: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)

#: Most bytes of the records of one request without their texts, and the size of one record's value.
_MOST_BYTES: Final = 16 << 20
_MOST_VALUE_BYTES: Final = 64
_MOST_CACHED: Final = 8192
_TOPICS_AT_ONCE: Final = 1024

#: Longer names are not cached, so that clients cannot fill the memory with them.
_LONGEST_CACHED: Final = 512

_partitions = attrgetter("partitions")
_cached_prefix = lru_cache(_MOST_CACHED)(offset_key_prefix)
_pack_int32 = INT32.pack


def _key_prefix(group_id: str, topic: str) -> bytes:
    """Return the common start of the keys of a group's offsets for a topic. HOT."""
    if len(group_id) + len(topic) <= _LONGEST_CACHED:
        return _cached_prefix(group_id, topic)
    return offset_key_prefix(group_id, topic)


class CommitTime(NamedTuple):
    """The time of a commit, its expiry if the client set one, and the longest metadata text."""

    now_ms: int
    expire_ms: int = NO_EXPIRY
    most_metadata: int = 4096
    """In UTF-16 units, as Kafka counts."""


#: (name, id, number of partitions)
Topic = tuple[str, bytes, int]


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


class RepeatedCommit:
    """An accepted commit, for repeated commits of the member to the same partitions."""

    __slots__ = ("partitions", "records")

    def __init__(self, group_id: str, partitions: Sequence[CommitPartition]) -> None:
        self.partitions = CommitPartitions(group_id, partitions)
        self.records = RepeatedRecords(
            [
                (
                    _key_prefix(group_id, topic) + _pack_int32(partition),
                    numbered_offset_value(leader_epoch, metadata, topic_id),
                )
                for topic, partition, leader_epoch, metadata, topic_id in partitions
            ]
        )


def commit_offsets(
    groups: GroupCoordinator,
    committer: Committer,
    topics: Sequence[Any],
    retention_ms: int = NO_RETENTION,
    producer_id: int = -1,
) -> ValidatedCommit:
    """Validate a commit and store its valid offsets. The caller must append the outcome's records at once.

    A commit without a member creates its group. A member may commit in an older epoch if all partitions were assigned
    to it by then (KIP-1251). ``producer_id``: the offsets count when its transaction is committed.
    """
    group_id, member_id, instance_id, generation, api_version, transactional = committer
    metadata = groups.metadata
    reject = partial(rejected_commit, metadata, committer, topics)
    try:
        shard = groups.shard_of(group_id)
    except ApiError as failure:
        return reject(failure.code)
    group = shard.groups.get(group_id)
    if group is None:
        if generation >= 0:
            return reject(committer.absent_group)
        group = shard.groups[group_id] = ClassicGroup(group_id)
    error = group.validate_offset_commit(member_id, instance_id, generation, api_version, transactional=transactional)
    if error in _WRONG_EPOCH and isinstance(group, ConsumerGroup):
        named = existing_partitions(metadata, committer, topics)
        error = 0 if group.had_partitions(member_id, generation, named) else error
    if error:
        return reject(committer.known(error))
    if not transactional:
        groups.protocols[group.kind].committed(shard, group, member_id)
    now_ms = groups.clock.wall_ms()
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, _LAST_MS)
    time = CommitTime(now_ms, expire_ms, metadata.broker_config.offset_metadata_max_bytes)
    records: list[Record] = []
    responses = []
    for named in filter(_partitions, topics):
        topic = find_topic(metadata, committer, named)
        if topic is None:
            responses.append(rejected_topic(named, committer.absent_topic))
        else:
            place = (topic.name, topic.topic_id, len(topic.partitions))
            of_parts = apply_commit(shard, group_id, place, named.partitions, time, records, producer_id)
            responses.append({"name": named.name, "topic_id": named.topic_id, "partitions": of_parts})
    _drop_unused(shard, group_id, records)
    return _outcome(metadata, committer, topics, responses, shard, records)


def _outcome(
    metadata: MetadataCache,
    committer: Committer,
    topics: Sequence[Any],
    responses: Sequence[dict[str, Any]],
    shard: GroupShard | None = None,
    records: Sequence[Record] = (),
) -> ValidatedCommit:
    """Return an outcome with its facts for the request log."""
    row = -1
    for named in islice(filter(_partitions, topics), 1):
        topic, index = find_topic(metadata, committer, named), named.partitions[0].partition_index
        if topic is not None and 0 <= index < len(topic.partitions):
            row = topic.partitions[index].row
    error = next((code for each in responses for part in each["partitions"] if (code := part["error_code"])), 0)
    partitions = sum([len(each.partitions) for each in topics])
    return ValidatedCommit({"topics": responses}, error, shard, records, row, partitions)


def find_topic(metadata: MetadataCache, committer: Committer, named: Any) -> TopicInfo | None:
    """Return the topic that a commit names, by its id or its name; None if it does not exist."""
    return metadata.topic_by_id(named.topic_id) if committer.names_ids else metadata.topic(named.name)


def existing_partitions(
    metadata: MetadataCache, committer: Committer, topics: Iterable[Any]
) -> Iterator[tuple[bytes, int]]:
    """Yield the existing partitions of a commit."""
    for named in topics:
        topic = find_topic(metadata, committer, named)
        if topic is not None:
            for part in named.partitions:
                if 0 <= part.partition_index < len(topic.partitions):
                    yield topic.topic_id, part.partition_index


def rejected_topic(named: Any, error: int) -> dict[str, Any]:
    """Return the same error for every partition of a topic."""
    return {"name": named.name, "topic_id": named.topic_id, "partitions": _all_rejected(named.partitions, error)}


def rejected_commit(
    metadata: MetadataCache, committer: Committer, topics: Sequence[Any], error: int
) -> ValidatedCommit:
    """Return the group's error for every existing partition, and an unknown-topic error for the others."""
    responses = []
    for named in filter(_partitions, topics):
        topic = find_topic(metadata, committer, named)
        count = 0 if topic is None else len(topic.partitions)
        unknown = committer.absent_topic if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        indexes = [part.partition_index for part in named.partitions]
        of_parts = [
            {"partition_index": index, "error_code": error if 0 <= index < count else unknown} for index in indexes
        ]
        responses.append({"name": named.name, "topic_id": named.topic_id, "partitions": of_parts})
    return _outcome(metadata, committer, topics, responses)


def _drop_unused(shard: GroupShard, group_id: str, records: Sequence[Record]) -> None:
    """Delete a group created by a commit if no records were written for it."""
    group = shard.groups.get(group_id)
    made_by_a_commit = not records and isinstance(group, ClassicGroup) and group.is_empty and group.state_ms < 0
    if made_by_a_commit and not shard.offsets.has_any(group_id):
        del shard.groups[group_id]


def is_too_large(group_id: str, topics: Iterable[tuple[str, int]]) -> Steps[bool]:
    """Return whether the records of a commit would be too large."""
    group_bytes = len(group_id) + _MOST_VALUE_BYTES
    record_bytes = 0
    for number, (name, count) in enumerate(topics, 1):
        record_bytes += (group_bytes + len(name)) * count
        if not number % _TOPICS_AT_ONCE:
            yield
    return record_bytes > _MOST_BYTES


def apply_commit(
    shard: GroupShard,
    group_id: str,
    topic: Topic,
    parts: Sequence[Any],
    time: CommitTime,
    records: list[Record],
    producer_id: int = -1,
) -> list[dict[str, int]]:
    """Apply the offsets of one topic and add their records; return the result of each.

    ``parts`` are those of an OffsetCommit or of a TxnOffsetCommit.
    """
    name, topic_id, partitions = topic
    prefix = _key_prefix(group_id, name)
    now_ms, expire_ms, most_metadata = time
    offsets = shard.offsets
    if (len(prefix) + _MOST_VALUE_BYTES) * (len(records) + len(parts)) > _MOST_BYTES:
        return _all_rejected(parts, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    texts = {
        part.partition_index: len(part.committed_metadata or "")
        for part in parts
        if 0 <= part.partition_index < partitions
    }
    growth_bytes = offsets.growth_bytes(group_id, name, texts)
    if growth_bytes and not shard.admit(group_id, growth_bytes):
        return _all_rejected(parts, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    responses = []
    for part in parts:
        partition, text, error = part.partition_index, part.committed_metadata or "", 0
        if not 0 <= partition < partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif _java_length(text) > most_metadata:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            committed = CommittedOffset(
                part.committed_offset, part.committed_leader_epoch, text, now_ms, expire_ms, topic_id
            )
            if producer_id < 0:
                offsets.put(group_id, name, partition, committed)
            else:
                offsets.put_pending(producer_id, group_id, name, partition, committed)
            records.append((prefix + _pack_int32(partition), offset_value(committed)))
        responses.append({"partition_index": partition, "error_code": error})
    return responses


def _all_rejected(parts: Sequence[Any], error: int) -> list[dict[str, int]]:
    return [{"partition_index": part.partition_index, "error_code": error} for part in parts]


def _java_length(text: str) -> int:
    """Return the number of UTF-16 units in a text: the length that Kafka compares with its limits."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
