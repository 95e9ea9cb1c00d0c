"""A share group: its members, their target assignment, and the partitions whose state exists.

Pure; owned by the coordinator of its partition of `__consumer_offsets`. Only partitions whose state is initialized in
`__share_group_state` are assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS
from rotunda.broker.coordinator.group import SHARE
from rotunda.broker.coordinator.group_memory import MEMBER_BYTES, texts_bytes
from rotunda.broker.coordinator.member_sessions import MemberSession
from rotunda.broker.coordinator.modern_group import ModernGroup
from rotunda.broker.coordinator.records import Record
from rotunda.broker.coordinator.share.member import ShareGroupMember, StatePartitions
from rotunda.broker.coordinator.share.records import (
    GROUP_METADATA,
    group_tombstones,
    member_tombstones,
    state_partitions_record,
)
from rotunda.broker.protocol.error_codes import ErrorCode

#: Memory of a partition in a set.
_PARTITION_BYTES: Final = 64

#: The first version of TxnOffsetCommit with the errors of groups of another kind.
_FIRST_TXN_COMMIT_BY_KIND: Final = 6


class ShareGroup(ModernGroup[ShareGroupMember]):
    """One group; see `Group` for the common interface."""

    kind: Final = SHARE
    protocol_type: Final = SHARE
    expires: Final = False
    metadata_type = GROUP_METADATA

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, epoch=0)
        #: Time of the current assignment, on the wall clock; 0 if there is none.
        self.assigned_wall_ms = 0
        #: By topic id: the partitions whose state is initialized, and those under initialization.
        self.initialized: dict[bytes, StatePartitions] = {}
        self.initializing: dict[bytes, StatePartitions] = {}
        #: By topic id: the names of the topics whose state is being deleted.
        self.deleting: dict[bytes, str] = {}
        self.sessions: dict[str, MemberSession] = {}
        #: By topic id: when the initialization under way began, in ms of the wall clock.
        self.initializing_since_ms: dict[bytes, int] = {}
        #: Heartbeats that wait for an initialization.
        self.waiting: list[Callable[[], None]] = []

    # ---- the interface of groups ---------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> int:
        """Return the error of any commit: a share group has no committed offsets."""
        del member_id, instance_id, generation
        if transactional and api_version < _FIRST_TXN_COMMIT_BY_KIND:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> int:
        del member_id, epoch
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_delete(self) -> int:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group, those of its parts first: they would create it again."""
        members = [record for member_id in self.members for record in member_tombstones(self.group_id, member_id)]
        return members + group_tombstones(self.group_id)

    def state_record(self) -> Record:
        return state_partitions_record(self.group_id, self.initializing, self.initialized, self.deleting)

    def sizes(self) -> Iterator[int]:
        """Yield the memory of each member and topic in bytes."""
        for member in self.members.values():
            partitions = sum(map(len, member.assigned.values())) + sum(
                map(len, self.target.get(member.member_id, NO_PARTITIONS).values())
            )
            yield MEMBER_BYTES + texts_bytes(member.topic_names) + _PARTITION_BYTES * partitions
        for topics in (self.initialized, self.initializing):
            for state in topics.values():
                yield texts_bytes((state.topic_name,)) + _PARTITION_BYTES * len(state.partitions)

    # ---- members -------------------------------------------------------------------------------------------------

    def remove_member(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.target.pop(member_id, None)

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics that members subscribe to."""
        return frozenset[str]().union(*{member.topic_names for member in self.members.values()})

    def has_state(self, topic_id: bytes) -> bool:
        """Return whether there is state of a topic, also if it is under initialization or deletion."""
        return topic_id in self.initialized or topic_id in self.initializing or topic_id in self.deleting

    def is_to_be_assigned(self, now_wall_ms: int) -> bool:
        """Return whether a new target assignment is due."""
        if self.epoch <= self.assignment_epoch:
            return False
        elapsed_ms = now_wall_ms - self.assigned_wall_ms
        return not self.assigned_wall_ms or elapsed_ms < 0 or elapsed_ms >= self.assignment_interval_ms

    def wake(self) -> None:
        """Continue the heartbeats that wait for initializations, after the last one."""
        if self.initializing_since_ms:
            return
        self.wake_all()

    def wake_all(self) -> None:
        """Continue all waiting heartbeats."""
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()
