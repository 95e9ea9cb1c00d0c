"""A member of a classic group: what it said when it joined, what it was given, and until when it is believed alive.

Pure; changed by its group and by the protocol that runs the group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.coordinator.group import JoinRequest
from broker.coordinator.group_records import MemberRecord

if TYPE_CHECKING:
    from broker.scheduling.timers import Timer


class ClassicMember:
    """One member. ``deadline_ns`` is when its session ends; ``timer`` may fire earlier and then looks again."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ns",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer",
    )

    def __init__(self, record: MemberRecord, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.member_id = record.member_id
        self.instance_id = record.instance_id
        self.client_id = record.client_id
        self.client_host = record.client_host
        self.rebalance_timeout_ms = record.rebalance_timeout_ms
        self.session_timeout_ms = record.session_timeout_ms
        self.assignment = record.assignment
        self.protocols = protocols
        #: It has no answer yet that it is a member, so its session may end although it waits to join.
        self.is_new = False
        self.deadline_ns = 0
        self.timer: Timer | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> ClassicMember:
        """Return the member that a request makes."""
        record = MemberRecord(
            member_id, request.instance_id, request.client_id, request.client_host, request.rebalance_timeout_ms,
            request.session_timeout_ms, b"", b"",
        )  # fmt: skip
        member = cls(record, request.protocols)
        member.is_new = True
        return member

    def renamed(self, member_id: str) -> ClassicMember:
        """Return the same member under another id, as a static member that has come back."""
        return ClassicMember(self.record(None, self.assignment)._replace(member_id=member_id), self.protocols)

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

    def record(self, protocol_name: str | None, assignment: bytes) -> MemberRecord:
        """Return the member as the group's record has it."""
        return MemberRecord(
            self.member_id, self.instance_id, self.client_id, self.client_host, self.rebalance_timeout_ms,
            self.session_timeout_ms, self.metadata(protocol_name), assignment,
        )  # fmt: skip

    def end_session(self) -> None:
        """Let no timer remind of it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
