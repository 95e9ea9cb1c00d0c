"""The interface of a group protocol, which runs the groups of one kind.

Used by the group coordinator and by the APIs. Errors are Kafka's codes as numbers, 0 for none: they are checked for
every commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import (
        Committer,
        Group,
        JoinRequest,
        JoinResponse,
        LeaveResponse,
        LeavingMember,
        SyncRequest,
        SyncResponse,
    )
    from rotunda.broker.coordinator.group_shard import GroupShard


class GroupProtocol(Protocol):
    """Runs the groups of one kind. ``join``, ``sync``, ``heartbeat`` and ``leave`` serve classic members."""

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Start a group of this kind after its partition was loaded. Nothing can be appended yet."""

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Release a group of this kind when its partition is closed; parked requests get NOT_COORDINATOR."""

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Handle a change of topics or settings."""

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, respond: JoinResponse) -> None:
        """Handle a JoinGroup; the response may be sent much later."""

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, respond: SyncResponse) -> None:
        """Handle a SyncGroup; the response is sent when the leader's assignment exists."""

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        """Return the error of a member's heartbeat."""

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], respond: LeaveResponse) -> None:
        """Remove members; the response has an error for each."""

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Record that a member has committed offsets, which may count as a heartbeat."""

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        """Record that a member repeats a commit, which may count as a heartbeat; False if the commit is invalid."""
