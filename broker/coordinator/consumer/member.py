"""A member of a KIP-848 consumer group, and its reconciliation with its target assignment, one step per heartbeat.

Pure. A member is an immutable value: a heartbeat creates an updated one. Invariant: a partition never belongs to two
members. A member retains its partitions until it has reported that it no longer owns them, and is assigned only free
ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
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
    """The reconciliation state of a member, numbered as in Kafka's records."""

    #: It has its target assignment as of its epoch.
    STABLE = 0
    #: It still has to revoke partitions, and stays in its epoch until then.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that other members still have to revoke.
    UNRELEASED_PARTITIONS = 2


class ClassicMetadata(NamedTuple):
    """The fields of a classic member. ``protocols``: (name, subscription) in its order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class AssignedSince(NamedTuple):
    """The held partitions that a member was assigned at one epoch (KIP-1251)."""

    epoch: int
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """The state of a member in the log."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    #: Topic pattern it also subscribes to; empty for none.
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    #: None for a member of the KIP-848 protocol.
    classic: ClassicMetadata | None = None
    epoch: int = JOIN_EPOCH
    #: The previous epoch: a member that did not receive its current one sends it again.
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    #: The held partitions by the epoch of their assignment, in order of epochs.
    assigned_since: tuple[AssignedSince, ...] = ()

    @property
    def held(self) -> Assignment:
        """The partitions reserved for this member: assigned, or not revoked yet."""
        return union(self.assigned, self.pending_revocation) if self.pending_revocation else self.assigned

    def had(self, topic_id: bytes, partition: int, epoch: int) -> bool:
        """Return whether it holds a partition that was already assigned to it at this epoch."""
        return any(
            since.epoch <= epoch and partition in since.partitions.get(topic_id, ()) for since in self.assigned_since
        )

    def epochs_of(self, topic_id: bytes, partitions: Sequence[int]) -> Sequence[int]:
        """Return the epoch at which each held partition of a topic was assigned."""
        if len(self.assigned_since) == 1:
            return (self.assigned_since[0].epoch,) * len(partitions)
        epochs = {
            partition: since.epoch for since in self.assigned_since for partition in since.partitions.get(topic_id, ())
        }
        return [epochs[partition] for partition in partitions]

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all of its target as of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def knows_only_its_own(self, owned: Assignment | None) -> bool:
        """Return whether its report of owned partitions, if any, lists only its own."""
        return owned is None or is_within(owned, self.held)


class Target(NamedTuple):
    """The target assignment of a member as of an epoch, and the ids of its subscribed topics."""

    epoch: int
    assignment: Assignment
    topic_ids: frozenset[bytes]


class Report(NamedTuple):
    """The report in a heartbeat: the owned partitions, None if never reported; whether the subscription changed."""

    owned: Assignment | None = None
    subscription_changed: bool = False
    #: The member has dropped its previous assignment: it joins, and gets a new one.
    is_settled: bool = False

    def still_owns(self, partitions: Assignment) -> bool:
        """Return whether the member may own any of these partitions."""
        return self.owned is None or overlaps(self.owned, partitions)


#: Whether no member holds a partition (topic id, index).
IsFree = Callable[[bytes, int], bool]


def reconcile(member: ConsumerGroupMember, target: Target, report: Report, is_free: IsFree) -> ConsumerGroupMember:
    """Return the member after one step towards its target; the same object if there is no step."""
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if report.still_owns(member.pending_revocation):
            return _give_up_unsubscribed(member, target) if report.subscription_changed else member
        # It has revoked all pending partitions. It enters the target's epoch only with no further ones to revoke.
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
    # A member that does not own these partitions now may still take them, as they are assigned to it: only a report
    # sent after another assignment counts.
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
        assigned_since=since_after(member, epoch, assigned, pending),
    )
    return member if moved == member else moved


def since_after(
    member: ConsumerGroupMember, epoch: int, assigned: Assignment, pending: Assignment
) -> tuple[AssignedSince, ...]:
    """Return the epochs of a member's partitions after a step: a partition that it revoked and gets again is new."""
    kept = union(intersection(assigned, member.assigned), pending)
    layers = [(since, intersection(since.partitions, kept)) for since in member.assigned_since]
    epochs = {since.epoch: partitions for since, partitions in layers if partitions}
    if new := difference(assigned, kept):
        epochs[epoch] = union(epochs.get(epoch, NO_PARTITIONS), new)
    return tuple(AssignedSince(each, epochs[each]) for each in sorted(epochs))
