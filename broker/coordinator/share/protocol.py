"""The protocol of share groups (KIP-932): heartbeats and their responses, sessions, and their expiry.

Runs in handler processes, for the groups of the partitions of `__consumer_offsets` that they own. The effects on a
group are in `update`; this module validates requests, sends the responses and handles time. A heartbeat without
changes, which is nearly every one, is served from memory without a record. One that meets partitions without state
waits for their initialization, so that the first response has an assignment; Kafka's has it one heartbeat later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.consumer.heartbeat import Client, assignment_fields
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
from rotunda.broker.coordinator.group_memory import GROUP_BYTES, MEMBER_BYTES, texts_bytes
from rotunda.broker.coordinator.member_sessions import MemberSessions
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupMember
from rotunda.broker.coordinator.share.states import ShareEnvironment, ShareStates, StateChanges, is_there
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode, text_of

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.group import Committer
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

Respond = Callable[[dict[str, Any]], None]

LONGEST_MEMBER_ID: Final = 36

#: How long a heartbeat waits for an initialization; afterwards the assignment follows with a later heartbeat.
_WAIT_MS: Final = 1000


class ShareProtocol:
    """Runs share groups; see `GroupProtocol`."""

    def __init__(self, environment: ShareEnvironment, timers: Timers, states: ShareStates, events: GroupEvents) -> None:
        self._environment = environment
        self._timers = timers
        self._events = events
        self._sessions = MemberSessions[ShareGroup](timers, self._fence)
        self.states = StateChanges(environment, timers, states)

    # ---- heartbeats ----------------------------------------------------------------------------------------------

    def try_steady_heartbeat(self, shard: GroupShard, request: Any, client: Client) -> dict[str, Any] | None:
        """Return the response to a heartbeat that changes nothing; None if it may change the group. HOT."""
        group = shard.groups.get(request.group_id)
        if not isinstance(group, ShareGroup) or group.is_stale or group.initializing_since_ms or group.uncommitted:
            return None
        member = group.members.get(request.member_id)
        if (
            member is None
            or not request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
            or request.subscribed_topic_names is not None
            or request.rack_id is not None
            or (client.client_id, client.host) != (member.client_id, member.client_host)
        ):
            return None
        self._sessions.extend(group, group.sessions[request.member_id])
        return {
            "member_id": request.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": group.heartbeat_interval_ms,
        }

    def share_heartbeat(self, shard: GroupShard, request: Any, client: Client, respond: Respond) -> None:
        """Handle a heartbeat, including the first and the last; the response is sent after its commit.

        Raises ApiError when it is rejected.
        """
        if request.member_epoch == LEAVE_EPOCH:
            self._leave(shard, request, respond)
            return
        group = self._group_for(shard, request)
        before = self._member_for(group, request)
        _admit(shard, group, request)
        shard.groups[group.group_id] = group
        if group.is_stale or not group.session_timeout_ms:
            self._settle(group)
        self._sessions.restart(shard, group, before.member_id, group.session_timeout_ms)
        is_new = before.member_id not in group.members
        update = self._environment.update(group)
        member = update.report(before, request, client)
        if is_new:
            self._publish(group, member.member_id, "join", f"client {client.client_id}")
        steps = update.begin_initialization(self._environment.retry_interval_ms)
        if steps:
            update.commit(shard, lambda error: None if error else self.states.initialize(shard, group, steps))
        elif update.records:
            update.commit(shard, nobody_waits)
        if self._environment.awaits_state(group, member):
            self._wait(group, lambda: self._move(shard, group, before, request, respond))
        else:
            self._move(shard, group, before, request, respond)

    def _move(
        self, shard: GroupShard, group: ShareGroup, before: ShareGroupMember, request: Any, respond: Respond
    ) -> None:
        """Assign a member its target, and send the response to its heartbeat after the commit."""
        if not is_there(shard, group):
            respond(_failed(ErrorCode.NOT_COORDINATOR))
            return
        member = group.members.get(before.member_id)
        if member is None:
            respond(_failed(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        update = self._environment.update(group)
        moved = update.move(member)
        sends_assignment = (
            request.member_epoch in (JOIN_EPOCH, before.previous_epoch)
            or request.subscribed_topic_names is not None
            or moved.assigned != before.assigned
        )
        response = {
            "member_id": moved.member_id,
            "member_epoch": moved.epoch,
            "heartbeat_interval_ms": group.heartbeat_interval_ms,
            "assignment": assignment_fields(moved.assigned) if sends_assignment else None,
        }
        update.commit(shard, lambda error: respond(_failed(error) if error else response))

    def _leave(self, shard: GroupShard, request: Any, respond: Respond) -> None:
        group = _known_group(shard, request.group_id)
        _known_member(group, request.member_id)
        response = {"member_id": request.member_id, "member_epoch": LEAVE_EPOCH}
        self._remove(
            shard,
            group,
            (request.member_id, "leave", "leave request"),
            lambda error: respond(_failed(error) if error else response),
        )

    def _group_for(self, shard: GroupShard, request: Any) -> ShareGroup:
        """Return the group of a request, possibly a new one. Raises ApiError."""
        if request.group_id not in shard.groups and request.member_epoch == JOIN_EPOCH:
            return ShareGroup(request.group_id)
        group = _known_group(shard, request.group_id)
        most = self._environment.config().group_share_max_size
        if len(group.members) >= most and request.member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {most} members.",
            )
        return group

    def _member_for(self, group: ShareGroup, request: Any) -> ShareGroupMember:
        """Return the member that sends a request, possibly a new one. Raises ApiError."""
        if request.member_epoch == JOIN_EPOCH:
            return group.members.get(request.member_id) or ShareGroupMember(request.member_id)
        member = _known_member(group, request.member_id)
        if request.member_epoch not in (member.epoch, member.previous_epoch):
            relation = "greater" if request.member_epoch > member.epoch else "smaller"
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {relation} member epoch ({request.member_epoch}) than the one known by "
                f"the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _settle(self, group: ShareGroup) -> None:
        """Set a group's current intervals and timeouts."""
        config = self._environment.group_config(group.group_id)
        group.heartbeat_interval_ms = config.share_heartbeat_interval_ms
        group.session_timeout_ms = config.share_session_timeout_ms
        group.assignment_interval_ms = config.share_assignment_interval_ms

    def _wait(self, group: ShareGroup, resume: Callable[[], None]) -> None:
        """Call ``resume`` once: when an initialization ends, or after some time."""
        once = iter((resume,))

        def wake() -> None:
            for each in once:
                each()

        group.waiting.append(wake)
        self._timers.after_ms(_WAIT_MS, wake)

    # ---- the end of members and groups ---------------------------------------------------------------------------

    def delete(self, shard: GroupShard, group: ShareGroup, done: Done) -> None:
        """Delete a group without members after the state of its partitions; ``done`` is called after the commit."""

        def deleted(error: int) -> None:
            if error or not is_there(shard, group):
                done(error or ErrorCode.NOT_COORDINATOR)
            elif group.members:
                done(ErrorCode.NON_EMPTY_GROUP)
            else:
                del shard.groups[group.group_id]
                shard.append(group.tombstones(), done)

        topic_ids = {*group.initialized, *group.initializing, *group.deleting}
        if topic_ids:
            self.states.delete(shard, group, topic_ids, deleted)
        else:
            deleted(0)

    def _fence(self, shard: GroupShard, group: ShareGroup, member_id: str, why: str) -> None:
        self._remove(shard, group, (member_id, "expire", why), nobody_waits)

    def _remove(self, shard: GroupShard, group: ShareGroup, removal: tuple[str, str, str], done: Done) -> None:
        """Remove a member; ``removal``: its id, the event, the reason."""
        member_id, event, why = removal
        update = self._environment.update(group)
        update.remove(member_id)
        self._sessions.drop_orphans(group)
        self._publish(group, member_id, event, why)
        update.commit(shard, done)

    def _publish(self, group: ShareGroup, member_id: str, event: str, why: str) -> None:
        logger.info(
            "share group %s at epoch %d: %s of member %s: %s", group.group_id, group.epoch, event, member_id, why
        )
        self._events(event_of(group, self._environment.wall_ms(), event, why, member_id=member_id))

    # ---- loading and closing -------------------------------------------------------------------------------------

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Start the sessions of the members of a loaded group, and repeat its unfinished deletions."""
        group = share_group(group)
        self._settle(group)
        group.is_stale = True
        for member_id in group.members:
            self._sessions.restart(shard, group, member_id, group.session_timeout_ms)
        self._timers.after_ms(0, lambda: self._finish_deletions(shard, group))

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Fail the waiting heartbeats."""
        del shard
        share_group(group).wake_all()

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Make every group check topics and settings at its next heartbeat; delete the state of deleted topics."""
        for shard in shards:
            for group in list(shard.groups.values()):
                if isinstance(group, ShareGroup):
                    group.is_stale = True
                    self.states.drop_deleted_topics(shard, group)

    def _finish_deletions(self, shard: GroupShard, group: ShareGroup) -> None:
        if is_there(shard, group):
            self.states.drop_deleted_topics(shard, group)
            self.states.finish_deletions(shard, group, nobody_waits)

    # ---- members of the classic protocol -------------------------------------------------------------------------

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, respond: JoinResponse) -> None:
        del shard, group
        respond(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, respond: SyncResponse) -> None:
        del shard, group, request
        respond(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        del shard, group, member_id, instance_id, generation
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], respond: LeaveResponse) -> None:
        del shard, group
        respond([ErrorCode.UNKNOWN_MEMBER_ID] * len(members))

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Do nothing: there are no commits."""

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        del shard, group, committer
        return False


