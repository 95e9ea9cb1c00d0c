"""The classic protocol: each request of a member in each state of its group.

Runs in the handler that coordinates the group. Joining is in `joining`, the course of a rebalance in
`rebalance`. Errors are those of Kafka's coordinator. As there, members are in memory until the leader's
assignment is committed: when the handler is replaced in the middle of a rebalance, the members of the last generation
are taken up again and asked to rejoin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.classic.dismissal import dismiss
from broker.coordinator.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    GROUP_METADATA,
    HEARTBEAT_ERRORS,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    GroupState,
)
from broker.coordinator.classic.joining import ClassicJoining
from broker.coordinator.classic.rebalance import ClassicRebalance
from broker.coordinator.classic.sessions import ClassicSessions
from broker.coordinator.group import (
    Group,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
    SyncResult,
)
from broker.coordinator.group_events import GroupEvents, event_of
from broker.coordinator.group_shard import GroupShard, nobody_waits
from broker.coordinator.records import Apply, RecordType
from broker.protocol.error_codes import ErrorCode
from broker.protocol.steps import Steps

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.coordinator.offsets.commits import Committer
    from broker.coordinator.records import Record
    from broker.scheduling.timers import Timers


class ClassicProtocol:
    """Runs the classic groups of one handler."""

    def __init__(
        self, config: Callable[[], BrokerConfig], timers: Timers, wall_ms: Callable[[], int], events: GroupEvents
    ) -> None:
        self._config = config
        self._events = events
        self._wall_ms = wall_ms
        self._rebalance = ClassicRebalance(config, timers, wall_ms, events)
        self._sessions: ClassicSessions = self._rebalance.sessions
        self._joining = ClassicJoining(config, timers, wall_ms, events, self._rebalance)

    # ---- partitions ----------------------------------------------------------------------------------------------

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Give every member of a group that has been read back a session of its own."""
        group, largest = _classic(group), self._config().group_max_size
        for member in group.members.values():
            self._sessions.touch(shard, group, member)
        if len(group.members) > largest:
            self._rebalance.prepare(shard, group, f"freshly loaded group is over capacity ({largest})")
        elif group.must_rebalance:
            self._rebalance.prepare(shard, group, "a member had gone before the group was loaded")

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Tell everybody who waits that this is no coordinator any more."""
        del shard
        dismiss(_classic(group), ErrorCode.NOT_COORDINATOR)

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Nothing depends on it: the leader of a group looks after its topics."""

    def adopt(self, shard: GroupShard, group: ClassicGroup, reason: str) -> None:
        """Go on with a group that was of the other kind: its members are to join again."""
        for member in group.members.values():
            self._sessions.touch(shard, group, member)
        self._rebalance.prepare(shard, group, reason)

    # ---- joining ---------------------------------------------------------------------------------------------------

    def create(self, shard: GroupShard, group_id: str, before: Sequence[Record] = ()) -> ClassicGroup:
        """Return a new group; ``before`` deletes one of another kind that stood in its place."""
        group = ClassicGroup(group_id)
        group.state_ms = self._wall_ms()
        shard.groups[group_id] = group
        shard.append([*before, group.record({})], nobody_waits)
        return group

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, answer: JoinAnswer) -> None:
        """Let a member join. It is answered when all members have joined, or at once if nothing changes by it."""
        self._joining.join(shard, _classic(group), request, answer)

    # ---- the assignment ------------------------------------------------------------------------------------------

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, answer: SyncAnswer) -> None:
        """Give a member its assignment. The leader brings it: once it is committed, everybody is answered."""
        group = _classic(group)
        error = _validate_sync(group, request)
        if error:
            answer(SyncResult(error))
        else:
            _SYNC[group.state](self, shard, group, request, answer)

    def _sync_preparing(self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, answer: SyncAnswer) -> None:
        del shard, group, request
        answer(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def _sync_completing(
        self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, answer: SyncAnswer
    ) -> None:
        before = group.awaiting_sync.pop(request.member_id, None)
        if before is not None:
            before(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        group.awaiting_sync[request.member_id] = answer
        self._rebalance.synced(group, request.member_id)
        if group.leader == request.member_id:
            self._rebalance.write_assignment(shard, group, request.assignments)

    def _sync_stable(self, shard: GroupShard, group: ClassicGroup, request: SyncRequest, answer: SyncAnswer) -> None:
        self._rebalance.synced(group, request.member_id)
        member = group.members[request.member_id]
        self._sessions.touch(shard, group, member)
        answer(SyncResult(0, group.protocol_type, group.protocol_name, member.assignment))

    # ---- life and leave ------------------------------------------------------------------------------------------

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        """Return the error of a heartbeat; one by a member of the present generation prolongs its session. HOT."""
        group = _classic(group)
        member = group.members.get(member_id)
        if member is None or instance_id is not None:
            error = group.validate_member(member_id, instance_id)
            if error:
                return error
            member = group.members[member_id]
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._sessions.touch(shard, group, member)
        return HEARTBEAT_ERRORS[group.state]

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Prolong the session of a member that has committed offsets, unless an assignment is awaited. HOT."""
        if isinstance(group, ClassicGroup) and group.state in _COMMIT_IS_HEARTBEAT:
            member = group.members.get(member_id)
            if member is not None:
                self._sessions.touch(shard, group, member)

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        """Do the same for a member that commits as it did before; False if it may not. HOT."""
        group = _classic(group)
        _, member_id, instance_id, generation, api_version, _ = committer
        member = group.members.get(member_id)
        if group.state is STABLE and member is not None and instance_id is None and generation == group.generation:
            self._sessions.touch(shard, group, member)
            return True
        if group.validate_offset_commit(member_id, instance_id, generation, api_version, transactional=False):
            return False
        self.committed(shard, group, member_id)
        return True

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], answer: LeaveAnswer) -> None:
        """Remove members; answered with an error for each, once what follows from it is committed."""
        group = _classic(group)
        errors = [self._leave(group, each) for each in members]
        gone = [
            each.member_id or str(each.instance_id) for each, error in zip(members, errors, strict=True) if not error
        ]
        written = False

        def done(error: int) -> None:
            answer([error or each for each in errors])

        if gone:
            written = self._rebalance.write_departure(shard, group, done)
            then = nobody_waits if written else done
            reason = f"explicit `LeaveGroup` request for ({', '.join(gone)}) members."
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


_COMMIT_IS_HEARTBEAT: Final = frozenset({STABLE, PREPARING_REBALANCE})

_Sync = Callable[[ClassicProtocol, GroupShard, ClassicGroup, SyncRequest, SyncAnswer], None]

#: What the SyncGroup of a member, of the right generation, does in each state.
_SYNC: Final[Mapping[GroupState, _Sync]] = MappingProxyType(
    {
        PREPARING_REBALANCE: ClassicProtocol._sync_preparing,
        COMPLETING_REBALANCE: ClassicProtocol._sync_completing,
        STABLE: ClassicProtocol._sync_stable,
    }
)


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
    said = (request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)
    return (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL if any(a is not None and b is not None and a != b for a, b in said) else 0
    )


def _apply_group(shard: GroupShard, key: Any, value: Any, _: int) -> Steps[None] | None:
    """Set or delete a classic group, the first in steps."""
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
