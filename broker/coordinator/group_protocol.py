"""The interface of what runs the groups of one kind.

Used by the coordinator of groups and by the functions that answer requests. Errors are Kafka's codes as numbers, 0 for
none: these questions are asked for every commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import (
        Group,
        JoinAnswer,
        JoinRequest,
        LeaveAnswer,
        LeavingMember,
        SyncAnswer,
        SyncRequest,
    )
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.offsets.commits import Committer


class GroupProtocol(Protocol):
    """What runs the groups of one kind. The last four are what members of the classic protocol ask of them."""

    def loaded(self, shard: GroupShard, group: Group) -> None:
        """Take up a group, one of this kind, of a partition that has been read back. Nothing can be appended yet."""

    def closed(self, shard: GroupShard, group: Group) -> None:
        """Let go of a group, one of this kind, of a partition that is closed; who waits gets NOT_COORDINATOR."""

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Take note that topics or settings have changed."""

    def join(self, shard: GroupShard, group: Group, request: JoinRequest, answer: JoinAnswer) -> None:
        """Let a member join; the answer may come much later."""

    def sync(self, shard: GroupShard, group: Group, request: SyncRequest, answer: SyncAnswer) -> None:
        """Give a member its assignment; the answer comes with the leader's."""

    def heartbeat(
        self, shard: GroupShard, group: Group, member_id: str, instance_id: str | None, generation: int
    ) -> int:
        """Return the error of a member's heartbeat."""

    def leave(self, shard: GroupShard, group: Group, members: Sequence[LeavingMember], answer: LeaveAnswer) -> None:
        """Remove members; answered with an error for each."""

    def committed(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """Take note that a member has committed offsets, which may stand for a heartbeat."""

    def may_commit_again(self, shard: GroupShard, group: Group, committer: Committer) -> bool:
        """Take note that a member commits as it did before, which may stand for a heartbeat; False if it may not."""
