"""The records of committed offsets in `__consumer_offsets`.

Pure. Values are written in Kafka's versions: 4, with the topic id; 3 if it is unknown; and 1 if an old client sets an
expiry. Encoding is HOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, CommittedOffset
from rotunda.broker.coordinator.offsets.repeated_records import NumberedValue
from rotunda.broker.coordinator.records import Apply, RecordType
from rotunda.broker.protocol.primitives import INT16, INT32, INT64, ZERO_TOPIC_ID

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard

OFFSET_COMMIT: Final = RecordType("OffsetCommit")
_LEGACY_OFFSET_COMMIT: Final = RecordType("LegacyOffsetCommit", "OffsetCommit")

_VERSION_WITH_EXPIRY: Final = 1
_VERSION_WITHOUT_TOPIC_ID: Final = 3
_VERSION: Final = 4
_TOPIC_ID_TAG_BYTES: Final = 19
_MOST_CACHED: Final = 4096
_LONGEST_CACHED: Final = 64


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return OFFSET_COMMIT.key(group=group_id, topic=topic, partition=partition)


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Return the keys of a group's offsets for a topic without their last 4 bytes, which are the partition."""
    return offset_key(group_id, topic, 0)[: -INT32.size]


def offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of a committed offset. HOT: usually only its numbers differ from an earlier one."""
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
    if expire_ms != NO_EXPIRY:
        fields = {"offset": offset, "metadata": metadata, "commit_timestamp": commit_ms, "expire_timestamp": expire_ms}
        return OFFSET_COMMIT.value(_VERSION_WITH_EXPIRY, fields)
    return numbered_offset_value(leader_epoch, metadata, topic_id).with_numbers(offset, commit_ms)


def numbered_offset_value(leader_epoch: int, metadata: str, topic_id: bytes) -> NumberedValue:
    """Return the value of a commit without its two numbers: offset and time. HOT."""
    template = _cached_template if len(metadata) <= _LONGEST_CACHED else _template
    return template(leader_epoch, metadata, topic_id)


def _template(leader_epoch: int, metadata: str, topic_id: bytes) -> NumberedValue:
    is_known = topic_id != ZERO_TOPIC_ID
    fields = {"leader_epoch": leader_epoch, "metadata": metadata, "topic_id": topic_id}
    value = OFFSET_COMMIT.value(_VERSION if is_known else _VERSION_WITHOUT_TOPIC_ID, fields)
    tail_at = len(value) - (_TOPIC_ID_TAG_BYTES if is_known else 0)
    return NumberedValue(value[: INT16.size], value[INT16.size + INT64.size : tail_at - INT64.size], value[tail_at:])


_cached_template = lru_cache(_MOST_CACHED)(_template)


def _apply_offset(shard: GroupShard, key: Any, value: Any, producer_id: int) -> None:
    """Set or delete a committed offset, or set one of an open transaction."""
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    if key.group not in shard.groups:
        shard.groups[key.group] = ClassicGroup(key.group)
    committed = CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )
    if producer_id < 0:
        shard.offsets.put(key.group, key.topic, key.partition, committed)
    else:
        shard.offsets.put_pending(producer_id, key.group, key.topic, key.partition, committed)


OFFSET_TABLE: Final[Mapping[RecordType, Apply[GroupShard]]] = MappingProxyType(
    {OFFSET_COMMIT: _apply_offset, _LEGACY_OFFSET_COMMIT: _apply_offset}
)
