"""The committed offsets of one partition of `__consumer_offsets`, and those of open transactions.

Pure: offsets here are in the log already, or will be with this loop pass's commit. An offset in a transaction is
pending until the transaction ends; then it is applied, unless a newer one has been committed meanwhile. Members commit
the same partitions far more often than offsets are read, so repeated commits are only noted, and applied before the
group is next read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.steps import Steps

NO_EXPIRY: Final = -1


class CommittedOffset(NamedTuple):
    """A group's committed offset of one partition. Only old clients set ``expire_ms``."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_TOPIC_ID


class CommitPartition(NamedTuple):
    """A partition of repeated commits, with their constant fields."""

    topic: str
    partition: int
    leader_epoch: int
    metadata: str
    topic_id: bytes


class CommitPartitions:
    """The partitions of one member's commit, in the order of the request, and its latest noted commit."""

    __slots__ = ("commit_ms", "group_id", "number", "offsets", "parts")

    def __init__(self, group_id: str, parts: Sequence[CommitPartition]) -> None:
        self.group_id = group_id
        self.parts = parts
        #: The offset of each partition, the commit time and the write number, until they are applied.
        self.offsets: Sequence[int] | None = None
        self.commit_ms = 0
        self.number = 0


_number = attrgetter("number")

#: By topic and partition.
GroupOffsets = dict[str, dict[int, CommittedOffset]]

#: Groups processed between two steps (about a millisecond), and offsets.
GROUPS_AT_ONCE: Final = 64
OFFSETS_AT_ONCE: Final = 128

#: Memory of one offset, without its text.
OFFSET_BYTES: Final = 300

#: (group, topic, partition)
OffsetKey = tuple[str, str, int]

#: Most noted commits of a group: beyond this, most are from members or requests no longer cached.
_MOST_NOTED: Final = 256

_NO_OFFSETS: Final[Mapping[str, dict[int, CommittedOffset]]] = MappingProxyType({})


