"""Joining a classic group: new members, those that join again, and static members that come back.

Runs in the handler that coordinates the group. What follows from it, a rebalance or none, is in `rebalance`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from broker.coordinator.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    GroupState,
)
from broker.coordinator.classic.member import ClassicMember
from broker.coordinator.classic.rebalance import ClassicRebalance
from broker.coordinator.group import JoinAnswer, JoinRequest, JoinResult, SyncResult
from broker.coordinator.group_events import GroupEvents, event_of
from broker.coordinator.group_memory import join_bytes
from broker.coordinator.group_shard import GroupShard
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.scheduling.timers import Timers

#: How long a new member may wait for the others: it cannot send heartbeats yet, and may be gone.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000

#: Ids that were given and not used yet, in one group: a client may ask for more and more of them.
MOST_PENDING_MEMBERS: Final = 10_000


class ClassicJoining:
    """Takes members into the groups of one handler."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        timers: Timers,
        wall_ms: Callable[[], int],
        events: GroupEvents,
        rebalance: ClassicRebalance,
    ) -> None:
        self._config = config
        self._timers = timers
        self._wall_ms = wall_ms
        self._events = events
        self._rebalance = rebalance
        self._sessions = rebalance.sessions

    def join(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer) -> None:
        """Let a member join. It is answered when all members have joined, or at once if nothing changes by it."""
        member_id = request.member_id
        if not self._accepts(group, member_id):
            group.remove(member_id)
            answer(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, request.protocols):
            answer(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id or (member_id in group.pending_members and request.instance_id is None):
            if not shard.admit(group.group_id, join_bytes(request, None)):
                answer(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            elif member_id:
                self._add(shard, group, member_id, request, answer)
            else:
                self._join_new(shard, group, request, answer)
        else:
            error = group.validate_member(member_id, request.instance_id)
            if not error and not self._has_room(shard, group, request):
                error = ErrorCode.GROUP_MAX_SIZE_REACHED
            if error:
                answer(JoinResult(error, member_id))
            else:
                _REJOIN[group.state](self, shard, group, request, answer)

    def _has_room(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest) -> bool:
        """Return whether there is memory for what a member that joins again says more than before."""
        more_bytes = join_bytes(request, group.members[request.member_id].protocols)
        return not more_bytes or shard.admit(group.group_id, more_bytes)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether there is room: for new members up to the greatest size, for others if they are in already."""
        largest = self._config().group_max_size
        if group.state is EMPTY:
            return True
        if group.state is PREPARING_REBALANCE:
            return member_id in group.awaiting_join or len(group.awaiting_join) < largest
        return member_id in group.members or len(group.members) < largest

    def _join_new(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer) -> None:
        instance_id = request.instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{uuid.uuid4()}"
        if instance_id is not None:
            old = group.members.get(group.static_members.get(instance_id, ""))
            if old is not None:
                self._replace_static(shard, group, old, member_id, request, answer)
                return
        elif request.needs_member_id:
            while len(group.pending_members) >= MOST_PENDING_MEMBERS:
                # One that comes back all the same is given another id.
                group.remove(next(iter(group.pending_members)))
            timeout_ms = request.session_timeout_ms
            due = partial(self._rebalance.pending_due, shard, group, member_id)
            group.pending_members[member_id] = self._timers.after_ms(timeout_ms, due)
            answer(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(shard, group, member_id, request, answer)

    def _add(
        self, shard: GroupShard, group: ClassicGroup, member_id: str, request: JoinRequest, answer: JoinAnswer
    ) -> None:
        member = ClassicMember.joining(member_id, request)
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.awaiting_join[member_id] = answer
        self._events(event_of(group, self._wall_ms(), "join", request.reason, member_id=member_id))
        self._sessions.touch(shard, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(
            shard,
            group,
            f"Adding new member {member_id} with group instance id {request.instance_id}; "
            f"client reason: {request.reason}",
        )

    def _update(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer) -> None:
        """Take a member into the next generation."""
        member = group.members[request.member_id]
        group.update(member, request)
        _await_join(group, member.member_id, answer)
        what = "Leader re-joining" if group.leader == member.member_id else "Updating metadata for member"
        self._rebalance.prepare_or_complete(
            shard, group, f"{what} {member.member_id} during {group.state_name}; client reason: {request.reason}"
        )

    def _rejoin_completing(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer
    ) -> None:
        """Answer again a member whose answer was lost; one that says something else makes for a rebalance."""
        if group.members[request.member_id].protocols == request.protocols:
            answer(self._rebalance.joined(group, request.member_id))
        else:
            self._update(shard, group, request, answer)

    def _rejoin_stable(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer) -> None:
        """Let the leader have its rebalance; of the others, only one that says something else makes for one."""
        member = group.members[request.member_id]
        if group.leader == request.member_id or member.protocols != request.protocols:
            self._update(shard, group, request, answer)
        else:
            answer(self._rebalance.joined(group, request.member_id))

    def _rejoin_unexpected(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, answer: JoinAnswer
    ) -> None:
        del shard
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if group.state is DEAD else ErrorCode.UNKNOWN_MEMBER_ID
        answer(JoinResult(code, request.member_id))

    def _replace_static(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        old: ClassicMember,
        member_id: str,
        request: JoinRequest,
        answer: JoinAnswer,
    ) -> None:
        """Let a static member that has come back take its place, without a rebalance if that changes nothing."""
        old_join = group.awaiting_join.pop(old.member_id, None)
        if old_join is not None:
            old_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old_sync = group.awaiting_sync.pop(old.member_id, None)
        if old_sync is not None:
            old_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        leader_before = group.leader
        member = group.replace_static(old, member_id)
        group.update(member, request)
        group.awaiting_join[member_id] = answer
        self._sessions.touch(shard, group, member)
        self._events(event_of(group, self._wall_ms(), "replace", request.reason, member_id=member_id))
        reason = f"static member {member_id} with instance id {request.instance_id}; client reason: {request.reason}"
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            self._rebalance.write_replaced(shard, group, member, (leader_before, request.may_skip_assignment))
        elif group.state in {STABLE, COMPLETING_REBALANCE}:
            # The leader may have got the old member's id: its assignment would miss the new one.
            self._rebalance.prepare(shard, group, f"Updating metadata for {reason}")
        else:
            self._rebalance.maybe_complete_join(shard, group)


_Rejoin = Callable[[ClassicJoining, GroupShard, ClassicGroup, JoinRequest, JoinAnswer], None]

#: What the JoinGroup of a member does in each state.
_REJOIN: Final[Mapping[GroupState, _Rejoin]] = MappingProxyType(
    {
        EMPTY: ClassicJoining._rejoin_unexpected,
        PREPARING_REBALANCE: ClassicJoining._update,
        COMPLETING_REBALANCE: ClassicJoining._rejoin_completing,
        STABLE: ClassicJoining._rejoin_stable,
        DEAD: ClassicJoining._rejoin_unexpected,
    }
)


def _await_join(group: ClassicGroup, member_id: str, answer: JoinAnswer) -> None:
    """Let a member wait; an earlier request of it that nobody may read any more is answered now."""
    before = group.awaiting_join.get(member_id)
    group.awaiting_join[member_id] = answer
    if before is not None:
        before(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