def validate(request: Any) -> None:
    """Raise ApiError INVALID_REQUEST for a request that is invalid on its own."""
    _require(bool(request.group_id.strip()), "GroupId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _require(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    _require(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _admit(shard: GroupShard, group: ShareGroup, request: Any) -> None:
    """Raise ApiError GROUP_MAX_SIZE_REACHED if there is no memory for what a heartbeat adds."""
    more_bytes = texts_bytes(request.subscribed_topic_names or ())
    member = group.members.get(request.member_id)
    if member is None:
        own = (request.member_id, request.rack_id or "")
        more_bytes += MEMBER_BYTES + texts_bytes(own) + (0 if group.members else GROUP_BYTES)
    else:
        more_bytes = max(0, more_bytes - texts_bytes(member.topic_names))
    if more_bytes and not shard.admit(group.group_id, more_bytes):
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"There is no room for {more_bytes} bytes of another member or subscription: groups take as much memory as "
            "group.state.max.bytes allows.",
        )


def _known_group(shard: GroupShard, group_id: str) -> ShareGroup:
    found = shard.groups.get(group_id)
    if isinstance(found, ShareGroup):
        return found
    problem = "not found" if found is None else "is not a share group"
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")


def _known_member(group: ShareGroup, member_id: str) -> ShareGroupMember:
    member = group.members.get(member_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def _failed(error: int) -> dict[str, Any]:
    return {"error_code": error, "error_message": text_of(error)}


def share_group(group: Group) -> ShareGroup:
    if not isinstance(group, ShareGroup):
        raise TypeError(f"{group.group_id} is not a share group")
    return group
