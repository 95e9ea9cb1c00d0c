"""The sessions of the members of classic groups: until when each is believed to be alive.

Runs in the handler that coordinates the group. A heartbeat only moves the member's deadline; the timer fires at an
old one, sees that it has moved, and is set again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.classic.member import ClassicMember
from broker.coordinator.group_shard import GroupShard

if TYPE_CHECKING:
    from broker.scheduling.timers import Timers

_NS_PER_MS = 1_000_000

#: Called when a member has been silent for too long.
Expired = Callable[[GroupShard, ClassicGroup, ClassicMember], None]


class ClassicSessions:
    """Watches the members of one handler's groups."""

    def __init__(self, timers: Timers, expired: Expired) -> None:
        self._timers = timers
        self._now_ns = timers.now_ns
        self._expired = expired

    def touch(
        self, shard: GroupShard, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Begin a member's session anew, or give it another length. HOT."""
        length_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ns = deadline_ns = self._now_ns() + length_ms * _NS_PER_MS
        timer = member.timer
        if timer is None or timer.deadline_ns > deadline_ns:
            self._watch(shard, group, member)

    def _watch(self, shard: GroupShard, group: ClassicGroup, member: ClassicMember) -> None:
        member.end_session()
        member.timer = self._timers.at_ns(member.deadline_ns, partial(self._due, shard, group, member))

    def _due(self, shard: GroupShard, group: ClassicGroup, member: ClassicMember) -> None:
        member.timer = None
        if not shard.is_open or group.members.get(member.member_id) is not member:
            return
        if member.deadline_ns > self._now_ns():
            self._watch(shard, group, member)
        elif not group.is_owed(member):
            self._expired(shard, group, member)
