"""The records of KIP-848's consumer groups in `__consumer_offsets`, as Kafka writes them. Pure.

A hash of a group's topics is stored with its epoch, as since Kafka 4.1; ConsumerGroupPartitionMetadata, which older
brokers wrote instead, is ignored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.records import Record, RecordType
from rotunda.broker.protocol.schema.definitions import Structure

GROUP_METADATA: Final = RecordType("ConsumerGroupMetadata")
MEMBER_METADATA: Final = RecordType("ConsumerGroupMemberMetadata")
TARGET_ASSIGNMENT: Final = RecordType("ConsumerGroupTargetAssignmentMetadata")
TARGET_ASSIGNMENT_MEMBER: Final = RecordType("ConsumerGroupTargetAssignmentMember")
CURRENT_ASSIGNMENT: Final = RecordType("ConsumerGroupCurrentMemberAssignment")
REGULAR_EXPRESSION: Final = RecordType("ConsumerGroupRegularExpression")
_TARGET_TOPIC: Final = TARGET_ASSIGNMENT_MEMBER.element_class("topic_partitions")
_CURRENT_TOPIC: Final = CURRENT_ASSIGNMENT.element_class("assigned_partitions")


class ResolvedRegex(NamedTuple):
    """The topics that matched a pattern, at a metadata version and a time (ms since the epoch)."""

    topic_names: frozenset[str]
    version: int
    timestamp_ms: int


def member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    classic = member.classic
    value = {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex or None,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_member_metadata": classic
        and {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [{"name": name, "metadata": metadata} for name, metadata in classic.protocols],
        },
    }
    key = MEMBER_METADATA.key(group_id=group_id, member_id=member.member_id)
    return key, MEMBER_METADATA.value(0, value)


def target_record(group_id: str, assignment_epoch: int) -> Record:
    return TARGET_ASSIGNMENT.key(group_id=group_id), TARGET_ASSIGNMENT.value(0, {"assignment_epoch": assignment_epoch})


def target_member_record(group_id: str, member_id: str, assignment: Assignment) -> Record:
    key = TARGET_ASSIGNMENT_MEMBER.key(group_id=group_id, member_id=member_id)
    topics = [_TARGET_TOPIC(topic_id=each, partitions=_in_order(assignment[each])) for each in sorted(assignment)]
    return key, TARGET_ASSIGNMENT_MEMBER.value(0, {"topic_partitions": topics})


def current_member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    value = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": member.state,
        "assigned_partitions": _current_topics(member, member.assigned),
        "partitions_pending_revocation": _current_topics(member, member.pending_revocation),
    }
    key = CURRENT_ASSIGNMENT.key(group_id=group_id, member_id=member.member_id)
    return key, CURRENT_ASSIGNMENT.value(0, value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    names, version, timestamp_ms = resolved
    key = REGULAR_EXPRESSION.key(group_id=group_id, regular_expression=regex)
    value = {"topics": sorted(names), "version": version, "timestamp": timestamp_ms}
    return key, REGULAR_EXPRESSION.value(0, value)


def regex_tombstone(group_id: str, regex: str) -> Record:
    return REGULAR_EXPRESSION.key(group_id=group_id, regular_expression=regex), None


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    types = (CURRENT_ASSIGNMENT, TARGET_ASSIGNMENT_MEMBER, MEMBER_METADATA)
    return [(each.key(group_id=group_id, member_id=member_id), None) for each in types]


def group_tombstones(group_id: str) -> list[Record]:
    return [(each.key(group_id=group_id), None) for each in (TARGET_ASSIGNMENT, GROUP_METADATA)]


def _current_topics(member: ConsumerGroupMember, assignment: Assignment) -> list[Structure]:
    """Return partitions that a member holds, each with the epoch of its assignment (KIP-1251)."""
    topics = []
    for topic_id in sorted(assignment):
        partitions = _in_order(assignment[topic_id])
        epochs = member.epochs_of(topic_id, partitions)
        topics.append(_CURRENT_TOPIC(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return topics


@lru_cache(4096)
def _in_order(partitions: frozenset[int]) -> tuple[int, ...]:
    """Return the partitions of a topic in order; most topics have one of a few sets."""
    return tuple(sorted(partitions))
