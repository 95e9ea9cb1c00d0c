"""The KIP-848 protocol: heartbeats and their responses, sessions, and their expiry.

Runs in handler processes, for the groups of the partitions of `__consumer_offsets` that they own. Validation is in
`heartbeat`, the effects on a group in `update`; this module sends the responses and handles time. A heartbeat without
changes, which is nearly every one, is served from memory without a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.consumer.classic_members import (
    DOWNGRADING,
    UPGRADING,
    ClassicMembers,
    can_be_classic,
    downgraded,
    upgraded,
)
from rotunda.broker.coordinator.consumer.events import ConsumerGroupEvents
from rotunda.broker.coordinator.consumer.group import ConsumerGroup, Session
from rotunda.broker.coordinator.consumer.heartbeat import (
    Client,
    assignment_fields,
    dynamic_member,
    heartbeat_bytes,
    is_leaving,
    owned_partitions,
    reports_nothing,
    static_member,
    validate,
    wants_assignment,
)
from rotunda.broker.coordinator.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from rotunda.broker.coordinator.consumer.sessions import Cluster, Sessions
from rotunda.broker.coordinator.consumer.topic_patterns import Matches
from rotunda.broker.coordinator.consumer.update import Environment, GroupUpdate
from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.group import (
    SHARE,
    Group,
    JoinRequest,
    JoinResponse,
    LeaveResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from rotunda.broker.coordinator.group_events import GroupEvents
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode, text_of

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Committer
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

Respond = Callable[[dict[str, Any]], None]

#: Continues a consumer group converted to a classic group; its members must rejoin. (partition, group, why)
AdoptClassic = Callable[[GroupShard, ClassicGroup, str], None]


class ConsumerProtocol:
    """Runs consumer groups; see `GroupProtocol`."""

    def __init__(self, cluster: Cluster, timers: Timers, adopt_classic: AdoptClassic, events: GroupEvents) -> None:
        self._cluster = cluster
        self._events = ConsumerGroupEvents(events, lambda: cluster.environment().wall_ms)
        self._adopt_classic = adopt_classic
        self._sessions = Sessions(timers, self._fence)
        self._classic = ClassicMembers(cluster, self._sessions, self._events)

    # ---- heartbeats ----------------------------------------------------------------------------------------------

    def try_steady_heartbeat(self, shard: GroupShard, request: Any, client: Client) -> dict[str, Any] | None:
        """Return the response to a heartbeat that changes nothing; None if it may change the group. HOT."""
        group = shard.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup) or group.is_stale or group.uncommitted:
            return None
        member = group.members.get(request.member_id)
        if member is None or not _is_steady(group, member, request):
            return None
        session = group.sessions[request.member_id]
        is_same = client.client_id == member.client_id and client.host == member.client_host
        if session.must_send_assignment or not session.is_confirmed or not is_same:
            return None
        self._sessions.extend(group, session)
        return {
            "member_id": request.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": group.heartbeat_interval_ms,
        }

    def needed_patterns(self, shard: GroupShard, request: Any, api_version: int) -> set[str]:
        """Return the patterns to resolve before a heartbeat. Raises ApiError for an invalid request."""
        validate(request, api_version, self._cluster.environment().assignors)
        own = {request.subscribed_topic_regex} if request.subscribed_topic_regex else set[str]()
        group = shard.groups.get(request.group_id)
        if is_leaving(request):
            return set()
        if not isinstance(group, ConsumerGroup):
            return own
        return group.patterns() | own if group.is_stale else own - group.regexes.keys()

    def consumer_heartbeat(
        self,
        shard: GroupShard,
        request: Any,
        client: Client,
        matches: Matches,
        respond: Respond,
    ) -> None:
        """Handle a heartbeat, including the first and the last; the response is sent after its commit.

        ``matches`` are those of the patterns that it needs. Raises ApiError when it is rejected.
        """
        environment = self._cluster.environment()._replace(matches=matches)
        if is_leaving(request):
            self._leave(shard, request, environment, respond)
            return
        group, records = self._group_for(shard, request)
        most = self._cluster.config().group_consumer_max_size
        if len(group.members) >= most and request.member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )
        if group.is_stale or not group.session_timeout_ms:
            self._cluster.settle(group)
        update = GroupUpdate(group, environment)
        before = update.member_for(request)
        more_bytes = heartbeat_bytes(group, request)
        if more_bytes and not shard.admit(group.group_id, more_bytes):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"No memory for {more_bytes} bytes of a member or subscription: group.state.max.bytes is used up.",
            )
        # All checks have passed here.
        found = shard.groups.get(group.group_id)
        if found is not group:
            shard.groups[group.group_id] = group
            if isinstance(found, ClassicGroup):
                found.dismiss(ErrorCode.REBALANCE_IN_PROGRESS)
            self._begin_sessions(shard, group)
        joined = None if before.member_id in group.members else f"with instance id {request.instance_id}"
        session = self._sessions.report(shard, group, replace(before, classic=None))
        must_send_assignment, session.must_send_assignment = session.must_send_assignment, not session.is_confirmed
        owned = self._reported(session, owned_partitions(request))
        after = update.heartbeat(before, request, client, owned)
        self._sessions.drop_orphans(group)
        self._watch_revocation(shard, group, before, after)
        self._events.reported(group, after.member_id, joined)
        sends_assignment = must_send_assignment or wants_assignment(request, before, after)
        response = {
            "member_id": after.member_id,
            "member_epoch": after.epoch,
            "heartbeat_interval_ms": group.heartbeat_interval_ms,
            "assignment": assignment_fields(after.assigned) if sends_assignment else None,
        }
        self._respond_when_committed(shard, update, [*records, *update.records], response, respond)

    def _leave(
        self,
        shard: GroupShard,
        request: Any,
        environment: Environment,
        respond: Respond,
    ) -> None:
        group = self._known_group(shard, request.group_id)
        if request.instance_id is None:
            member = dynamic_member(group, request.member_id)
        else:
            member = static_member(group, request)
        update = GroupUpdate(group, environment)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            self._sessions.satisfied(group, member.member_id)
            update.leave_for_a_while(member)
            self._events.of_member(group, member.member_id, "leave", "for a while")
        else:
            left = self._remove(shard, group, update, member)
            self._events.of_member(left, member.member_id, "leave", "leave request")
        response = {"member_id": member.member_id, "member_epoch": request.member_epoch}
        self._respond_when_committed(shard, update, update.records, response, respond)

    def _group_for(self, shard: GroupShard, request: Any) -> tuple[ConsumerGroup, list[Record]]:
        """Return the group of a request, possibly a new one, and the records that delete its predecessor."""
        found = shard.groups.get(request.group_id)
        if isinstance(found, ConsumerGroup):
            return found, []
        if request.member_epoch == JOIN_EPOCH:
            if found is None or (found.kind != SHARE and found.is_empty):
                return ConsumerGroup(request.group_id), [] if found is None else found.tombstones()
            if isinstance(found, ClassicGroup) and self._cluster.config().group_consumer_migration_policy in UPGRADING:
                group = upgraded(found, self._cluster.topics)
                return group, [*found.tombstones(), *group.records()]
        return self._known_group(shard, request.group_id), []

    def _known_group(self, shard: GroupShard, group_id: str) -> ConsumerGroup:
        found = shard.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        problem = "not found" if found is None else "not a consumer group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")

    def _respond_when_committed(
        self,
        shard: GroupShard,
        update: GroupUpdate,
        records: list[Record],
        response: dict[str, Any],
        respond: Respond,
    ) -> None:
        def done(error: int) -> None:
            respond({"error_code": error, "error_message": text_of(error)} if error else response)

        update.commit(shard, records, done)

    # ---- timeouts ------------------------------------------------------------------------------------------------

    def _watch_revocation(
        self, shard: GroupShard, group: ConsumerGroup, before: ConsumerGroupMember, after: ConsumerGroupMember
    ) -> None:
        """Start the rebalance timeout of a member that has to revoke partitions."""
        if after.state is not MemberState.UNREVOKED_PARTITIONS or not _is_same_step(before, after):
            self._sessions.satisfied(group, after.member_id)
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            self._sessions.demand(
                shard,
                group,
                after,
                f"did not leave epoch {after.epoch} in time",
                lambda known: known.epoch == after.epoch and known.state is MemberState.UNREVOKED_PARTITIONS,
            )

    def _fence(self, shard: GroupShard, group: ConsumerGroup, member_id: str, why: str) -> None:
        update = GroupUpdate(group, self._cluster.environment())
        left = self._remove(shard, group, update, group.members[member_id])
        self._events.of_member(left, member_id, "expire", why)
        update.commit(shard, (), nobody_waits)

    def _remove(
        self, shard: GroupShard, group: ConsumerGroup, update: GroupUpdate, member: ConsumerGroupMember
    ) -> Group:
        """Remove a member; if only members of the classic protocol remain, convert the group to a classic one.

        Return the resulting group.
        """
        generation = group.epoch
        update.remove(member)
        self._sessions.drop_orphans(group)
        config, environment = self._cluster.config(), self._cluster.environment()
        if member.classic is not None or not can_be_classic(group) or len(group.members) > config.group_max_size:
            return group
        if config.group_consumer_migration_policy not in DOWNGRADING:
            return group
        classic = downgraded(group, generation, environment.wall_ms, environment.topics)
        assignments = {each.member_id: each.assignment for each in classic.members.values()}
        update.records += [*group.tombstones(), classic.record(assignments)]
        shard.groups[group.group_id] = classic
        group.members.clear()
        self._sessions.drop_orphans(group)
        self._adopt_classic(shard, classic, f"Downgrade group {group.group_id} from consumer to classic.")
        return classic

    def _reported(self, session: Session, owned: Assignment | None) -> Assignment | None:
        """Record the member's reported partitions; return the partitions it is known to own, or None."""
        if owned is not None:
            session.reported = owned
        if session.is_confirmed:
            return session.reported
        session.is_confirmed = True
        return None

    # ---- loading and closing -------------------------------------------------------------------------------------

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Start the sessions of the members of a loaded group."""
        group = _consumer_group(group)
        group.rebuild_derived_state()
        group.published_epoch = group.epoch
        self._cluster.settle(group)
        self._begin_sessions(shard, group)

    def _begin_sessions(self, shard: GroupShard, group: ConsumerGroup) -> None:
        for member in group.members.values():
            session = self._sessions.report(shard, group, member)
            session.is_confirmed = member.classic is not None
            if member.classic is None:
                self._watch_revocation(shard, group, member, member)

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Do nothing: the timers check whether the partition is open."""

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Make every group check its topics and settings at its next heartbeat."""
        for shard in shards:
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.is_stale = True

    # ---- members of the classic protocol -------------------------------------------------------------------------

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, respond: JoinResponse) -> None:
        self._classic.join(shard, _consumer_group(group), request, respond)

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, respond: SyncResponse) -> None:
        self._classic.sync(shard, _consumer_group(group), request, respond)

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        return self._classic.heartbeat(shard, _consumer_group(group), (member_id, instance_id), generation)

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], respond: LeaveResponse) -> None:
        self._classic.leave(shard, _consumer_group(group), members, respond)

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Do nothing: only heartbeats extend a session."""

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        """Return whether a repeated commit is valid. HOT."""
        del shard
        _, member_id, instance_id, epoch, api_version, _ = committer
        return not group.validate_offset_commit(member_id, instance_id, epoch, api_version, transactional=False)


def _consumer_group(group: Group) -> ConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        raise TypeError(f"{group.group_id} is not a consumer group")
    return group


def _is_steady(group: ConsumerGroup, member: ConsumerGroupMember, request: Any) -> bool:
    """Return whether a member has its whole target, in the current epoch, and reports no change."""
    return (
        request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.state is MemberState.STABLE
        and reports_nothing(request)
        and request.instance_id in (None, member.instance_id)
        and member.classic is None
    )


def _is_same_step(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    """Return whether a member's pending step is unchanged."""
    return before.state is after.state and before.epoch == after.epoch and before.held == after.held