class OffsetStore:
    """Committed and pending offsets. Write numbers give the order of the writes."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        # By group: the noted commits since its offsets were last read. Each is in the list once.
        self._noted: dict[str, list[CommitPartitions]] = {}
        #: The groups with offsets of a topic, pending ones included.
        self._readers: dict[str, set[str]] = {}
        #: By group: topics that it may have no offset of any more, to be checked when it has no pending offsets.
        self._maybe_unread: dict[str, set[str]] = {}
        #: The id of a topic when its offsets were last checked for those of its predecessors.
        self.topic_ids: dict[str, bytes] = {}
        #: Number of running searches for offsets of deleted topics: until 0, some may still be here.
        self.searches = 0
        self._numbers = count()
        self._newest: dict[OffsetKey, int] = {}
        self._pending: dict[int, dict[OffsetKey, tuple[int, CommittedOffset]]] = {}
        self._producers: dict[str, set[int]] = {}

    def release(self) -> Steps[None]:
        """Free all offsets in steps after the partition is closed."""
        self._noted.clear()
        for groups in (self._groups, self._readers):
            while groups:
                for _ in range(min(OFFSETS_AT_ONCE, len(groups))):
                    groups.popitem()
                yield

    def of_group(self, group_id: str) -> Mapping[str, dict[int, CommittedOffset]]:
        self._settle(group_id)
        return self._groups.get(group_id, _NO_OFFSETS)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Set an offset outside of transactions."""
        if self._noted:
            self._settle(group_id)
        self._put(group_id, topic, partition, committed)

    def restore(self, commit: CommitPartitions, offsets: Sequence[int], now_ms: int) -> None:
        """Set the offset of each of these partitions, outside of transactions. HOT."""
        is_noted = commit.offsets is not None
        commit.offsets, commit.commit_ms, commit.number = offsets, now_ms, next(self._numbers)
        if not is_noted:
            self._note(commit)
        if self._pending:
            # Write numbers decide which is newer, so the noted offsets must be applied first.
            self._settle(commit.group_id)

    def _note(self, commit: CommitPartitions) -> None:
        noted = self._noted.setdefault(commit.group_id, [])
        noted.append(commit)
        if len(noted) > _MOST_NOTED:
            self._settle(commit.group_id)

    def _settle(self, group_id: str) -> None:
        """Apply the noted commits of a group."""
        noted = self._noted.pop(group_id, None)
        if noted is None:
            return
        for commit in sorted(noted, key=_number):
            offsets, commit.offsets = commit.offsets or (), None
            for (topic, partition, leader_epoch, metadata, topic_id), offset in zip(commit.parts, offsets, strict=True):
                committed = CommittedOffset(offset, leader_epoch, metadata, commit.commit_ms, NO_EXPIRY, topic_id)
                self._put(group_id, topic, partition, committed)

    def settle_all(self) -> Steps[None]:
        """Apply the noted commits of all groups."""
        for number, group_id in enumerate(list(self._noted), 1):
            self._settle(group_id)
            if not number % GROUPS_AT_ONCE:
                yield

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = {}
        partitions = offsets.get(topic)
        if partitions is None:
            partitions = offsets[topic] = {}
            self._readers.setdefault(topic, set()).add(group_id)
        partitions[partition] = committed
        if self._pending:
            # Only a commit made while a transaction is open can be newer than one of the transaction.
            self._newest[group_id, topic, partition] = next(self._numbers)

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        """Set an offset that is applied when the producer's transaction commits."""
        self._settle(group_id)
        key = (group_id, topic, partition)
        self._pending.setdefault(producer_id, {})[key] = next(self._numbers), value
        self._producers.setdefault(group_id, set()).add(producer_id)
        self._readers.setdefault(topic, set()).add(group_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Delete an offset, pending ones included."""
        self._settle(group_id)
        offsets = self._groups.get(group_id)
        partitions = None if offsets is None else offsets.get(topic)
        if offsets is not None and partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del offsets[topic]
            if not offsets:
                del self._groups[group_id]
        for producer_id in self._producers.get(group_id, ()):
            self._pending[producer_id].pop((group_id, topic, partition), None)
        self._newest.pop((group_id, topic, partition), None)
        if not partitions:
            self.forget_reader(topic, group_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the pending offsets of a producer."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        self._part_with(producer_id)
        for group_id, topic, _ in pending:
            self.forget_reader(topic, group_id)
        if commit:
            for (group_id, topic, partition), (number, value) in pending.items():
                if self._newest.get((group_id, topic, partition), -1) < number:
                    self.put(group_id, topic, partition, value)
                    self._newest[group_id, topic, partition] = number
        if not self._pending:
            self._newest.clear()

    def _part_with(self, producer_id: int) -> None:
        """Remove a producer without pending offsets."""
        groups = [group_id for group_id, producers in self._producers.items() if producer_id in producers]
        for group_id in groups:
            producers = self._producers[group_id]
            producers.discard(producer_id)
            if not producers:
                del self._producers[group_id]
                for topic in self._maybe_unread.pop(group_id, ()):
                    self.forget_reader(topic, group_id)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction may change an offset (KIP-447)."""
        producers = self._producers.get(group_id)
        if not producers:
            return False
        key = (group_id, topic, partition)
        return any(key in self._pending[producer_id] for producer_id in producers)

    def has_any(self, group_id: str) -> bool:
        """Return whether a group has offsets, pending ones included."""
        return group_id in self._groups or group_id in self._noted or group_id in self._producers

    def keys_of(self, group_id: str) -> set[tuple[str, int]]:
        """Return (topic, partition) of every offset of a group, pending ones included."""
        return {(topic, index) for topic, indexes in self.places_of(group_id).items() for index in indexes}

    def places_of(self, group_id: str) -> dict[str, set[int]]:
        """Return a group's partitions with an offset, by topic, pending ones included."""
        found = {topic: set(partitions) for topic, partitions in self.of_group(group_id).items()}
        for producer_id in self._producers.get(group_id, ()):
            for group, topic, index in self._pending[producer_id]:
                if group == group_id:
                    found.setdefault(topic, set()).add(index)
        return found

    def values_of(self, group_id: str, topic: str, partition: int) -> list[CommittedOffset]:
        """Return the committed and the pending offsets of a partition."""
        key = (group_id, topic, partition)
        committed = self.of_group(group_id).get(topic, {}).get(partition)
        pending = (self._pending[producer_id].get(key) for producer_id in self._producers.get(group_id, ()))
        return [*([] if committed is None else [committed]), *(entry[1] for entry in pending if entry is not None)]

    def growth_bytes(self, group_id: str, topic: str, texts: Mapping[int, int]) -> int:
        """Return the memory that offsets of a topic would add, by the length of each partition's metadata."""
        known = self.of_group(group_id).get(topic, {})
        growth = 0
        for partition, length in texts.items():
            before = known.get(partition)
            growth += OFFSET_BYTES + length if before is None else max(0, length - len(before.metadata))
        return growth

    def sizes(self) -> Iterator[int]:
        for offsets in list(self._groups.values()):
            for partitions in list(offsets.values()):
                yield sum([OFFSET_BYTES + len(each.metadata) for each in partitions.values()])
        for pending in list(self._pending.values()):
            yield sum([2 * OFFSET_BYTES + len(value.metadata) for _, value in pending.values()])

    def topics(self) -> list[str]:
        """Return every topic that may have an offset here; all commits are applied."""
        return list(self._readers)

    def readers_of(self, topic: str) -> list[str]:
        """Return the groups that may have offsets of a topic; all commits are applied."""
        return list(self._readers.get(topic, ()))

    def forget_reader(self, topic: str, group_id: str) -> None:
        """Record that a group may have no offset of a topic any more."""
        if group_id in self._producers:
            self._maybe_unread.setdefault(group_id, set()).add(topic)
            return
        if topic in self._groups.get(group_id, ()):
            return
        readers = self._readers.get(topic)
        if readers is not None:
            readers.discard(group_id)
            if not readers:
                del self._readers[topic]
                self.topic_ids.pop(topic, None)
