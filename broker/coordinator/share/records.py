"""The records of share groups in `__consumer_offsets`, as Kafka writes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.records import Record, RecordType
from rotunda.broker.coordinator.share.member import ShareGroupMember, StatePartitions
from rotunda.broker.protocol.schema.definitions import Structure

MEMBER_METADATA: Final = RecordType("ShareGroupMemberMetadata")
GROUP_METADATA: Final = RecordType("ShareGroupMetadata")
TARGET_ASSIGNMENT: Final = RecordType("ShareGroupTargetAssignmentMetadata")
TARGET_ASSIGNMENT_MEMBER: Final = RecordType("ShareGroupTargetAssignmentMember")
CURRENT_ASSIGNMENT: Final = RecordType("ShareGroupCurrentMemberAssignment")
STATE_PARTITIONS: Final = RecordType("ShareGroupStatePartitionMetadata")
_TARGET_TOPIC: Final = TARGET_ASSIGNMENT_MEMBER.element_class("topic_partitions")
_CURRENT_TOPIC: Final = CURRENT_ASSIGNMENT.element_class("assigned_partitions")


def member_record(group_id: str, member: ShareGroupMember) -> Record:
    value = {
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
    }
    key = MEMBER_METADATA.key(group_id=group_id, member_id=member.member_id)
    return key, MEMBER_METADATA.value(0, value)


def target_record(group_id: str, assignment_epoch: int, wall_ms: int) -> Record:
    value = {"assignment_epoch": assignment_epoch, "assignment_timestamp": wall_ms}
    return TARGET_ASSIGNMENT.key(group_id=group_id), TARGET_ASSIGNMENT.value(0, value)


def target_member_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    key = TARGET_ASSIGNMENT_MEMBER.key(group_id=group_id, member_id=member_id)
    return key, TARGET_ASSIGNMENT_MEMBER.value(0, {"topic_partitions": _topics(_TARGET_TOPIC, assignment)})


def current_member_record(group_id: str, member: ShareGroupMember) -> Record:
    value = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": 0,
        "assigned_partitions": _topics(_CURRENT_TOPIC, member.assigned),
    }
    key = CURRENT_ASSIGNMENT.key(group_id=group_id, member_id=member.member_id)
    return key, CURRENT_ASSIGNMENT.value(0, value)


def state_partitions_record(
    group_id: str,
    initializing: Mapping[bytes, StatePartitions],
    initialized: Mapping[bytes, StatePartitions],
    deleting: Mapping[bytes, str],
) -> Record:
    """Return the record of a group's initialized partitions and of those under initialization or deletion."""
    value = {
        "initializing_topics": _state_topics(initializing),
        "initialized_topics": _state_topics(initialized),
        "deleting_topics": [{"topic_id": each, "topic_name": deleting[each]} for each in sorted(deleting)],
    }
    return STATE_PARTITIONS.key(group_id=group_id), STATE_PARTITIONS.value(0, value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    types = (CURRENT_ASSIGNMENT, TARGET_ASSIGNMENT_MEMBER, MEMBER_METADATA)
    return [(each.key(group_id=group_id, member_id=member_id), None) for each in types]


def group_tombstones(group_id: str) -> list[Record]:
    types = (TARGET_ASSIGNMENT, STATE_PARTITIONS, GROUP_METADATA)
    return [(each.key(group_id=group_id), None) for each in types]


def _topics(topic_class: Callable[..., Structure], assignment: Assignment) -> list[Structure]:
    return [
        topic_class(topic_id=topic_id, partitions=tuple(sorted(assignment[topic_id])))
        for topic_id in sorted(assignment)
    ]


def _state_topics(topics: Mapping[bytes, StatePartitions]) -> list[dict[str, object]]:
    return [
        {"topic_id": topic_id, "topic_name": each.topic_name, "partitions": sorted(each.partitions)}
        for topic_id, each in sorted(topics.items())
    ]
