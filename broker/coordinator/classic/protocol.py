"""The classic protocol: each request of a member in each state of its group.

Runs in the handler that coordinates the group. The course of a rebalance is in `rebalance`. Errors are those of Kafka's
coordinator. As there, members are in memory until the leader's assignment is committed: if the handler is replaced
during a rebalance, the members of the last generation are loaded and have to join again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    GROUP_METADATA,
    HEARTBEAT_ERRORS,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
    GroupState,
)
from rotunda.broker.coordinator.classic.rebalance import ClassicRebalance
from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.group import (
    Group,
    JoinRequest,
    JoinResponse,
    JoinResult,
    LeaveResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
    SyncResult,
)
from rotunda.broker.coordinator.group_events import GroupEvents, event_of
from rotunda.broker.coordinator.group_memory import join_bytes
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.records import Apply, RecordType
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.coordinator.group import Committer
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.scheduling.timers import Timers


#: Longest wait of a new member for the others: it cannot send heartbeats yet, and may be dead.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000

#: Most unused member ids in one group: a client may request any number of them.
MOST_PENDING_MEMBERS: Final = 10_000


class ClassicProtocol:
    """Runs the classic groups of one handler."""

    def __init__(
        self, config: Callable[[], BrokerConfig], timers: Timers, wall_ms: Callable[[], int], events: GroupEvents
    ) -> None:
        self._config = config
        self._events = events
        self._wall_ms = wall_ms
        self._rebalance = ClassicRebalance(config, timers, wall_ms, events)
        self._timers = timers

    # ---- partitions ----------------------------------------------------------------------------------------------

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Start the session of every member of a loaded group."""
        group, largest = _classic(group), self._config().group_max_size
        for member in group.members.values():
            self._rebalance.touch(shard, group, member)
        if len(group.members) > largest:
            self._rebalance.prepare(shard, group, f"freshly loaded group is over capacity ({largest})")
        elif group.must_rebalance:
            self._rebalance.prepare(shard, group, "a member had left before the group was loaded")

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Respond to all waiting members with NOT_COORDINATOR."""
        del shard
        _classic(group).dismiss(ErrorCode.NOT_COORDINATOR)

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Do nothing: the leader of a group watches its topics."""

    def adopt(self, shard: GroupShard, group: ClassicGroup, reason: str) -> None:
        """Continue a former consumer group: its members must rejoin."""
        for member in group.members.values():
            self._rebalance.touch(shard, group, member)
        self._rebalance.prepare(shard, group, reason)

    # ---- joining ---------------------------------------------------------------------------------------------------

    def create(self, shard: GroupShard, group_id: str, before: Sequence[Record] = ()) -> ClassicGroup:
        """Return a new group; ``before`` deletes one of another kind with the same id."""
        group = ClassicGroup(group_id)
        group.state_ms = self._wall_ms()
        shard.groups[group_id] = group
        shard.append([*before, group.record({})], nobody_waits)
        return group

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, respond: JoinResponse) -> None:
        """Handle a JoinGroup. The response is sent when all members have joined, or at once if nothing changes."""
        group = _classic(group)
        member_id = request.member_id
        if not self._accepts(group, member_id):
            group.remove(member_id)
            respond(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, request.protocols):
            respond(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id or (member_id in group.pending_members and request.instance_id is None):
            if not shard.admit(group.group_id, join_bytes(request, None)):
                respond(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            elif member_id:
                self._add(shard, group, member_id, request, respond)
            else:
                self._join_new(shard, group, request, respond)
        else:
            error = group.validate_member(member_id, request.instance_id)
            if not error and not self._has_room(shard, group, request):
                error = ErrorCode.GROUP_MAX_SIZE_REACHED
            if error:
                respond(JoinResult(error, member_id))
            else:
                _REJOIN[group.state](self, shard, group, request, respond)

    def _has_room(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest) -> bool:
        """Return whether there is memory for the additional bytes of a member that rejoins."""
        more_bytes = join_bytes(request, group.members[request.member_id].protocols)
        return not more_bytes or shard.admit(group.group_id, more_bytes)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether there is room: for new members up to the size limit, for others if they are members."""
        largest = self._config().group_max_size
        if group.state is EMPTY:
            return True
        if group.state is PREPARING_REBALANCE:
            return member_id in group.awaiting_join or len(group.awaiting_join) < largest
        return member_id in group.members or len(group.members) < largest

    def _join_new(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, respond: JoinResponse) -> None:
        instance_id = request.instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{uuid.uuid4()}"
        if instance_id is not None:
            old = group.members.get(group.static_members.get(instance_id, ""))
            if old is not None:
                self._replace_static(shard, group, old, member_id, request, respond)
                return
        elif request.needs_member_id:
            while len(group.pending_members) >= MOST_PENDING_MEMBERS:
                # The dropped member gets another id if it joins later.
                group.remove(next(iter(group.pending_members)))
            timeout_ms = request.session_timeout_ms
            due = partial(self._rebalance.pending_due, shard, group, member_id)
            group.pending_members[member_id] = self._timers.after_ms(timeout_ms, due)
            respond(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(shard, group, member_id, request, respond)

    def _add(
        self, shard: GroupShard, group: ClassicGroup, member_id: str, request: JoinRequest, respond: JoinResponse
    ) -> None:
        member = ClassicMember.joining(member_id, request)
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.awaiting_join[member_id] = respond
        self._events(event_of(group, self._wall_ms(), "join", request.reason, member_id=member_id))
        self._rebalance.touch(shard, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(
            shard,
            group,
            f"Adding new member {member_id} with group instance id {request.instance_id}; "
            f"client reason: {request.reason}",
        )

    def _update(self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, respond: JoinResponse) -> None:
        """Add a member to the next generation."""
        member = group.members[request.member_id]
        group.update(member, request)
        _await_join(group, member.member_id, respond)
        action = "Leader re-joining" if group.leader == member.member_id else "Updating metadata for member"
        self._rebalance.prepare_or_complete(
            shard, group, f"{action} {member.member_id} during {group.state_name}; client reason: {request.reason}"
        )

    def _rejoin_completing(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, respond: JoinResponse
    ) -> None:
        """Repeat a lost response; a member with other protocols starts a rebalance."""
        if group.members[request.member_id].protocols == request.protocols:
            respond(self._rebalance.joined(group, request.member_id))
        else:
            self._update(shard, group, request, respond)

    def _rejoin_stable(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, respond: JoinResponse
    ) -> None:
        """Start a rebalance for the leader, and for others only if their protocols have changed."""
        member = group.members[request.member_id]
        if group.leader == request.member_id or member.protocols != request.protocols:
            self._update(shard, group, request, respond)
        else:
            respond(self._rebalance.joined(group, request.member_id))

    def _rejoin_unexpected(
        self, shard: GroupShard, group: ClassicGroup, request: JoinRequest, respond: JoinResponse
    ) -> None:
        del shard
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if group.state is DEAD else ErrorCode.UNKNOWN_MEMBER_ID
        respond(JoinResult(code, request.member_id))

    def _replace_static(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        old: ClassicMember,
        member_id: str,
        request: JoinRequest,
        respond: JoinResponse,
    ) -> None:
        """Replace a static member that rejoined, without a rebalance if the protocol stays the same."""
        old_join = group.awaiting_join.pop(old.member_id, None)
        if old_join is not None:
            old_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old_sync = group.awaiting_sync.pop(old.member_id, None)
        if old_sync is not None:
            old_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        leader_before = group.leader
        member = group.replace_static(old, member_id)
        group.update(member, request)
        group.awaiting_join[member_id] = respond
        self._rebalance.touch(shard, group, member)
        self._events(event_of(group, self._wall_ms(), "replace", request.reason, member_id=member_id))
        reason = f"static member {member_id} with instance id {request.instance_id}; client reason: {request.reason}"
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            self._rebalance.write_replaced(shard, group, member, (leader_before, request.may_skip_assignment))
        elif group.state in {STABLE, COMPLETING_REBALANCE}:
            # The leader may have received the old member's id: its assignment would miss the new one.
            self._rebalance.prepare(shard, group, f"Updating metadata for {reason}")
        else:
            self._rebalance.maybe_complete_join(shard, group)

    # ---- the assignment ------------------------------------------------------------------------------------------

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, respond: SyncResponse) -> None:
        """Handle a SyncGroup. Once the leader's assignment is committed, all members get their response."""
        group = _classic(group)
        error = _validate_sync(group, request)
        if error:
            respond(SyncResult(error))
        else:
            _SYNC[group.state](self, shard, group, request, respond)

    def _sync_preparing(
        self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, respond: SyncResponse
    ) -> None:
        del shard, group, request
        respond(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def _sync_completing(
        self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, respond: SyncResponse
    ) -> None:
        before = group.awaiting_sync.pop(request.member_id, None)
        if before is not None:
            before(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        group.awaiting_sync[request.member_id] = respond
        self._rebalance.synced(group, request.member_id)
        if group.leader == request.member_id:
            self._rebalance.write_assignment(shard, group, request.assignments)

    def _sync_stable(self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, respond: SyncResponse) -> None:
        self._rebalance.synced(group, request.member_id)
        member = group.members[request.member_id]
        self._rebalance.touch(shard, group, member)
        respond(SyncResult(0, group.protocol_type, group.protocol_name, member.assignment))

    # ---- heartbeats and leaving ----------------------------------------------------------------------------------

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        """Return the error of a heartbeat; a member of the current generation extends its session. HOT."""
        group = _classic(group)
        member = group.members.get(member_id)
        if member is None or instance_id is not None:
            error = group.validate_member(member_id, instance_id)
            if error:
                return error
            member = group.members[member_id]
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.touch(shard, group, member)
        return HEARTBEAT_ERRORS[group.state]

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Extend the session of a member that has committed offsets, unless an assignment is pending. HOT."""
        if isinstance(group, ClassicGroup) and group.state in _COMMIT_IS_HEARTBEAT:
            member = group.members.get(member_id)
            if member is not None:
                self._rebalance.touch(shard, group, member)

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        """Extend the session for a repeated commit; False if it is invalid. HOT."""
        group = _classic(group)
        _, member_id, instance_id, generation, api_version, _ = committer
        member = group.members.get(member_id)
        if group.state is STABLE and member is not None and instance_id is None and generation == group.generation:
            self._rebalance.touch(shard, group, member)
            return True
        if group.validate_offset_commit(member_id, instance_id, generation, api_version, transactional=False):
            return False
        self.committed(shard, group, member_id)
        return True

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], respond: LeaveResponse) -> None:
        """Remove members; the response has an error for each, after the resulting records are committed."""
        group = _classic(group)
        errors = [self._leave(group, each) for each in members]
        removed = [
            each.member_id or str(each.instance_id) for each, error in zip(members, errors, strict=True) if not error
        ]
        written = False

        def done(error: int) -> None:
            respond([error or each for each in errors])

        if removed:
            written = self._rebalance.write_departure(shard, group, done)
            then = nobody_waits if written else done
            reason = f"explicit `LeaveGroup` request for ({', '.join(removed)}) members."
            if group.state is PREPARING_REBALANCE:
                written |= self._rebalance.maybe_complete_join(shard, group, then)
            elif group.state is not EMPTY:
                written |= self._rebalance.prepare_or_complete(shard, group, reason, then)
        if not written:
            done(0)

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id = leaving.member_id
        if not member_id:
            member_id = group.static_members.get(leaving.instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            group.remove(member_id)
            return 0
        else:
            error = group.validate_member(member_id, leaving.instance_id)
            if error:
                return error
        self._rebalance.remove(group, group.members[member_id])
        self._events(event_of(group, self._wall_ms(), "leave", leaving.reason, member_id=member_id))
        return 0


_Rejoin = Callable[[ClassicProtocol, GroupShard, ClassicGroup, JoinRequest, JoinResponse], None]

#: The handler of a member's JoinGroup in each state.
_REJOIN: Final[Mapping[GroupState, _Rejoin]] = MappingProxyType(
    {
        EMPTY: ClassicProtocol._rejoin_unexpected,
        PREPARING_REBALANCE: ClassicProtocol._update,
        COMPLETING_REBALANCE: ClassicProtocol._rejoin_completing,
        STABLE: ClassicProtocol._rejoin_stable,
        DEAD: ClassicProtocol._rejoin_unexpected,
    }
)

_COMMIT_IS_HEARTBEAT: Final = frozenset({STABLE, PREPARING_REBALANCE})

_Sync = Callable[[ClassicProtocol, GroupShard, ClassicGroup, SyncRequest, SyncResponse], None]

#: The handler of a SyncGroup in each state, for a member of the current generation.
_SYNC: Final[Mapping[GroupState, _Sync]] = MappingProxyType(
    {
        PREPARING_REBALANCE: ClassicProtocol._sync_preparing,
        COMPLETING_REBALANCE: ClassicProtocol._sync_completing,
        STABLE: ClassicProtocol._sync_stable,
    }
)


def _await_join(group: ClassicGroup, member_id: str, respond: JoinResponse) -> None:
    """Store a member's response callback; its earlier JoinGroup fails now."""
    before = group.awaiting_join.get(member_id)
    group.awaiting_join[member_id] = respond
    if before is not None:
        before(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id))


def _validate_sync(group: ClassicGroup, request: SyncRequest) -> int:
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.instance_id)
    if error:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    pairs = (request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)
    return (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if any(a is not None and b is not None and a != b for a, b in pairs)
        else 0
    )


def _apply_group(shard: GroupShard, key: Any, value: Any, _: int) -> Steps[None] | None:
    """Set or delete a classic group; a set runs in steps."""
    if value is not None:
        return _restore(shard, key.group, value)
    if isinstance(shard.groups.get(key.group), ClassicGroup):
        del shard.groups[key.group]
    return None


def _restore(shard: GroupShard, group_id: str, value: Any) -> Steps[None]:
    shard.groups[group_id] = yield from ClassicGroup.from_record(group_id, value)


CLASSIC_TABLE: Final[Mapping[RecordType, Apply[GroupShard]]] = MappingProxyType({GROUP_METADATA: _apply_group})


def _classic(group: Group) -> ClassicGroup:
    if not isinstance(group, ClassicGroup):
        raise TypeError(f"{group.group_id} is not a classic group")
    return group
