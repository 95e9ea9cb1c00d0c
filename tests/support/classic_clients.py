"""A consumer of the classic protocol, for a coordinator in one process: a member of a group of either kind."""

from __future__ import annotations

import struct
from typing import Any

from broker.coordinator.classic_group import ClassicGroup
from broker.coordinator.consumer_embedded import decode_assignment
from broker.coordinator.group import (
    Group,
    GroupProtocol,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import nullable_string_bytes, string_bytes
from tests.support.group_clients import GROUP, FakeCoordinator


def subscription_bytes(version: int, *topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """Return a ConsumerProtocolSubscription, as clients write it."""
    data = struct.pack(">hi", version, len(topics)) + b"".join(map(string_bytes, topics)) + struct.pack(">i", -1)
    if version >= 1:
        data += struct.pack(">i", len(owned or {}))
        for topic, partitions in (owned or {}).items():
            data += string_bytes(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    if version >= 2:
        data += struct.pack(">i", 7)
    return data + (nullable_string_bytes("rack") if version >= 3 else b"")


class ClassicClient:
    """A consumer of the classic protocol, of the cooperative kind: it gives up what it is told to and joins again."""

    def __init__(self, coordinator: FakeCoordinator, name: str, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, frozenset[int]] = {}
        self.joins: list[JoinResult] = []
        self.syncs: list[SyncResult] = []

    @property
    def group(self) -> Group:
        """The group as it is now."""
        return self.coordinator.shard.groups[GROUP]

    @property
    def protocol(self) -> GroupProtocol:
        """What runs the group as it is now."""
        group = self.coordinator.shard.groups.get(GROUP)
        is_classic = group is None or isinstance(group, ClassicGroup)
        return self.coordinator.classic if is_classic else self.coordinator.protocol

    def send_join(self, **fields: Any) -> None:
        """Send a JoinGroup, whose answer may come later."""
        metadata = subscription_bytes(1, "a", owned={name: sorted(each) for name, each in self.owned.items()})
        request = JoinRequest(
            self.member_id, self.instance_id, self.name, "localhost", 10_000, 20_000, "consumer",
            (("cooperative-sticky", metadata),), "", needs_member_id=False, may_skip_assignment=True,
        )._replace(**fields)  # fmt: skip
        self.protocol.join(self.coordinator.shard, self.group, request, self.joins.append)
        self.coordinator.commit()

    def joined(self, **fields: Any) -> JoinResult:
        """Send a JoinGroup and return its answer, which must be there."""
        self.joins.clear()
        self.send_join(**fields)
        return self.take_join()

    def take_join(self) -> JoinResult:
        """Take the answer to a JoinGroup."""
        result = self.joins.pop()
        if not result.error_code:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> SyncResult:
        """Send a SyncGroup; take the assignment."""
        request = SyncRequest(self.member_id, self.instance_id, self.generation, None, None, assignments or {})
        self.protocol.sync(self.coordinator.shard, self.group, request._replace(**fields), self.syncs.append)
        self.coordinator.commit()
        result = self.syncs.pop()
        if not result.error_code:
            self.owned = dict(decode_assignment(result.assignment))
        return result

    def heartbeat(self) -> int:
        """Send a Heartbeat; return its error."""
        error = self.protocol.heartbeat(
            self.coordinator.shard, self.group, self.member_id, self.instance_id, self.generation
        )
        self.coordinator.commit()
        return error

    def leave(self) -> list[int]:
        """Leave the group."""
        answers: list[list[int]] = []
        leaving = [LeavingMember(self.member_id, self.instance_id, "")]
        self.protocol.leave(self.coordinator.shard, self.group, leaving, answers.append)
        self.coordinator.commit()
        return answers[0]

    def follow(self) -> None:
        """Do what a heartbeat asks for."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS and self.joined().error_code == 0:
            self.sync()
