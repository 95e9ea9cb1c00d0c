"""The parts of a handler that group reports read: groups, offsets, partitions, and no files."""

import json
from types import SimpleNamespace
from typing import Any, cast

from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.group_status_publisher import INTERVAL_NS, GroupStatusPublisher
from rotunda.broker.coordinator.offsets.offsets import CommittedOffset, OffsetStore
from rotunda.broker.steps import finished
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, PartitionTable
from rotunda.shm.tables.snapshot_buffer import SnapshotReader, SnapshotSegment, SnapshotWriter

TOPIC, GONE, CLOSED = "orders", "gone", "closed"
TOPIC_ID = bytes(range(16))


class Times:
    """Replaces the files: every record is three seconds old."""

    def begin(self) -> None:
        """Start a new report."""
        self.looked_up: list[int] = []

    def end(self) -> None:
        """End the current report."""

    def age_s(self, place: tuple[str, int, int], offset: int, _: object) -> float | None:
        """Return three seconds, and record the offset."""
        assert place[0] == TOPIC
        self.looked_up.append(offset)
        return 3.0


class Handler:
    """A handler's state as far as a snapshot looks at it, and its snapshot."""

    def __init__(self) -> None:
        self.now_ns = INTERVAL_NS
        self.shard = SimpleNamespace(groups={}, offsets=OffsetStore())
        self.transactions: list[Any] = []
        self.share_shards: list[Any] = []
        rows, handlers = 4, 1
        view = memoryview(bytearray(PartitionTable.bytes_needed(rows, handlers)))
        self.partitions = PartitionTable(view, 0, rows, handlers)
        for row in range(2):
            # Offsets 10 to 100, stable up to 60.
            self.partitions.row_writer(row).publish(100, 0, 5000, 10, 60, 5000)
            self.partitions.set_state(row, STATE_OPEN)
        self.partitions.set_state(2, STATE_CLOSED)
        rows_of = {(TOPIC, 0): 0, (TOPIC, 1): 1, (CLOSED, 0): 2}
        places = {place: SimpleNamespace(row=row) for place, row in rows_of.items()}
        metadata = SimpleNamespace(
            partition=lambda topic, index: places.get((topic, index)),
            broker_config=SimpleNamespace(group_consumer_assignors=("uniform", "range")),
            topic_by_id=lambda topic_id: SimpleNamespace(name=TOPIC) if topic_id == TOPIC_ID else None,
        )
        coordinators = SimpleNamespace(
            groups=SimpleNamespace(shards=lambda: [self.shard]),
            transactions=SimpleNamespace(transactions=lambda: self.transactions),
            share_states=SimpleNamespace(shards=lambda: self.share_shards),
        )
        clock = SimpleNamespace(wall_ms=lambda: self.now_ns // 1_000_000, monotonic_ns=lambda: self.now_ns)
        self.metadata, self.coordinators, self.clock = metadata, coordinators, clock
        partitions = SimpleNamespace(index=0, table=self.partitions, metadata=metadata)
        snapshots = SnapshotSegment(memoryview(bytearray(SnapshotSegment.bytes_needed(1, 1))), 1, 1)
        self.wants, self.reader, self.times = snapshots.wants, SnapshotReader(snapshots.of_handler(0)), Times()
        writer = SnapshotWriter(snapshots.of_handler(0))
        self.snapshot = GroupStatusPublisher(
            cast("Any", coordinators),
            cast("Any", partitions),
            (writer, snapshots.wants),
            cast("Any", self.times),
            finished,
            lambda: self.now_ns,
        )

    def add(self, group_id: str, offsets: dict[tuple[str, int], int]) -> ClassicGroup:
        """Add a group without members that has committed offsets, by topic and partition."""
        group = self.shard.groups[group_id] = ClassicGroup(group_id)
        for (topic, partition), offset in offsets.items():
            self.shard.offsets.put(group_id, topic, partition, CommittedOffset(offset, -1, "", 7))
        return group

    def told(self) -> dict[str, Any]:
        """Return the document as a reader gets it."""
        document: dict[str, Any] = json.loads(json.dumps(finished(self.snapshot.document())))
        return document
