"""Applies the records of share groups to memory when a partition is loaded.

Pure. A partly compacted log may have combinations of records that never existed: each record is applied on its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, recorded_assignment
from rotunda.broker.coordinator.group_shard import group_table
from rotunda.broker.coordinator.modern_group import apply_epoch, apply_target_member
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import JOIN_EPOCH, ShareGroupMember, StatePartitions
from rotunda.broker.coordinator.share.records import (
    CURRENT_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    STATE_PARTITIONS,
    TARGET_ASSIGNMENT,
    TARGET_ASSIGNMENT_MEMBER,
)


def _apply_member(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    group.members[key.member_id] = group.with_shared_names(
        replace(
            _member(group, key.member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )
    )


def _apply_target(group: ShareGroup, key: Any, value: Any) -> None:
    del key
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assigned_wall_ms = 0 if value is None else value.assignment_timestamp


def _apply_current_assignment(group: ShareGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.members[key.member_id] = replace(
            _member(group, key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=recorded_assignment(value.assigned_partitions),
        )
    elif (member := group.members.get(key.member_id)) is not None:
        group.members[key.member_id] = replace(
            member, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, assigned=NO_PARTITIONS
        )


def _apply_state_partitions(group: ShareGroup, key: Any, value: Any) -> None:
    del key
    group.initialized = {} if value is None else _state_topics(value.initialized_topics)
    group.initializing = {} if value is None else _state_topics(value.initializing_topics)
    group.deleting = {} if value is None else {each.topic_id: each.topic_name for each in value.deleting_topics}


def _member(group: ShareGroup, member_id: str) -> ShareGroupMember:
    return group.members.get(member_id) or ShareGroupMember(member_id)


def _state_topics(topics: Any) -> dict[bytes, StatePartitions]:
    return {each.topic_id: StatePartitions(each.topic_name, frozenset(each.partitions)) for each in topics}


SHARE_TABLE: Final = group_table(
    ShareGroup,
    GROUP_METADATA,
    {
        GROUP_METADATA: apply_epoch,
        MEMBER_METADATA: _apply_member,
        TARGET_ASSIGNMENT: _apply_target,
        TARGET_ASSIGNMENT_MEMBER: apply_target_member,
        CURRENT_ASSIGNMENT: _apply_current_assignment,
        STATE_PARTITIONS: _apply_state_partitions,
    },
)
