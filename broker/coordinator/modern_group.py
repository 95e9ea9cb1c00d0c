"""The common state of consumer groups (KIP-848) and share groups (KIP-932): Kafka calls both modern groups.

Pure; owned by the coordinator of their partition of `__consumer_offsets`. ``epoch`` rises when a new target assignment
is required; ``assignment_epoch`` is the epoch of the current one. Must not know the fields of a member besides its
topics, nor how a kind assigns partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from rotunda.broker.coordinator.consumer.assignment import Assignment, recorded_assignment
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from dataclasses import Field

    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record, RecordType


class ModernMember(Protocol):
    """The common properties of members."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def topic_names(self) -> frozenset[str]:
        """The topics that it subscribes to by name."""


MemberT = TypeVar("MemberT", bound=ModernMember)


class ModernGroup(Generic[MemberT]):
    """One group; see `Group` for the interface common to all kinds."""

    #: The record of the epoch and the hash of the topics.
    metadata_type: ClassVar[RecordType]

    def __init__(self, group_id: str, epoch: int) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.assignment_epoch = 0
        #: The hash of the topics at this epoch; 0 for none.
        self.metadata_hash = 0
        self.members: dict[str, MemberT] = {}
        self.target: dict[str, Assignment] = {}
        #: Topics, settings or initialized partitions may have changed since the last check.
        self.is_stale = False
        #: Number of uncommitted changes: responses must not show them before their commit.
        self.uncommitted = 0
        self.heartbeat_interval_ms = 0
        self.session_timeout_ms = 0
        self.assignment_interval_ms = 0

    @property
    def generation(self) -> int:
        """The epoch, under the name common to all kinds of group."""
        return self.epoch

    @property
    def is_empty(self) -> bool:
        return not self.members

    def validate_delete(self) -> int:
        return ErrorCode.NON_EMPTY_GROUP if self.members else 0

    def retained_since_ms(self, commit_ms: int) -> int | None:
        """Return the start of an offset's retention: its commit. Offsets of subscribed topics never expire."""
        return commit_ms

    def with_shared_names(self, member: MemberT) -> MemberT:
        """Return a member that shares its set of names with another member, if the sets are equal.

        A subscription to thousands of topics is then stored, hashed and compared once for all members that have it.
        """
        names = member.topic_names
        shared = next((each.topic_names for each in self.members.values() if each.topic_names == names), names)
        return member if shared is names else replace(member, topic_names=shared)

    def epoch_record(self) -> Record:
        value = {"epoch": self.epoch, "metadata_hash": self.metadata_hash}
        return self.metadata_type.key(group_id=self.group_id), self.metadata_type.value(0, value)

    def raise_epoch(self) -> Record:
        self.epoch += 1
        return self.epoch_record()

    def commit(self, shard: GroupShard, records: Sequence[Record], done: Done) -> None:
        """Write records; ``done`` is called after the commit of these and all earlier ones."""
        if not records:
            # Earlier changes may be uncommitted; changes of other groups are not waited for.
            if self.uncommitted:
                shard.when_committed(done)
            else:
                done(0)
            return
        self.uncommitted += 1

        def committed(error: int) -> None:
            self.uncommitted -= 1
            done(error)

        shard.append(records, committed)


def apply_epoch(group: ModernGroup[Any], key: Any, value: Any) -> None:
    """Apply the record of the epoch when a partition is loaded. It is deleted together with its group."""
    del key
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def apply_target_member(group: ModernGroup[Any], key: Any, value: Any) -> None:
    """Apply the record of a member's target assignment when a partition is loaded."""
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = recorded_assignment(value.topic_partitions)
