"""Applies the records of KIP-848's consumer groups to memory when a partition is loaded.

Pure. A partly compacted log may have combinations of records that never existed: each record is applied on its own, and
`ConsumerGroup.rebuild_derived_state` derives the rest at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, assignment_of, recorded_assignment
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import (
    LEAVE_EPOCH,
    AssignedSince,
    ClassicMetadata,
    ConsumerGroupMember,
    MemberState,
)
from rotunda.broker.coordinator.consumer.records import (
    CURRENT_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    REGULAR_EXPRESSION,
    TARGET_ASSIGNMENT,
    TARGET_ASSIGNMENT_MEMBER,
    ResolvedRegex,
)
from rotunda.broker.coordinator.group_shard import group_table
from rotunda.broker.coordinator.modern_group import apply_epoch, apply_target_member


def _apply_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    classic = value.classic_member_metadata
    group.members[key.member_id] = replace(
        _member(group, key.member_id),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        # Older brokers omitted the field; Kafka's definition decodes it as metadata without protocols.
        classic=ClassicMetadata(
            classic.session_timeout_ms, tuple([(each.name, each.metadata) for each in classic.supported_protocols])
        )
        if classic is not None and classic.supported_protocols
        else None,
    )


def _apply_target(group: ConsumerGroup, key: Any, value: Any) -> None:
    del key
    group.assignment_epoch = -1 if value is None else value.assignment_epoch


def _apply_current_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = _member(group, key.member_id)
    if value is not None:
        topics = (*value.assigned_partitions, *value.partitions_pending_revocation)
        member = replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=recorded_assignment(value.assigned_partitions),
            pending_revocation=recorded_assignment(value.partitions_pending_revocation),
            assigned_since=_assigned_since(topics, value.member_epoch),
        )
    elif key.member_id in group.members:
        member = replace(
            member,
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            state=MemberState.STABLE,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
            assigned_since=(),
        )
    else:
        return
    group.members[key.member_id] = member


def _apply_regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.regexes[key.regular_expression] = resolved


def _member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    return group.members.get(member_id) or ConsumerGroupMember(member_id)


def _assigned_since(topics: Iterable[Any], member_epoch: int) -> tuple[AssignedSince, ...]:
    """Return the partitions by the epoch of their assignment; that of the member in records without it."""
    found: dict[int, list[tuple[bytes, Iterable[int]]]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = (member_epoch,) * len(topic.partitions)
        by_epoch: dict[int, list[int]] = {}
        for partition, epoch in zip(topic.partitions, epochs, strict=True):
            by_epoch.setdefault(epoch, []).append(partition)
        for epoch, partitions in by_epoch.items():
            found.setdefault(epoch, []).append((topic.topic_id, partitions))
    return tuple(AssignedSince(epoch, assignment_of(found[epoch])) for epoch in sorted(found))


CONSUMER_TABLE: Final = group_table(
    ConsumerGroup,
    GROUP_METADATA,
    {
        GROUP_METADATA: apply_epoch,
        MEMBER_METADATA: _apply_member,
        TARGET_ASSIGNMENT: _apply_target,
        TARGET_ASSIGNMENT_MEMBER: apply_target_member,
        CURRENT_ASSIGNMENT: _apply_current_assignment,
        REGULAR_EXPRESSION: _apply_regex,
    },
)
