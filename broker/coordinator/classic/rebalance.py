"""A classic group's rebalance: members join, a generation starts, the leader's assignment is committed.

Runs in the handler that coordinates the group. Each step waits for members, and a timer bounds each wait: the initial
delay, the rebalance timeout for joining, and the same again for SyncGroup. Many responses are sent over several loop
passes, each with the state when sending started: a member that was removed since, or must rejoin, gets that error with
its next request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
)
from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.group import JoinResult, SyncResponse, SyncResult
from rotunda.broker.coordinator.group_events import GroupEvents, event_of
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

#: In a larger group a departure is recorded only with the next generation: each record has all members.
MOST_MEMBERS_WRITTEN_AT_ONCE: Final = 100

#: Responses sent in the first loop pass; the others follow in later passes.
MOST_RESPONSES_AT_ONCE: Final = 200

#: A larger assignment cannot be written.
MOST_RECORD_BYTES: Final = 64 << 20

_NS_PER_MS: Final = 1_000_000


class ClassicRebalance:
    """The sessions and rebalances of one handler's groups."""

    def __init__(
        self, config: Callable[[], BrokerConfig], timers: Timers, wall_ms: Callable[[], int], events: GroupEvents
    ) -> None:
        self._config = config
        self._timers = timers
        self._wall_ms = wall_ms
        self._events = events

    # ---- sessions ------------------------------------------------------------------------------------------------

    def touch(
        self, shard: GroupShard, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Restart a member's session. HOT: the timer stays, and checks the deadline when it fires."""
        length_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ns = deadline_ns = self._timers.now_ns() + length_ms * _NS_PER_MS
        timer = member.timer
        if timer is None or timer.deadline_ns > deadline_ns:
            self._watch(shard, group, member)

    def _watch(self, shard: GroupShard, group: ClassicGroup, member: ClassicMember) -> None:
        member.end_session()
        member.timer = self._timers.at_ns(member.deadline_ns, partial(self._session_due, shard, group, member))

    def _session_due(self, shard: GroupShard, group: ClassicGroup, member: ClassicMember) -> None:
        member.timer = None
        if not shard.is_open or group.members.get(member.member_id) is not member:
            return
        if member.deadline_ns > self._timers.now_ns():
            self._watch(shard, group, member)
        elif not group.is_owed(member):
            self._session_ended(shard, group, member)

    # ---- joining -------------------------------------------------------------------------------------------------

    def prepare_or_complete(
        self, shard: GroupShard, group: ClassicGroup, reason: str, done: Done = nobody_waits
    ) -> bool:
        """Start a rebalance, or continue the current one. True if ``done`` waits for a record."""
        if group.can_rebalance:
            return self.prepare(shard, group, reason, done)
        return self.maybe_complete_join(shard, group, done)

    def prepare(self, shard: GroupShard, group: ClassicGroup, reason: str, done: Done = nobody_waits) -> bool:
        """Start a rebalance: all members must rejoin. True if ``done`` waits for a record."""
        if group.state is COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._respond_syncs(shard, group, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self._end_sync_wait(group)
        is_first = group.state is EMPTY
        group.transition_to(PREPARING_REBALANCE, self._wall_ms())
        logger.info(
            "Preparing to rebalance group %s with old generation %d (reason: %s)",
            group.group_id, group.generation, reason,
        )  # fmt: skip
        self._events(event_of(group, group.state_ms, "rebalance", reason))
        if is_first:
            delay_ms = self._config().group_initial_rebalance_delay_ms
            self._put_off(shard, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return False
        if group.all_joined:
            return self._complete_join(shard, group, done)
        self._set_join_timer(shard, group, group.rebalance_timeout_ms, partial(self._complete_join, shard, group))
        return False

    def maybe_complete_join(self, shard: GroupShard, group: ClassicGroup, done: Done = nobody_waits) -> bool:
        """Start the next generation if all have joined; a first rebalance waits for its delay."""
        if group.state is not PREPARING_REBALANCE or group.previous_state is EMPTY or not group.all_joined:
            return False
        return self._complete_join(shard, group, done)

    def joined(self, group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinResult:
        """Return a join result for a member of the current generation; the leader's has all members."""
        members = group.described_members() if member_id == group.leader else ()
        return JoinResult(
            0, member_id, group.generation, group.protocol_type, group.protocol_name, group.leader or "",
            skip_assignment, members,
        )  # fmt: skip

    def _put_off(self, shard: GroupShard, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Wait for more members before the first generation (``group.initial.rebalance.delay.ms``)."""

        def due() -> None:
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_ms = min(self._config().group_initial_rebalance_delay_ms, remaining_ms)
                self._put_off(shard, group, next_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(shard, group)

        self._set_join_timer(shard, group, delay_ms, due)

    def _complete_join(self, shard: GroupShard, group: ClassicGroup, done: Done = nobody_waits) -> bool:
        """Start the next generation with the joined members. True if ``done`` waits for a record."""
        self._cancel_join_timer(group)
        missing = [
            each
            for member_id, each in group.members.items()
            if member_id not in group.awaiting_join and each.instance_id is None
        ]
        for member in missing:
            logger.info("Group %s removed member %s, it did not join", group.group_id, member.member_id)
            group.remove(member.member_id)
            self._expired(group, member.member_id, "did not join in time")
        if missing:
            self.write_departure(shard, group)
        if group.members and not group.elect_joined_leader():
            # Only absent static members: their sessions expire, or they rejoin.
            self._set_join_timer(shard, group, group.rebalance_timeout_ms, partial(self._complete_join, shard, group))
            return False
        group.begin_generation(self._wall_ms())
        if group.state is EMPTY:
            logger.info("Group %s with generation %d is now empty", group.group_id, group.generation)
            self._ended(group, "empty")
            shard.append([group.record({})], done)
            return True
        members = counted(len(group.members), "member")
        logger.info("Stabilized group %s generation %d with %s", group.group_id, group.generation, members)
        for member_id, member in group.members.items():
            # Before its response: it was parked, and its session must not expire in between.
            self.touch(shard, group, member)
            member.is_new = member.is_new and member_id in group.awaiting_join
        group.pending_sync.update(group.members)
        self._in_slices(self._respond_joins(group))
        due = partial(self._sync_due, shard, group, group.generation)
        group.sync_timer = self._timers.after_ms(group.rebalance_timeout_ms, due)
        return False

    def _respond_joins(self, group: ClassicGroup) -> Iterator[None]:
        """Send the responses to the joined members of the new generation, one per step."""
        callbacks, group.awaiting_join = group.awaiting_join, {}
        of_leader = self.joined(group, group.leader or "")
        of_others = of_leader._replace(members=())
        for member_id, respond in callbacks.items():
            respond((of_leader if member_id == of_leader.leader else of_others)._replace(member_id=member_id))
            member = group.members.get(member_id)
            if member is not None:
                member.is_new = False
            yield

    def _in_slices(self, responding: Iterator[None]) -> None:
        """Send many responses; those beyond the first ones in later loop passes."""
        if len(list(islice(responding, MOST_RESPONSES_AT_ONCE))) == MOST_RESPONSES_AT_ONCE:
            self._timers.in_steps(responding)

    def _set_join_timer(self, shard: GroupShard, group: ClassicGroup, delay_ms: int, due: Callable[[], object]) -> None:
        def fire() -> None:
            group.join_timer = None
            if shard.is_open and group.state is PREPARING_REBALANCE:
                due()

        self._cancel_join_timer(group)
        group.join_timer = self._timers.after_ms(delay_ms, fire)

    def _cancel_join_timer(self, group: ClassicGroup) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None

    # ---- the assignment ------------------------------------------------------------------------------------------

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """Record that a member has sent SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync and group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def write_assignment(self, shard: GroupShard, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Write the leader's assignment; once committed, send all responses and make the group stable."""
        generation = group.generation

        def done(error: int) -> None:
            # A member may have joined or left meanwhile: then another generation follows.
            if error or group.state is not COMPLETING_REBALANCE or group.generation != generation:
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.transition_to(STABLE, self._wall_ms())
            self._ended(group, "stable")
            self._respond_syncs(shard, group, None)

        record = group.record(assignments)
        if len(record[1] or b"") > MOST_RECORD_BYTES:
            logger.error(
                "Rejecting the assignment of group %s: %d bytes exceed the size of a record",
                group.group_id,
                len(record[1] or b""),
            )
            self._respond_syncs(shard, group, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR))
            self.prepare(shard, group, "Error when storing group assignment during SyncGroup")
            return
        shard.append([record], done)

    def write_replaced(
        self, shard: GroupShard, group: ClassicGroup, member: ClassicMember, how: tuple[str | None, bool]
    ) -> None:
        """Write the id of a static member that rejoined, then continue it in its predecessor's place.

        ``how``: the previous leader, and whether the response may skip the assignment.
        """
        leader_before, may_skip = how
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        member_id = member.member_id

        def done(error: int) -> None:
            respond = group.awaiting_join.pop(member_id, None)
            if respond is None:
                return
            if error:
                respond(JoinResult(error))
            elif may_skip:
                respond(self.joined(group, member_id, skip_assignment=member_id == group.leader))
            else:
                # An old client that is named as the leader would assign partitions.
                respond(self.joined(group, member_id)._replace(leader=leader_before or "", members=()))
            member.is_new = False
            self.touch(shard, group, member)

        shard.append([group.record(assignments)], done)

    def _respond_syncs(self, shard: GroupShard, group: ClassicGroup, failure: SyncResult | None) -> None:
        result = failure or SyncResult(0, group.protocol_type, group.protocol_name, b"")
        callbacks, group.awaiting_sync = group.awaiting_sync, {}
        given = []
        for member_id, respond in callbacks.items():
            member = group.members.get(member_id)
            if member is not None:
                self.touch(shard, group, member)
                # The assignment of the next generation may exist before the last response is sent.
                given.append((respond, b"" if failure else member.assignment))
        self._in_slices(_give(given, result))

    def _end_sync_wait(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _sync_due(self, shard: GroupShard, group: ClassicGroup, generation: int) -> None:
        """Remove the members of a generation that have not sent SyncGroup."""
        group.sync_timer = None
        late = sorted(group.pending_sync)
        if not shard.is_open or generation != group.generation or not late:
            return
        if group.state in {COMPLETING_REBALANCE, STABLE}:
            for member_id in late:
                self.remove(group, group.members[member_id])
                self._expired(group, member_id, "did not sync in time")
            self.write_departure(shard, group)
            self.prepare(shard, group, f"Removing {late} on pending sync request expiration")

    # ---- results -------------------------------------------------------------------------------------------------

    def _expired(self, group: ClassicGroup, member_id: str, reason: str) -> None:
        self._events(event_of(group, self._wall_ms(), "expire", reason, member_id=member_id))

    def _ended(self, group: ClassicGroup, event: str) -> None:
        reason = f"generation {group.generation}"
        self._events(event_of(group, group.state_ms, event, reason, duration_ms=group.end_rebalance()))

    # ---- leaving -------------------------------------------------------------------------------------------------

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member; its pending requests fail such that it rejoins if it is alive."""
        member_id = member.member_id
        join_response = group.awaiting_join.pop(member_id, None)
        if join_response is not None:
            join_response(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        sync_response = group.awaiting_sync.pop(member_id, None)
        if sync_response is not None:
            sync_response(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def write_departure(self, shard: GroupShard, group: ClassicGroup, done: Done = nobody_waits) -> bool:
        """Record the remaining members, so that a replacement of this process does not wait for departed ones.

        True if ``done`` is called after the write: not without members, as the next generation's record follows.
        """
        if group.state is EMPTY or not 0 < len(group.members) <= MOST_MEMBERS_WRITTEN_AT_ONCE:
            return False
        shard.append([group.departure_record()], done)
        return True

    def pending_due(self, shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
        """Remove a new member that has not joined with its id."""
        if shard.is_open and member_id in group.pending_members:
            group.remove(member_id)
            self._after_departure(shard, group, "")

    def _session_ended(self, shard: GroupShard, group: ClassicGroup, member: ClassicMember) -> None:
        logger.info("Member %s in group %s has failed, removing it from the group", member.member_id, group.group_id)
        reason = f"removing member {member.member_id} on heartbeat expiration"
        self.remove(group, member)
        self._expired(group, member.member_id, reason)
        self.write_departure(shard, group)
        self._after_departure(shard, group, reason)

    def _after_departure(self, shard: GroupShard, group: ClassicGroup, reason: str) -> None:
        if group.state is PREPARING_REBALANCE:
            self.maybe_complete_join(shard, group)
        elif reason and group.state is not EMPTY:
            self.prepare(shard, group, reason)


def _give(given: Sequence[tuple[SyncResponse, bytes]], result: SyncResult) -> Iterator[None]:
    """Send one response per step, with this result and the member's assignment."""
    for respond, assignment in given:
        respond(result._replace(assignment=assignment))
        yield
