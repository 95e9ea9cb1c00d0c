"""A classic group of consumers becomes a consumer group while its members are there, and the other way round (KIP-848).

Pure. Members keep what they have: the one kind's generation is the other's epoch. Only consumers can change over, since
a coordinator has to read what they subscribe to and what they were assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.classic.member import ClassicMember
from broker.coordinator.consumer.assignment import Assignment, assignment_of
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.consumer.member import ClassicMetadata, ConsumerGroupMember
from broker.coordinator.consumer.target_assignment import Topics
from broker.coordinator.consumer_protocol import (
    Partitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from broker.coordinator.group import CONSUMER_PROTOCOL_TYPE
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.steps import finished

#: The policies under which groups change over in each direction.
UPGRADING: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADING: Final = frozenset({"bidirectional", "downgrade"})


def upgraded(classic: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """Return the consumer group of a classic group's members, each with what it has.

    Raises ApiError GROUP_ID_NOT_FOUND, as of a group that is no consumer group, when they are not consumers.
    """
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = group.told_epoch = classic.generation
    for member in classic.members.values():
        try:
            if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"of type {classic.protocol_type}")
            assigned = assignment_of(
                (topic_id, {each for each in partitions if group.is_free(topic_id, each)})
                for topic_id, partitions in to_ids(decode_assignment(member.assignment), topics).items()
            )
            group.put_member(_consumer_member(member, classic.generation, assigned))
        except ApiError as error:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group: {error.message}"
            ) from error
        group.target[member.member_id] = assigned
    return group


def can_be_classic(group: ConsumerGroup) -> bool:
    """Return whether a consumer group has members, all of which speak the classic protocol."""
    return bool(group.members) and all(member.classic is not None for member in group.members.values())


def downgraded(group: ConsumerGroup, generation: int, wall_ms: int, topics: Topics) -> ClassicGroup:
    """Return the classic group of a consumer group's members, which all speak its protocol, with what each has."""
    classics = [(member, member.classic) for member in group.members.values() if member.classic is not None]
    common = set.intersection(*({name for name, _ in classic.protocols} for _, classic in classics))
    protocol = next(name for name, _ in classics[0][1].protocols if name in common)
    members = []
    for member, classic in classics:
        subscription = dict(classic.protocols)[protocol]
        version = decode_subscription(subscription).version
        members.append(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                classic.session_timeout_ms,
                ((protocol, subscription),),
                encode_assignment(version, to_names(member.assigned, topics)),
            )
        )
    result = ClassicGroup(group.group_id)
    result.state_ms = wall_ms
    result.protocol_name = protocol
    finished(result.restore(CONSUMER_PROTOCOL_TYPE, generation, members))
    return result


def to_ids(partitions: Partitions, topics: Topics) -> Assignment:
    """Return an assignment by topic id; topics that do not exist are left out."""
    found = ((topics.topic(name), indexes) for name, indexes in partitions.items())
    return assignment_of((topic.topic_id, indexes) for topic, indexes in found if topic is not None)


def to_names(assignment: Assignment, topics: Topics) -> Mapping[str, frozenset[int]]:
    """Return an assignment by topic name; topics that do not exist any more are left out."""
    found = ((topics.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items())
    return {topic.name: partitions for topic, partitions in found if topic is not None}


def _consumer_member(member: ClassicMember, epoch: int, assigned: Assignment) -> ConsumerGroupMember:
    subscription = decode_subscription(member.protocols[0][1])
    return ConsumerGroupMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=assigned,
    )
