"""Offset commits: validation of the member, records and responses. HOT.

Runs in the handler that coordinates the group. A commit changes memory and appends its records in one step; the
response is sent when they are committed. A commit in a transaction is pending until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.offsets.offset_records import numbered_offset_value, offset_key_prefix, offset_value
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, CommitTarget, CommitTargets, CommittedOffset
from rotunda.broker.coordinator.offsets.repeated_records import RepeatedRecords
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import INT32
from rotunda.broker.protocol.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record

#: The first versions of OffsetCommit and TxnOffsetCommit whose clients know this error.
_GROUP_ID_NOT_FOUND_FROM: Final = 9
_GROUP_ID_NOT_FOUND_FROM_TXN: Final = 6
_WRONG_EPOCH: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)

#: Most bytes of the records of one request without their texts, and the size of one record's value.
_MOST_BYTES: Final = 16 << 20
_MOST_VALUE_BYTES: Final = 64
_MOST_CACHED: Final = 8192
_TOPICS_AT_ONCE: Final = 1024

#: Longer names are not cached, so that clients cannot fill the memory with them.
_LONGEST_CACHED: Final = 512

_cached_prefix = lru_cache(_MOST_CACHED)(offset_key_prefix)
_pack_int32 = INT32.pack


def _key_prefix(group_id: str, topic: str) -> bytes:
    """Return the common start of the keys of a group's offsets for a topic. HOT."""
    if len(group_id) + len(topic) <= _LONGEST_CACHED:
        return _cached_prefix(group_id, topic)
    return offset_key_prefix(group_id, topic)


class Committer(NamedTuple):
    """The sender of a commit: ``generation`` is a member epoch in a consumer group, and -1 without a member."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    transactional: bool = False


class CommitTime(NamedTuple):
    """The time of a commit, its expiry if the client set one, and the longest metadata text."""

    now_ms: int
    expire_ms: int = NO_EXPIRY
    most_metadata: int = 4096
    """In UTF-16 units, as Kafka counts."""


#: The existing partitions of a commit, by topic id; called only if the member's epoch is an older one.
Partitions = Callable[[], Iterable[tuple[bytes, int]]]

#: (name, id, number of partitions)
Topic = tuple[str, bytes, int]


class RepeatedCommit:
    """An accepted commit, for repeated commits of the member to the same partitions."""

    __slots__ = ("records", "targets")

    def __init__(self, group_id: str, targets: Sequence[CommitTarget]) -> None:
        self.targets = CommitTargets(group_id, targets)
        self.records = RepeatedRecords(
            [
                (
                    _key_prefix(group_id, topic) + _pack_int32(partition),
                    numbered_offset_value(leader_epoch, metadata, topic_id),
                )
                for topic, partition, leader_epoch, metadata, topic_id in targets
            ]
        )


def validate_commit(shard: GroupShard, committer: Committer, partitions: Partitions) -> int:
    """Return the error of a commit. A commit without a member creates its group.

    A member may commit in an older epoch if all partitions were assigned to it by then (KIP-1251).
    """
    group_id, member_id, instance_id, generation, api_version, transactional = committer
    group = shard.groups.get(group_id)
    if group is None:
        if generation >= 0:
            least = _GROUP_ID_NOT_FOUND_FROM_TXN if transactional else _GROUP_ID_NOT_FOUND_FROM
            return ErrorCode.GROUP_ID_NOT_FOUND if api_version >= least else ErrorCode.ILLEGAL_GENERATION
        group = shard.groups[group_id] = ClassicGroup(group_id)
    error = group.validate_offset_commit(member_id, instance_id, generation, api_version, transactional=transactional)
    if error not in _WRONG_EPOCH or not isinstance(group, ConsumerGroup):
        return error
    return 0 if group.had_partitions(member_id, generation, partitions()) else error


def drop_unused(shard: GroupShard, group_id: str) -> None:
    """Delete a group created by a commit if no records were written for it."""
    group = shard.groups.get(group_id)
    made_by_a_commit = isinstance(group, ClassicGroup) and group.is_empty and group.state_ms < 0
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
) -> tuple[list[dict[str, int]], int]:
    """Apply the offsets of one topic and add their records; return the result of each and the first error.

    ``parts`` are those of an OffsetCommit or of a TxnOffsetCommit.
    """
    name, topic_id, partitions = topic
    prefix = _key_prefix(group_id, name)
    now_ms, expire_ms, most_metadata = time
    offsets = shard.offsets
    if (len(prefix) + _MOST_VALUE_BYTES) * (len(records) + len(parts)) > _MOST_BYTES:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return _all_rejected(parts, code), code
    texts = {
        part.partition_index: len(part.committed_metadata or "")
        for part in parts
        if 0 <= part.partition_index < partitions
    }
    growth_bytes = offsets.growth_bytes(group_id, name, texts)
    if growth_bytes and not shard.admit(group_id, growth_bytes):
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return _all_rejected(parts, code), code
    responses = []
    first_error = 0
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
        first_error = first_error or error
        responses.append({"partition_index": partition, "error_code": error})
    return responses, first_error


def _all_rejected(parts: Sequence[Any], error: int) -> list[dict[str, int]]:
    return [{"partition_index": part.partition_index, "error_code": error} for part in parts]


def _java_length(text: str) -> int:
    """Return the number of UTF-16 units in a text: the length that Kafka compares with its limits."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
