"""Timeouts of KIP-848's consumer groups: session expiry, and rebalance timeouts of members with a pending step.

Runs in handler processes. Heartbeats do not reset a session's timer: it checks the deadline when it fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rotunda.broker.config.group_config import GROUP_CONFIGS, group_number
from rotunda.broker.coordinator.consumer.group import ConsumerGroup, Session
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.consumer.update import Environment

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.coordinator.consumer.target_assignment import Topics
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timers

#: Removes a member and continues the group: (partition, group, member id, why).
Fence = Callable[["GroupShard", ConsumerGroup, str, str], None]

_NS_PER_MS: Final = 1_000_000
_HEARTBEAT_INTERVAL: Final = GROUP_CONFIGS["consumer.heartbeat.interval.ms"]
_SESSION_TIMEOUT: Final = GROUP_CONFIGS["consumer.session.timeout.ms"]
_ASSIGNMENT_INTERVAL: Final = GROUP_CONFIGS["consumer.assignment.interval.ms"]


class Cluster:
    """The environment of groups: topics, current settings, and the settings of single groups."""

    def __init__(
        self,
        topics: Topics,
        config: Callable[[], BrokerConfig],
        group_configs: Callable[[str], Mapping[str, str]],
        wall_ms: Callable[[], int],
    ) -> None:
        self.topics = topics
        self.config = config
        self._group_configs = group_configs
        self._wall_ms = wall_ms

    def environment(self) -> Environment:
        """Return the current topics, assignors and time."""
        return Environment(self.topics, self.config().group_consumer_assignors, self._wall_ms())

    def settle(self, group: ConsumerGroup) -> None:
        """Set a group's current intervals and timeouts."""
        configs, config = self._group_configs(group.group_id), self.config()
        group.heartbeat_interval_ms = group_number(_HEARTBEAT_INTERVAL, configs, config)
        group.session_timeout_ms = group_number(_SESSION_TIMEOUT, configs, config)
        group.assignment_interval_ms = group_number(_ASSIGNMENT_INTERVAL, configs, config)


class Sessions:
    """The sessions of the members of all groups of this process."""

    def __init__(self, timers: Timers, fence: Fence) -> None:
        self._timers = timers
        self._fence = fence

    def extend(self, group: ConsumerGroup, session: Session) -> None:
        """Restart the session of a KIP-848 member. HOT."""
        session.deadline_ns = self._timers.now_ns() + group.session_timeout_ms * _NS_PER_MS

    def report(self, shard: GroupShard, group: ConsumerGroup, member: ConsumerGroupMember) -> Session:
        """Restart the session of a member that has sent a request, and return it."""
        session = group.sessions.get(member.member_id)
        if session is None:
            session = group.sessions[member.member_id] = Session(0)
        timeout_ms = group.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        session.deadline_ns = self._timers.now_ns() + timeout_ms * _NS_PER_MS
        # After a change of protocol, the deadline may be before the timer's.
        if session.timer is None or session.timer.deadline_ns > session.deadline_ns:
            if session.timer is not None:
                session.timer.cancel()
            self._await_end(shard, group, member.member_id, session)
        return session

    def demand(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        why: str,
        is_owed: Callable[[ConsumerGroupMember], bool],
    ) -> None:
        """Start a member's rebalance timeout for a step, unless it is running."""
        session = group.sessions[member.member_id]
        if session.rebalance_timer is not None:
            return

        def look() -> None:
            session.rebalance_timer = None
            known = group.members.get(member.member_id)
            is_there = shard.is_open and group.sessions.get(member.member_id) is session
            if is_there and known is not None and is_owed(known):
                self._fence(shard, group, known.member_id, why)

        session.rebalance_timer = self._timers.after_ms(member.rebalance_timeout_ms, look)

    def satisfied(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel a member's rebalance timeout."""
        session = group.sessions.get(member_id)
        if session is not None and session.rebalance_timer is not None:
            session.rebalance_timer.cancel()
            session.rebalance_timer = None

    def drop_orphans(self, group: ConsumerGroup) -> None:
        """Close the sessions of removed and replaced members."""
        if len(group.sessions) <= len(group.members):
            return
        for member_id in group.sessions.keys() - group.members.keys():
            session = group.sessions.pop(member_id)
            for timer in (session.timer, session.rebalance_timer):
                if timer is not None:
                    timer.cancel()

    def _await_end(self, shard: GroupShard, group: ConsumerGroup, member_id: str, session: Session) -> None:
        def look() -> None:
            session.timer = None
            if group.sessions.get(member_id) is not session or not shard.is_open:
                return
            if session.deadline_ns > self._timers.now_ns():
                self._await_end(shard, group, member_id, session)
            else:
                self._fence(shard, group, member_id, "session expired")

        session.timer = self._timers.at_ns(session.deadline_ns, look)
