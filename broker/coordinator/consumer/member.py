"""A member of a KIP-848 consumer group, and how it gets from what it has to what it is to have, a heartbeat at a time.

Pure. A member is a value: what a heartbeat changes is another one. The invariant that everything here serves is that
no partition ever belongs to two members: a member keeps what it was given until it has reported that it no longer
owns it, and is given only what is free.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import (
    NO_PARTITIONS,
    Assignment,
    difference,
    intersection,
    is_within,
    overlaps,
    union,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class MemberState(enum.IntEnum):
    """Where a member is on its way, numbered as in Kafka's records."""

    #: It has what it is to have, as of its epoch.
    STABLE = 0
    #: It has yet to give up partitions, and stays in its epoch until it has.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that others have yet to give up.
    UNRELEASED_PARTITIONS = 2


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol has said. ``protocols``: (name, subscription), its favourite first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """What the log says of a member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    #: Pattern of topics it subscribes to besides; empty for none.
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    #: None for a member that speaks this protocol.
    classic: ClassicMetadata | None = None
    epoch: int = JOIN_EPOCH
    #: The epoch before: a member that has not heard of its present one sends it once more.
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Assignment = field(default_factory=lambda: NO_PARTITIONS)

    @property
    def held(self) -> Assignment:
        """The partitions that no other member may have: assigned, or not given up yet."""
        return union(self.assigned, self.pending_revocation) if self.pending_revocation else self.assigned

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all of its target as of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def knows_only_its_own(self, owned: Assignment | None) -> bool:
        """Return whether a report of what it owns, if there is one, names nothing that is not its own."""
        return owned is None or is_within(owned, self.held)


class Target(NamedTuple):
    """What a member is to have as of an epoch, and the topics (ids) that it subscribes to."""

    epoch: int
    assignment: Assignment
    topic_ids: frozenset[bytes]


class Report(NamedTuple):
    """What a heartbeat says: the partitions that the member owns, None if it never said; whether it subscribes anew."""

    owned: Assignment | None = None
    subscription_changed: bool = False
    #: The member takes nothing any more of what it was assigned before: it joins, and gets a new assignment.
    is_settled: bool = False

    def still_owns(self, partitions: Assignment) -> bool:
        """Return whether the member may own any of these partitions."""
        return self.owned is None or overlaps(self.owned, partitions)


#: Whether nobody holds a partition (topic id, index).
IsFree = Callable[[bytes, int], bool]


def reconcile(member: ConsumerGroupMember, target: Target, report: Report, is_free: IsFree) -> ConsumerGroupMember:
    """Return the member after one step towards its target; the same object if there is no step."""
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if report.still_owns(member.pending_revocation):
            return _give_up_unsubscribed(member, target) if report.subscription_changed else member
        # It has given up everything that it had to. Only with nothing more to give up it comes into the target's epoch.
        return _next(member, member.epoch, target, report, is_free)
    if member.state is MemberState.STABLE and member.epoch == target.epoch:
        return _give_up_unsubscribed(member, target) if report.subscription_changed else member
    return _next(member, member.epoch, target, report, is_free)


def _next(
    member: ConsumerGroupMember, epoch: int, target: Target, report: Report, is_free: IsFree
) -> ConsumerGroupMember:
    wanted = {topic: partitions for topic, partitions in target.assignment.items() if topic in target.topic_ids}
    kept = intersection(member.assigned, wanted)
    to_revoke = difference(member.assigned, kept)
    # A member that does not own them now may yet take them, as they are assigned to it: only what it sends after it
    # has got another assignment counts.
    if to_revoke and (not report.is_settled or report.still_owns(to_revoke)):
        return _moved_to(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    missing = difference(wanted, kept)
    available = {}
    held = member.held
    for topic, partitions in missing.items():
        own = held.get(topic, frozenset())
        free = [partition for partition in partitions if partition in own or is_free(topic, partition)]
        if free:
            available[topic] = partitions if len(free) == len(partitions) else frozenset(free)
    waits = available != missing
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved_to(member, target.epoch, state, union(kept, available), NO_PARTITIONS)


def _give_up_unsubscribed(member: ConsumerGroupMember, target: Target) -> ConsumerGroupMember:
    """Revoke the topics that a member no longer subscribes to, ahead of the next target."""
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic in target.topic_ids}
    dropped = difference(member.assigned, kept)
    if not dropped:
        return member
    to_revoke = union(member.pending_revocation, dropped)
    return _moved_to(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)


def _moved_to(
    member: ConsumerGroupMember, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment
) -> ConsumerGroupMember:
    previous_epoch = member.previous_epoch if epoch == member.epoch else member.epoch
    moved = replace(
        member,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )
    return member if moved == member else moved
