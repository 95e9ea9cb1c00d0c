"""Timeouts of KIP-848's consumer groups: session expiry, and rebalance timeouts of members with a pending step.

Runs in handler processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rotunda.broker.config.group_config import GROUP_CONFIGS, group_number
from rotunda.broker.coordinator.consumer.group import ConsumerGroup, Session
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.consumer.update import Environment
from rotunda.broker.coordinator.member_sessions import Fence, MemberSessions

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.coordinator.consumer.target_assignment import Topics
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timers

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


class Sessions(MemberSessions[ConsumerGroup]):
    """The sessions of the members of all consumer groups of this process."""

    def __init__(self, timers: Timers, fence: Fence[ConsumerGroup]) -> None:
        super().__init__(timers, fence, Session)

    def report(self, shard: GroupShard, group: ConsumerGroup, member: ConsumerGroupMember) -> Session:
        """Restart the session of a member that has sent a request, and return it."""
        timeout_ms = group.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        session: Session = self.restart(shard, group, member.member_id, timeout_ms)
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
