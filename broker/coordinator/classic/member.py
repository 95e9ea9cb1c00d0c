"""A member of a classic group: what it said when it joined, what it was given, and until when it is believed alive.

Pure; changed by its group and by the protocol that runs the group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from broker.coordinator.group import JoinRequest

if TYPE_CHECKING:
    from broker.scheduling.timers import Timer


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member. ``deadline_ns`` is when its session ends; ``timer`` may fire earlier and then looks again."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    #: It has no answer yet that it is a member, so its session may end although it waits to join.
    is_new: bool = False
    deadline_ns: int = 0
    timer: Timer | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> ClassicMember:
        """Return the member that a request makes."""
        return cls(
            member_id, request.instance_id, request.client_id, request.client_host, request.rebalance_timeout_ms,
            request.session_timeout_ms, request.protocols, is_new=True,
        )  # fmt: skip

    @classmethod
    def from_record(cls, member: Any, protocol_name: str) -> ClassicMember:
        """Return a member of a GroupMetadataValue. Version 0 has no rebalance timeout."""
        timeout_ms = member.session_timeout
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            timeout_ms if member.rebalance_timeout < 0 else member.rebalance_timeout,
            timeout_ms,
            ((protocol_name, member.subscription),),
            member.assignment,
        )

    def renamed(self, member_id: str) -> ClassicMember:
        """Return the same member under another id, as a static member that has come back."""
        return replace(self, member_id=member_id, is_new=False, deadline_ns=0, timer=None)

    def vote(self, candidates: Collection[str]) -> str | None:
        """Return its favourite among some protocols."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what it said for a protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def record(self, protocol_name: str | None, assignment: bytes) -> dict[str, Any]:
        """Return the member as it is in a GroupMetadataValue."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "session_timeout": self.session_timeout_ms,
            "subscription": self.metadata(protocol_name),
            "assignment": assignment,
        }

    def end_session(self) -> None:
        """Let no timer remind of it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
