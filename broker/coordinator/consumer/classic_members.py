"""Members of the classic protocol in consumer groups, and the conversion of groups to the other kind (KIP-848).

Runs in handler processes. A classic group of consumers is converted to a consumer group, and back, with its members and
their partitions: the generation of the one kind is the epoch of the other. For a member of the classic protocol, each
reconciliation step is a rebalance: its heartbeat returns REBALANCE_IN_PROGRESS, its JoinGroup runs the step, and
SyncGroup returns the resulting partitions. It never leads the group: the coordinator assigns.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.classic.group import ClassicGroup, ClassicMember
from rotunda.broker.coordinator.consumer.assignment import Assignment, assignment_of
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.heartbeat import dynamic_member
from rotunda.broker.coordinator.consumer.member import (
    AssignedSince,
    ClassicMetadata,
    ConsumerGroupMember,
    MemberState,
    Report,
)
from rotunda.broker.coordinator.consumer.sessions import Cluster, Sessions
from rotunda.broker.coordinator.consumer.target_assignment import Topics
from rotunda.broker.coordinator.consumer.update import GroupUpdate
from rotunda.broker.coordinator.group import (
    CONSUMER_PROTOCOL_TYPE,
    JoinRequest,
    JoinResponse,
    JoinResult,
    LeaveResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
    SyncResult,
)
from rotunda.broker.coordinator.group_memory import join_bytes
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import (
    Partitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from rotunda.broker.steps import finished

if TYPE_CHECKING:
    from rotunda.broker.coordinator.consumer.events import ConsumerGroupEvents
    from rotunda.broker.coordinator.group_shard import GroupShard

#: The migration policies that allow each direction.
UPGRADING: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADING: Final = frozenset({"bidirectional", "downgrade"})

_LATE_JOIN: Final = "did not rejoin within its rebalance timeout"
_LATE_SYNC: Final = "did not sync within its rebalance timeout"


class ClassicMembers:
    """Handles the requests of classic members in consumer groups."""

    def __init__(self, cluster: Cluster, sessions: Sessions, events: ConsumerGroupEvents) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._events = events

    def join(self, shard: GroupShard, group: ConsumerGroup, request: JoinRequest, respond: JoinResponse) -> None:
        """Handle a JoinGroup, which reconciles the member by one step."""
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        try:
            self._check_join(group, request)
            if not request.member_id and request.instance_id is None and request.needs_member_id:
                raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)
            update = GroupUpdate(group, self._cluster.environment())
            subscription = decode_subscription(request.protocols[0][1])
            before = _member_for(group, request, member_id, update)
            more_bytes = join_bytes(request, None if before.classic is None else before.classic.protocols)
            if more_bytes and not shard.admit(group.group_id, more_bytes):
                raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        except ApiError as error:
            respond(JoinResult(error.code, member_id if error.code == ErrorCode.MEMBER_ID_REQUIRED else ""))
            return
        updated = replace(
            before,
            instance_id=request.instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            topic_names=subscription.topic_names,
            topic_regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        how_joined = None if before.member_id in group.members else request.reason
        owned = to_ids(subscription.owned, self._cluster.topics)
        self._sessions.report(shard, group, updated)
        after = update.apply(before, updated, Report(owned, is_settled=True))
        self._sessions.drop_orphans(group)
        self._sessions.satisfied(group, member_id)
        self._events.reported(group, member_id, how_joined)
        epoch = after.epoch
        self._sessions.demand(shard, group, after, _LATE_SYNC, lambda known: known.epoch == epoch)
        joined = JoinResult(0, member_id, epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0])
        update.commit(shard, (), lambda error: respond(JoinResult(error, member_id) if error else joined))

    def sync(self, shard: GroupShard, group: ConsumerGroup, request: SyncRequest, respond: SyncResponse) -> None:
        """Handle a SyncGroup: return the member's partitions in the generation it has joined."""
        try:
            member, classic = _classic_member(group, request.member_id, request.instance_id, request.generation)
            _check_protocol(classic, request)
        except ApiError as error:
            respond(SyncResult(error.code))
            return
        wall_ms = self._cluster.environment().wall_ms
        if group.must_rejoin(member, wall_ms) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.satisfied(group, member.member_id)
            self._demand_join(shard, group, member)
            respond(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        self._sessions.report(shard, group, member)
        self._sessions.satisfied(group, member.member_id)
        synced = SyncResult(
            0,
            CONSUMER_PROTOCOL_TYPE,
            classic.protocols[0][0],
            encode_assignment(
                decode_subscription(classic.protocols[0][1]).version, to_names(member.assigned, self._cluster.topics)
            ),
        )
        update = GroupUpdate(group, self._cluster.environment())
        update.commit(shard, (), lambda error: respond(SyncResult(error) if error else synced))

    def heartbeat(
        self, shard: GroupShard, group: ConsumerGroup, sender: tuple[str, str | None], generation: int
    ) -> int:
        """Return the error of a heartbeat by ``sender`` (member, instance); REBALANCE_IN_PROGRESS if it must rejoin."""
        try:
            member, _ = _classic_member(group, *sender, generation)
        except ApiError as error:
            return error.code
        self._sessions.report(shard, group, member)
        if group.is_stale:
            update = GroupUpdate(group, self._cluster.environment())
            update.refresh()
            self._events.follow(group, "topics have changed")
            if update.records:
                shard.append(update.records, lambda _: None)
        has_to_join = (
            group.must_rejoin(member, self._cluster.environment().wall_ms)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not has_to_join:
            return 0
        self._demand_join(shard, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, members: Sequence[LeavingMember], respond: LeaveResponse
    ) -> None:
        """Remove members, for an administrator of either protocol."""
        update = GroupUpdate(group, self._cluster.environment())
        errors = []
        for leaving in members:
            try:
                member = _leaving_member(group, leaving)
                update.remove(member)
            except ApiError as error:
                errors.append(error.code)
            else:
                errors.append(0)
                self._events.of_member(group, member.member_id, "leave", leaving.reason)
        self._sessions.drop_orphans(group)
        update.commit(shard, (), lambda error: respond([error or each for each in errors]))

    def _check_join(self, group: ConsumerGroup, request: JoinRequest) -> None:
        """Raise ApiError if the group is full, or no protocol is common to all members."""
        is_full = len(group.members) >= self._cluster.config().group_consumer_max_size
        if is_full and request.member_id not in group.members:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        common = {name for name, _ in request.protocols}
        for member in group.members.values():
            if member.classic is not None and member.member_id != request.member_id:
                common &= {name for name, _ in member.classic.protocols}
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _demand_join(self, shard: GroupShard, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        self._sessions.demand(shard, group, member, _LATE_JOIN, lambda known: known.classic is not None)


def _member_for(group: ConsumerGroup, request: JoinRequest, member_id: str, update: GroupUpdate) -> ConsumerGroupMember:
    """Return the joining member: a known one, a new one, or one that replaces another."""
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    known = group.members.get(group.static_members.get(request.instance_id, ""))
    if request.member_id:
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if known.member_id != request.member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        return known
    if known is None:
        return ConsumerGroupMember(member_id)
    return update.replace_static_member(known, member_id)


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerGroupMember:
    """Return the member to remove; a static one may be identified by its instance only. Raises ApiError."""
    if leaving.instance_id is None:
        return dynamic_member(group, leaving.member_id)
    member = group.members.get(group.static_members.get(leaving.instance_id, ""))
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if leaving.member_id not in ("", member.member_id):
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None
) -> tuple[ConsumerGroupMember, ClassicMetadata]:
    """Return a member of the classic protocol. Raises ApiError if unknown, fenced, or of another generation."""
    if instance_id is not None and group.static_members.get(instance_id, member_id) != member_id:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None or member.classic is None or (instance_id is not None and member.instance_id != instance_id):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation is not None and generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _check_protocol(classic: ClassicMetadata, request: SyncRequest) -> None:
    """Raise ApiError INCONSISTENT_GROUP_PROTOCOL for a SyncGroup with a protocol other than the member's."""
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, classic.protocols[0][0]):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


# ---- conversion of groups --------------------------------------------------------------------------------------------


def upgraded(classic: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """Return the consumer group of a classic group's members, with their partitions.

    Raises ApiError GROUP_ID_NOT_FOUND, as for any group that is not a consumer group, if they are not consumers.
    """
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = group.published_epoch = classic.generation
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
    """Return whether a consumer group has only members of the classic protocol, and at least one."""
    return bool(group.members) and all(member.classic is not None for member in group.members.values())


def downgraded(group: ConsumerGroup, generation: int, wall_ms: int, topics: Topics) -> ClassicGroup:
    """Return the classic group of a consumer group's members, all of the classic protocol, with their partitions."""
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
    """Return an assignment by topic id, without topics that do not exist."""
    found = ((topics.topic(name), indexes) for name, indexes in partitions.items())
    return assignment_of((topic.topic_id, indexes) for topic, indexes in found if topic is not None)


def to_names(assignment: Assignment, topics: Topics) -> Mapping[str, frozenset[int]]:
    """Return an assignment by topic name, without topics that no longer exist."""
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
        assigned_since=(AssignedSince(epoch, assigned),) if assigned else (),
    )
