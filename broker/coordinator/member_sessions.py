"""The sessions of members that send heartbeats to a coordinator: their deadlines, and the removal of silent members.

Runs in handler processes, for consumer groups (KIP-848) and share groups. Heartbeats do not reset a session's timer: it
checks the deadline when it fires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timer, Timers

_NS_PER_MS: Final = 1_000_000


@dataclass(slots=True)
class MemberSession:
    """A coordinator's state of a member that is not in the log. It is created again after a load."""

    deadline_ns: int
    timer: Timer | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class GroupWithSessions(Protocol):
    """The required properties of a group."""

    session_timeout_ms: int

    @property
    def sessions(self) -> dict[str, Any]:
        """The sessions by member id."""

    @property
    def members(self) -> dict[str, Any]:
        """The members by id."""


GroupT = TypeVar("GroupT", bound=GroupWithSessions)

#: Removes a member and continues the group: (partition, group, member id, why).
Fence = Callable[["GroupShard", GroupT, str, str], None]


class MemberSessions(Generic[GroupT]):
    """The sessions of the members of all groups of one kind in this process."""

    def __init__(
        self, timers: Timers, fence: Fence[GroupT], session_class: Callable[[int], MemberSession] = MemberSession
    ) -> None:
        self._timers = timers
        self._fence = fence
        self._session_class = session_class

    def extend(self, group: GroupT, session: MemberSession) -> None:
        """Restart the session of a member with the group's timeout. HOT."""
        session.deadline_ns = self._timers.now_ns() + group.session_timeout_ms * _NS_PER_MS

    def restart(self, shard: GroupShard, group: GroupT, member_id: str, timeout_ms: int) -> Any:
        """Restart the session of a member that has sent a request, and return it."""
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = self._session_class(0)
        session.deadline_ns = self._timers.now_ns() + timeout_ms * _NS_PER_MS
        # After a change of protocol, the deadline may be before the timer's.
        if session.timer is None or session.timer.deadline_ns > session.deadline_ns:
            if session.timer is not None:
                session.timer.cancel()
            self._await_end(shard, group, member_id, session)
        return session

    def drop_orphans(self, group: GroupT) -> None:
        """Close the sessions of removed and replaced members."""
        if len(group.sessions) <= len(group.members):
            return
        for member_id in group.sessions.keys() - group.members.keys():
            group.sessions.pop(member_id).cancel()

    def _await_end(self, shard: GroupShard, group: GroupT, member_id: str, session: MemberSession) -> None:
        def look() -> None:
            session.timer = None
            if group.sessions.get(member_id) is not session or not shard.is_open:
                return
            if session.deadline_ns > self._timers.now_ns():
                self._await_end(shard, group, member_id, session)
            else:
                self._fence(shard, group, member_id, "session expired")

        session.timer = self._timers.at_ns(session.deadline_ns, look)
