"""Members of groups that call a coordinator in this process: of the classic protocol, and of KIP-848's.

A member behaves like Kafka's clients: one request at a time, partitions are revoked before others are assigned, and
owned partitions are sent when they have changed. A response that may be delayed is appended to a list.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment, intersection, overlaps
from rotunda.broker.coordinator.group import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from rotunda.broker.coordinator.group_protocol import GroupProtocol
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import decode_assignment
from rotunda.broker.protocol.primitives import nullable_string_bytes, string_bytes
from tests.support.groups.coordinator import GROUP, Coordinator, HeartbeatAnswer

SESSION_MS = 10_000
REBALANCE_MS = 60_000

Protocols = tuple[tuple[str, bytes], ...]

RANGE: Protocols = (("range", b"r"),)
BOTH: Protocols = (("range", b"r"), ("sticky", b"s"))
STICKY_FIRST: Protocols = (("sticky", b"s"), ("range", b"r"))


# ---- requests of the classic protocol --------------------------------------------------------------------------------


def runner_of(coordinator: Coordinator) -> GroupProtocol:
    """Return the runner of the group in its present state."""
    group = coordinator.shard.groups.get(GROUP)
    return coordinator.classic if group is None or isinstance(group, ClassicGroup) else coordinator.protocol


def join(
    coordinator: Coordinator,
    member_id: str = "",
    protocols: Protocols = RANGE,
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    version: int = 9,
    group_id: str = GROUP,
    **fields: Any,
) -> list[JoinResult]:
    """Send JoinGroup; the response is appended to the list."""
    answers: list[JoinResult] = []
    request = JoinRequest(
        member_id, instance_id, "client", "host", SESSION_MS, REBALANCE_MS, protocol_type, protocols, "test",
        version >= 4, version >= 9,
    )._replace(**fields)  # fmt: skip
    group = coordinator.shard.groups.get(group_id)
    if group is None:
        if member_id:
            return [JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id)]
        group = coordinator.classic.create(coordinator.shard, group_id)
    runner_of(coordinator).join(coordinator.shard, group, request, answers.append)
    return answers


def join_twice(coordinator: Coordinator, protocols: Protocols = RANGE) -> tuple[str, list[JoinResult]]:
    """Join as a new member does: first for an id, then with it. Return the id and the list for the response."""
    [first] = join(coordinator, "", protocols)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return first.member_id, join(coordinator, first.member_id, protocols)


def sync(
    coordinator: Coordinator,
    member_id: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    generation: int | None = None,
    instance_id: str | None = None,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
    **fields: Any,
) -> list[SyncResult]:
    """Request the assignment; the response is appended to the list."""
    answers: list[SyncResult] = []
    number = coordinator.group.generation if generation is None else generation
    request = SyncRequest(member_id, instance_id, number, *protocol, dict(assignments or {}))._replace(**fields)
    group = coordinator.shard.groups[GROUP]
    runner_of(coordinator).sync(coordinator.shard, group, request, answers.append)
    return answers


def heartbeat(
    coordinator: Coordinator, member_id: str, generation: int | None = None, instance_id: str | None = None
) -> int:
    """Return the error of a heartbeat."""
    number = coordinator.group.generation if generation is None else generation
    group = coordinator.shard.groups[GROUP]
    return runner_of(coordinator).heartbeat(coordinator.shard, group, member_id, instance_id, number)


def leave(coordinator: Coordinator, *members: tuple[str, str | None]) -> list[int]:
    """Remove members, with a turn; return their errors."""
    answers: list[list[int]] = []
    leaving = [LeavingMember(member_id, instance_id, "test") for member_id, instance_id in members]
    group = coordinator.shard.groups[GROUP]
    runner_of(coordinator).leave(coordinator.shard, group, leaving, answers.append)
    coordinator.run_once()
    [errors] = answers
    return errors


def stable_group(coordinator: Coordinator, members: Sequence[Protocols] = (RANGE, RANGE)) -> list[str]:
    """Bring the group to Stable with these members, the leader first; return their ids."""
    joined = [join_twice(coordinator, protocols) for protocols in members]
    coordinator.run_once()
    assert all(answers[0].error_code == 0 for _, answers in joined)
    return settle(coordinator, [member_id for member_id, _ in joined])


def settle(coordinator: Coordinator, member_ids: Sequence[str]) -> list[str]:
    """Give every member an assignment, its own id; return the ids, the leader first."""
    leader = coordinator.group.leader
    assert leader is not None
    protocol = (coordinator.group.protocol_type, coordinator.group.protocol_name)
    others = [member_id for member_id in member_ids if member_id != leader]
    answers = [sync(coordinator, member_id, protocol=protocol) for member_id in others]
    everybody = {member_id: member_id.encode() for member_id in coordinator.group.members}
    answers.append(sync(coordinator, leader, everybody, protocol=protocol))
    coordinator.run_once()
    assert [each[0].assignment for each in answers] == [each.encode() for each in (*others, leader)]
    assert coordinator.group.state_name == "Stable"
    return [leader, *others]


# ---- members ---------------------------------------------------------------------------------------------------------


def subscription_bytes(version: int, *topics: str, owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Return a ConsumerProtocolSubscription, as clients write it."""
    data = struct.pack(">hi", version, len(topics)) + b"".join(map(string_bytes, topics)) + struct.pack(">i", -1)
    if version >= 1:
        data += struct.pack(">i", len(owned or {}))
        for topic, partitions in (owned or {}).items():
            data += string_bytes(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    if version >= 2:
        data += struct.pack(">i", 7)
    return data + (nullable_string_bytes("rack") if version >= 3 else b"")


class ClassicMember:
    """A cooperative consumer of the classic protocol: it revokes partitions on request and joins again."""

    def __init__(self, coordinator: Coordinator, name: str, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, frozenset[int]] = {}
        self.joins: list[JoinResult] = []

    def send_join(self, **fields: Any) -> None:
        """Send a JoinGroup, whose response may be delayed."""
        metadata = subscription_bytes(1, "a", owned={name: sorted(each) for name, each in self.owned.items()})
        said = {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.name,
            "rebalance_timeout_ms": 20_000,
            "protocols": (("cooperative-sticky", metadata),),
            "needs_member_id": False,
        }
        self.joins = join(self.coordinator, **{**said, **fields})
        self.coordinator.run_once()

    def joined(self, **fields: Any) -> JoinResult:
        """Send a JoinGroup and return its response, which must be there."""
        self.send_join(**fields)
        return self.take_join()

    def take_join(self) -> JoinResult:
        """Apply the response to a JoinGroup."""
        result = self.joins.pop()
        if not result.error_code:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> SyncResult:
        """Send a SyncGroup; apply the assignment."""
        said = {"member_id": self.member_id, "instance_id": self.instance_id, "generation": self.generation}
        answers = sync(self.coordinator, assignments=assignments, protocol=(None, None), **{**said, **fields})
        self.coordinator.run_once()
        [result] = answers
        if not result.error_code:
            self.owned = dict(decode_assignment(result.assignment))
        return result

    def heartbeat(self) -> int:
        """Send a Heartbeat; return its error."""
        error = heartbeat(self.coordinator, self.member_id, self.generation, self.instance_id)
        self.coordinator.run_once()
        return error

    def leave(self) -> list[int]:
        """Leave the group."""
        return leave(self.coordinator, (self.member_id, self.instance_id))

    def follow(self) -> None:
        """Follow the error code of a heartbeat."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS and self.joined().error_code == 0:
            self.sync()


class ConsumerMember:
    """A consumer of KIP-848's protocol: its view, its partitions, and its one request in flight."""

    def __init__(self, member_id: str, subscription: Mapping[str, Any], instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription = dict(subscription)
        self.epoch = 0
        #: Owned partitions: no other member may own them.
        self.owned: Assignment = NO_PARTITIONS
        #: The target assignment; the member revokes first, and adds the rest with the next step.
        self.told: Assignment | None = None
        self.is_inactive = False
        self.request: dict[str, Any] | None = None
        self.errors: list[int] = []
        self._said: Assignment | None = None
        self._full = True

    def make_request(self) -> dict[str, Any]:
        """Return the next heartbeat, and have it under way."""
        assert self.request is None
        request: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        if self.instance_id is not None:
            request["instance_id"] = self.instance_id
        if self.epoch == 0 or self._full:
            request.update(self.subscription, rebalance_timeout_ms=60_000, topic_partitions=self.owned)
        elif self._said != self.owned:
            request["topic_partitions"] = self.owned
        self._said = self.owned
        self._full = False
        self.request = request
        return request

    def subscribe(self, subscription: Mapping[str, Any]) -> None:
        """Change the subscription: the next heartbeat sends it."""
        self.subscription = dict(subscription)
        self._full = True

    def take(self, response: HeartbeatAnswer) -> None:
        """Apply the response to the request in flight."""
        self.request = None
        if response.error_code:
            self.errors.append(response.error_code)
            self.epoch, self.owned, self.told, self._full = 0, NO_PARTITIONS, None, True
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = response.assignment

    def reconcile(self) -> None:
        """Reconcile by one step: revoke partitions that are not assigned any more, otherwise add new ones."""
        if self.told is None:
            return
        kept = intersection(self.owned, self.told)
        if kept != self.owned:
            self.owned = kept
        else:
            self.owned, self.told = self.told, None


def doubly_owned(members: Sequence[ConsumerMember]) -> list[tuple[str, str]]:
    """Return pairs of members that own a partition both."""
    alive = [member for member in members if not member.is_inactive]
    return [
        (left.member_id, right.member_id)
        for place, left in enumerate(alive)
        for right in alive[place + 1 :]
        if overlaps(left.owned, right.owned)
    ]
