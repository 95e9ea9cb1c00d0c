"""A KIP-848 consumer group: its members, their target assignments, and the current holder of each partition.

Pure; owned by the coordinator of its partition of `__consumer_offsets`. It has the group's state from the log and the
state derived from it: the member of each instance id, the holder of each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment, difference
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.consumer.records import (
    GROUP_METADATA,
    ResolvedRegex,
    current_member_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_member_record,
    target_record,
)
from rotunda.broker.coordinator.group import CONSUMER, CONSUMER_PROTOCOL_TYPE
from rotunda.broker.coordinator.group_memory import MEMBER_BYTES, protocols_bytes, texts_bytes
from rotunda.broker.coordinator.member_sessions import MemberSession
from rotunda.broker.coordinator.modern_group import ModernGroup
from rotunda.broker.coordinator.records import Record
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.scheduling.timers import Timer

#: The first version of OffsetCommit with the member epoch.
_FIRST_COMMIT_WITH_EPOCH: Final = 9

#: (names, pattern): the subscription of a member.
Subscription = tuple[frozenset[str], str]


@dataclass(slots=True)
class Session(MemberSession):
    """The session of a member of a consumer group."""

    #: Runs while a step of the member is due: to revoke partitions, to rejoin, to request its assignment.
    rebalance_timer: Timer | None = None
    #: The owned partitions last reported by the member, valid until the next report; None if never reported.
    reported: Assignment | None = None
    #: False for the first request after a load: a predecessor may have responded to it already, so its owned partitions
    #: may predate that response, and this coordinator's response may be lost.
    is_confirmed: bool = True
    #: Then the next response repeats the member's assignment.
    must_send_assignment: bool = False

    def cancel(self) -> None:
        for timer in (self.timer, self.rebalance_timer):
            if timer is not None:
                timer.cancel()


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """One group; see `Group` for the common interface."""

    kind: Final = CONSUMER
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE
    expires: Final = True
    metadata_type = GROUP_METADATA

    def __init__(self, group_id: str) -> None:
        # As in Kafka: the first change of a group, which is its first member, sets the epoch to 2.
        super().__init__(group_id, epoch=1)
        #: Time of the current assignment; None if unknown, as after a load.
        self.assigned_wall_ms: int | None = None
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        self.sessions: dict[str, Session] = {}
        #: The epoch as of its last event.
        self.published_epoch = self.epoch
        #: Start of the current rebalance, on the wall clock; None if there is none, or if unknown.
        self.rebalance_began_ms: int | None = None
        self._holders: dict[tuple[bytes, int], str] = {}

    # ---- the interface of groups ---------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> int:
        """Return the error of a commit by a member in its epoch, or by no member.

        Without a member, commits are valid in a transaction, as from older producers, or while the group is empty.
        """
        if generation < 0 and not self.members:
            return 0
        if transactional and generation == -1 and not member_id and instance_id is None:
            return 0
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and api_version < _FIRST_COMMIT_WITH_EPOCH:
            return ErrorCode.UNSUPPORTED_VERSION
        return _epoch_error(member, generation)

    def had_partitions(self, member_id: str, epoch: int, partitions: Iterable[tuple[bytes, int]]) -> bool:
        """Return whether a member holds all of these since an epoch older than its own or before (KIP-1251)."""
        member = self.members.get(member_id)
        if member is None or epoch > member.epoch:
            return False
        return all(member.had(topic_id, partition, epoch) for topic_id, partition in partitions)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> int:
        """Return the error of an OffsetFetch by a member in its epoch, or by no member."""
        if not member_id and epoch < 0:
            return 0
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _epoch_error(member, epoch)

    def validate_offset_delete(self) -> int:
        """Return 0: offsets of topics without subscribers may be deleted."""
        return 0

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, by name or pattern."""
        return any(
            topic in names or (regex in self.regexes and topic in self.regexes[regex].topic_names)
            for names, regex in self.subscriptions()
        )

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group, those of its parts first: they would create it again."""
        records: list[Record] = []
        for member_id in self.members:
            records += member_tombstones(self.group_id, member_id)
        records += [regex_tombstone(self.group_id, regex) for regex in self.regexes]
        return records + group_tombstones(self.group_id)

    def records(self) -> list[Record]:
        records = [self.epoch_record()]
        for member_id, member in self.members.items():
            records.append(member_record(self.group_id, member))
            records.append(target_member_record(self.group_id, member_id, self.target.get(member_id, NO_PARTITIONS)))
            records.append(current_member_record(self.group_id, member))
        records += [regex_record(self.group_id, regex, resolved) for regex, resolved in self.regexes.items()]
        records.append(target_record(self.group_id, self.assignment_epoch))
        return records

    # ---- members and their partitions ----------------------------------------------------------------------------

    def put_member(self, member: ConsumerGroupMember) -> None:
        known = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if known is not None:
            if known.held == member.held:
                return
            self._release(known)
        for topic_id, partitions in member.held.items():
            for partition in partitions:
                self._holders[topic_id, partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.target.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def replace_static_member(self, old: ConsumerGroupMember, member_id: str) -> list[Record]:
        """Replace a static member that left temporarily by one with another id; return the records."""
        records = member_tombstones(self.group_id, old.member_id)
        target = self.target.get(old.member_id, NO_PARTITIONS)
        self.remove_member(old.member_id)
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self.put_member(member)
        self.target[member_id] = target
        records.append(member_record(self.group_id, member))
        records.append(target_member_record(self.group_id, member_id, target))
        records.append(current_member_record(self.group_id, member))
        return records

    def sizes(self) -> Iterator[int]:
        for each in list(self.members.values()):
            texts = (each.member_id, each.instance_id or "", each.rack_id or "", each.client_id, each.topic_regex)
            classic_bytes = 0 if each.classic is None else protocols_bytes(each.classic.protocols)
            yield MEMBER_BYTES + texts_bytes(texts) + texts_bytes(each.topic_names) + classic_bytes

    def is_to_be_assigned(self, wall_ms: int) -> bool:
        """Return whether a new assignment is due: the epoch has risen and the interval has passed."""
        if self.epoch <= self.assignment_epoch:
            return False
        if self.assigned_wall_ms is None or not self.assignment_interval_ms:
            return True
        return wall_ms >= self.assigned_wall_ms + self.assignment_interval_ms

    def must_rejoin(self, member: ConsumerGroupMember, wall_ms: int) -> bool:
        """Return whether an assignment newer than the member's exists or is due."""
        return member.epoch < self.assignment_epoch or self.is_to_be_assigned(wall_ms)

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) not in self._holders

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return whether other members hold partitions of a member's target."""
        missing = difference(self.target.get(member.member_id, NO_PARTITIONS), member.assigned)
        return any(
            not self.is_free(topic_id, partition)
            for topic_id, partitions in missing.items()
            for partition in partitions
        )

    def rebuild_derived_state(self) -> None:
        """Rebuild the state derived from the records after loading."""
        members, self.members = self.members, {}
        self._holders.clear()
        self.static_members.clear()
        for member in members.values():
            self.put_member(self.with_shared_names(member))
        self.is_stale = True

    # ---- subscriptions -------------------------------------------------------------------------------------------

    def subscriptions(self) -> set[Subscription]:
        return {(member.topic_names, member.topic_regex) for member in self.members.values()}

    def patterns(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    def topic_names(self, subscription: Subscription) -> frozenset[str]:
        """Return the topic names of a subscription, including those of its pattern."""
        names, regex = subscription
        resolved = self.regexes.get(regex)
        return names if resolved is None else names | resolved.topic_names

    def _release(self, member: ConsumerGroupMember) -> None:
        for topic_id, partitions in member.held.items():
            for partition in partitions:
                if self._holders.get((topic_id, partition)) == member.member_id:
                    del self._holders[topic_id, partition]


def _epoch_error(member: ConsumerGroupMember, epoch: int) -> int:
    if epoch == member.epoch:
        return 0
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
