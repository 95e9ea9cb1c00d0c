"""Reading a KIP-848 group back from the records of `__consumer_offsets`.

Pure. A log that has been compacted in part may show states in between that never were; so each record is taken as it
comes, and what follows from them together is worked out at the end (`ConsumerGroup.rebuild_derived_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from broker.coordinator.consumer.assignment import NO_PARTITIONS
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.consumer.member import LEAVE_EPOCH, ConsumerGroupMember, MemberState
from broker.coordinator.consumer.records import (
    KeyKind,
    decode_current_member,
    decode_group,
    decode_key,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_member,
)

if TYPE_CHECKING:
    from broker.coordinator.group_shard import GroupShard


def replay_consumer_record(shard: GroupShard, key: bytes, value: bytes | None, producer_id: int) -> None:
    """Take one record whose key is one of KEY_KINDS. ApiError when it is malformed."""
    del producer_id
    kind, group_id, name = decode_key(key)
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        group = shard.groups[group_id] = ConsumerGroup(group_id)
    if value is not None:
        _TAKE[kind](group, name, value)
    elif kind is KeyKind.GROUP:
        del shard.groups[group_id]
    else:
        _DELETE[kind](group, name)


def _take_group(group: ConsumerGroup, _: str, value: bytes) -> None:
    group.epoch, group.metadata_hash = decode_group(value)


def _take_member(group: ConsumerGroup, member_id: str, value: bytes) -> None:
    group.members[member_id] = replace(_member(group, member_id), **decode_member(value)._asdict())


def _take_target(group: ConsumerGroup, _: str, value: bytes) -> None:
    group.assignment_epoch = decode_target(value)


def _take_target_member(group: ConsumerGroup, member_id: str, value: bytes) -> None:
    group.target[member_id] = decode_target_member(value)


def _take_current_member(group: ConsumerGroup, member_id: str, value: bytes) -> None:
    group.members[member_id] = replace(_member(group, member_id), **decode_current_member(value)._asdict())


def _take_regex(group: ConsumerGroup, regex: str, value: bytes) -> None:
    group.regexes[regex] = decode_regex(value)


def _take_nothing(_group: ConsumerGroup, _name: str, _value: bytes) -> None:
    """Read over what older brokers say of topics."""


def _delete_member(group: ConsumerGroup, member_id: str) -> None:
    group.members.pop(member_id, None)


def _delete_current_member(group: ConsumerGroup, member_id: str) -> None:
    if member_id in group.members:
        group.members[member_id] = replace(
            group.members[member_id],
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )


def _delete_target_member(group: ConsumerGroup, member_id: str) -> None:
    group.target.pop(member_id, None)


def _delete_target(group: ConsumerGroup, _: str) -> None:
    group.assignment_epoch = -1


def _delete_regex(group: ConsumerGroup, regex: str) -> None:
    group.regexes.pop(regex, None)


def _delete_nothing(_group: ConsumerGroup, _name: str) -> None:
    """Read over what older brokers say of topics."""


def _member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    return group.members.get(member_id) or ConsumerGroupMember(member_id)


_TAKE: Final[Mapping[KeyKind, Callable[[ConsumerGroup, str, bytes], None]]] = MappingProxyType(
    {
        KeyKind.GROUP: _take_group,
        KeyKind.TOPICS: _take_nothing,
        KeyKind.MEMBER: _take_member,
        KeyKind.TARGET: _take_target,
        KeyKind.TARGET_MEMBER: _take_target_member,
        KeyKind.CURRENT_MEMBER: _take_current_member,
        KeyKind.REGEX: _take_regex,
    }
)

_DELETE: Final[Mapping[KeyKind, Callable[[ConsumerGroup, str], None]]] = MappingProxyType(
    {
        KeyKind.TOPICS: _delete_nothing,
        KeyKind.MEMBER: _delete_member,
        KeyKind.TARGET: _delete_target,
        KeyKind.TARGET_MEMBER: _delete_target_member,
        KeyKind.CURRENT_MEMBER: _delete_current_member,
        KeyKind.REGEX: _delete_regex,
    }
)
