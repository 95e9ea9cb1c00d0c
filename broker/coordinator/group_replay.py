"""Reading classic groups and committed offsets back from their records: a table by the version of the key.

Runs in the handler that owns the partition, before it answers anything for it. What a record deletes, and what it
writes anew, takes the place of whatever stood under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.group import CLASSIC
from broker.coordinator.group_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEYS,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
)
from broker.coordinator.group_shard import GroupShard, Replay
from broker.protocol.steps import Steps


def replay_offset(shard: GroupShard, key: bytes, value: bytes | None, producer_id: int) -> None:
    """Take a committed offset, or that there is none any more. Raises ApiError when malformed."""
    group_id, topic, partition = decode_offset_key(key)
    if value is None:
        shard.offsets.remove(group_id, topic, partition)
        return
    committed = decode_offset_value(value)
    if committed is None:
        return
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id)
    if producer_id < 0:
        shard.offsets.put(group_id, topic, partition, committed)
    else:
        shard.offsets.put_pending(producer_id, group_id, topic, partition, committed)


def replay_group(shard: GroupShard, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
    """Take a classic group, in steps, or that there is none any more. Raises ApiError when malformed."""
    del producer_id
    group_id = decode_group_key(key)
    if value is not None:
        return _replay_members(shard, group_id, value)
    group = shard.groups.get(group_id)
    if group is not None and group.kind == CLASSIC:
        del shard.groups[group_id]
    return None


def _replay_members(shard: GroupShard, group_id: str, value: bytes) -> Steps[None]:
    record = yield from decode_group_value(value)
    if record is not None:
        shard.groups[group_id] = yield from ClassicGroup.from_record(group_id, record)


CLASSIC_REPLAYS: Final[Mapping[int, Replay]] = MappingProxyType(
    {**dict.fromkeys(OFFSET_COMMIT_KEYS, replay_offset), GROUP_METADATA_KEY: replay_group}
)
