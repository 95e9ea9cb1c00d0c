"""The updates of a share group: a member's report, the initialization of state, the assignment, the removal of members.

Pure. Each change of memory appends its record, in the same order, so that loading the log restores the same group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment, difference, union
from rotunda.broker.coordinator.consumer.target_assignment import Topics, existing, metadata_hash
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import ShareGroupMember, StatePartitions
from rotunda.broker.coordinator.share.records import (
    current_member_record,
    member_record,
    member_tombstones,
    target_member_record,
    target_record,
)
from rotunda.broker.coordinator.share.simple_assignor import Subscriber, assign

if TYPE_CHECKING:
    from rotunda.broker.coordinator.consumer.heartbeat import Client
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record

logger = logging.getLogger(__name__)

#: The start offset of a topic that is new to the group: by share.auto.offset.reset.
BY_RESET: Final = -1
_NO_INDEXES: Final = frozenset[int]()


class Initialization(NamedTuple):
    """Partitions of a topic whose state is to be initialized."""

    topic_id: bytes
    partitions: frozenset[int]
    start_offset: int


class ShareGroupUpdate:
    """Changes of one group, and their records, which are written together."""

    def __init__(self, group: ShareGroup, topics: Topics, wall_ms: int) -> None:
        self._group = group
        self._topics = topics
        self._wall_ms = wall_ms
        self.records: list[Record] = []

    def report(self, member: ShareGroupMember, request: Any, client: Client) -> ShareGroupMember:
        """Apply the fields of a valid heartbeat, and return the updated member."""
        group = self._group
        names = request.subscribed_topic_names
        updated = group.with_shared_names(
            replace(
                member,
                rack_id=member.rack_id if request.rack_id is None else request.rack_id,
                client_id=client.client_id,
                client_host=client.host,
                topic_names=member.topic_names if names is None else frozenset(names),
            )
        )
        if updated != member or member.member_id not in group.members:
            self.records.append(member_record(group.group_id, updated))
        group.members[member.member_id] = updated
        self._refresh_epoch(must_rise=updated.topic_names != member.topic_names)
        return updated

    def begin_initialization(self, retry_ms: int) -> list[Initialization]:
        """Return the partitions of subscribed topics to initialize, and record them as under initialization."""
        group = self._group
        found = []
        for topic_id, count in sorted(existing(self._topics, group.topic_names()).items()):
            if topic_id in group.deleting:
                continue
            since_ms = group.initializing_since_ms.get(topic_id)
            is_under_way = since_ms is not None and 0 <= self._wall_ms - since_ms < retry_ms
            known = group.initialized.get(topic_id)
            missing = frozenset(range(count)) - (known.partitions if known is not None else _NO_INDEXES)
            if is_under_way and topic_id in group.initializing:
                missing -= group.initializing[topic_id].partitions
            if missing:
                found.append(Initialization(topic_id, missing, BY_RESET if known is None else 0))
                _add(group.initializing, topic_id, self._name_of(topic_id), missing)
                if not is_under_way:
                    group.initializing_since_ms[topic_id] = self._wall_ms
        if found:
            self.records.append(group.state_record())
        return found

    def begin_reset(self, topic_id: bytes, partitions: Iterable[int]) -> None:
        """Record partitions as under initialization, whether they are initialized already or not."""
        group = self._group
        _add(group.initializing, topic_id, self._name_of(topic_id), frozenset(partitions))
        group.initializing_since_ms[topic_id] = self._wall_ms
        self.records.append(group.state_record())

    def initialized(self, topic_id: bytes, partitions: Iterable[int]) -> None:
        """Record partitions as initialized."""
        group, done = self._group, frozenset(partitions)
        known = group.initializing.pop(topic_id, None)
        if known is None:
            return
        _add(group.initialized, topic_id, known.topic_name, done)
        if known.partitions - done:
            group.initializing[topic_id] = known._replace(partitions=known.partitions - done)
        else:
            group.initializing_since_ms.pop(topic_id, None)
        self.records.append(group.state_record())
        group.is_stale = True

    def begin_deletion(self, topic_ids: Iterable[bytes]) -> None:
        """Record topics of the group as under deletion of their state."""
        group = self._group
        for topic_id in topic_ids:
            known = group.initializing.pop(topic_id, None) or group.initialized.get(topic_id)
            group.initialized.pop(topic_id, None)
            group.initializing_since_ms.pop(topic_id, None)
            if known is not None:
                group.deleting[topic_id] = known.topic_name
        self.records.append(group.state_record())
        group.is_stale = True

    def deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Record the deletion of the state of topics."""
        for topic_id in topic_ids:
            self._group.deleting.pop(topic_id, None)
        self.records.append(self._group.state_record())
        self._group.is_stale = True

    def move(self, member: ShareGroupMember) -> ShareGroupMember:
        """Compute a due target assignment, and return the member with its target."""
        group = self._group
        self._refresh_epoch(must_rise=False)
        if group.is_to_be_assigned(self._wall_ms):
            self._make_target()
        subscribed = existing(self._topics, member.topic_names)
        target = group.target.get(member.member_id, NO_PARTITIONS)
        assigned = {topic_id: indexes for topic_id, indexes in target.items() if topic_id in subscribed}
        moved = member
        if member.epoch != group.assignment_epoch:
            moved = replace(member, epoch=group.assignment_epoch, previous_epoch=member.epoch, assigned=assigned)
        elif member.assigned != assigned:
            moved = replace(member, assigned=assigned)
        if moved is not member:
            group.members[member.member_id] = moved
            self.records.append(current_member_record(group.group_id, moved))
        return moved

    def remove(self, member_id: str) -> None:
        """Remove a member and raise the epoch."""
        group = self._group
        self.records += member_tombstones(group.group_id, member_id)
        group.remove_member(member_id)
        group.metadata_hash = metadata_hash(existing(self._topics, group.topic_names()))
        self.records.append(group.raise_epoch())
        if not group.members:
            group.assignment_epoch, group.assigned_wall_ms = group.epoch, 0
            self.records.append(target_record(group.group_id, group.epoch, 0))

    def commit(self, shard: GroupShard, done: Done) -> None:
        """Write the changes; ``done`` is called after the commit of these and all earlier records."""
        self._group.commit(shard, self.records, done)

    def _refresh_epoch(self, *, must_rise: bool) -> None:
        """Raise the epoch if required, if topics have changed, or if initialized partitions wait for an assignment."""
        group = self._group
        if not (must_rise or group.is_stale):
            return
        group.is_stale = False
        counts = existing(self._topics, group.topic_names())
        found = metadata_hash(counts)
        if must_rise or found != group.metadata_hash or difference(self._assignable(counts), _all(group.target)):
            group.metadata_hash = found
            self.records.append(group.raise_epoch())

    def _make_target(self) -> None:
        """Compute the target of every member, and record the changed ones."""
        group = self._group
        # Members with equal subscriptions share one set of ids.
        topic_ids = {
            names: frozenset(existing(self._topics, names))
            for names in {member.topic_names for member in group.members.values()}
        }
        subscribers = [
            Subscriber(member_id, topic_ids[member.topic_names], group.target.get(member_id, NO_PARTITIONS))
            for member_id, member in group.members.items()
        ]
        target = assign(subscribers, self._assignable(existing(self._topics, group.topic_names())))
        for member_id, assignment in target.items():
            if group.target.get(member_id) != assignment:
                self.records.append(target_member_record(group.group_id, member_id, assignment))
        group.target = target
        group.assignment_epoch = group.epoch
        group.assigned_wall_ms = self._wall_ms
        self.records.append(target_record(group.group_id, group.epoch, self._wall_ms))
        logger.debug("share group %s: assigned for epoch %d", group.group_id, group.epoch)

    def _assignable(self, counts: Mapping[bytes, int]) -> Assignment:
        """Return the initialized partitions of existing topics, given their partition counts."""
        known = self._group.initialized
        return {topic_id: known[topic_id].partitions for topic_id in counts if topic_id in known}

    def _name_of(self, topic_id: bytes) -> str:
        topic = self._topics.topic_by_id(topic_id)
        return "" if topic is None else topic.name


def _add(topics: dict[bytes, StatePartitions], topic_id: bytes, name: str, partitions: frozenset[int]) -> None:
    known = topics.get(topic_id)
    topics[topic_id] = StatePartitions(name, partitions if known is None else known.partitions | partitions)


def _all(target: Mapping[str, Assignment]) -> Assignment:
    found: Assignment = NO_PARTITIONS
    for assignment in target.values():
        found = union(found, assignment)
    return found
