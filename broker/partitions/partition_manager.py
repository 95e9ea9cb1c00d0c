"""The partitions of one target: the logs of those that it owns, readers of all others, and who owns which.

Runs in handler processes and the controller (which owns no partition). The one place where a change of metadata turns
into logs opened, reconfigured or deleted. Knows nothing of what its partitions hold: whoever cares that one has been
opened or closed takes that from `events`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.log.disk_room import NO_ROOM
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import AppendHold, LogDamaged, PartitionName, PublishedEnd
from rotunda.broker.metadata.metadata_cache import Changes
from rotunda.broker.partitions.owned_partition import OwnedPartition
from rotunda.broker.partitions.partition_changes import OwnedPartitions, PartitionChanges
from rotunda.broker.partitions.storage.storage_gate import StorageGate
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, STATE_UNOPENED
from rotunda.shm.tables.process_slots import HANDLER

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.metadata.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
    from rotunda.broker.protocol.steps import Steps

logger = logging.getLogger(__name__)

REMOVE_AGAIN_NS = 1_000_000_000

#: How often the opening of partitions at the start is logged.
PROGRESS_NS = 2_000_000_000

_NEVER_NS = 1 << 62


class PartitionEvent(NamedTuple):
    """A partition that this handler has opened, or that it has closed because it was deleted: ``owned`` is None."""

    topic: str
    partition: int
    owned: OwnedPartition | None


class PartitionManager:
    """Owned by the request loop of one target."""

    def __init__(self, context: ProcessContext, index: int, metadata: MetadataCache, clock: Clock) -> None:
        self.index = index
        self.metadata = metadata
        self.clock = clock
        self.table = context.partitions
        self.log_manager = LogManager(context.config.data_dir, clock, context.config.producer_id_expiration_ms)
        #: What is to be done to this process's partitions, in slices.
        self.changes = PartitionChanges()
        self.owned = OwnedPartitions(self.changes)
        self.storage = StorageGate(
            context, index, self.owned, clock, lambda row: self.changes.alter((row,), self._bring_up_to_date)
        )
        #: What has been opened and closed, in this order, until somebody takes it.
        self.events: deque[PartitionEvent] = deque()
        self._closed_rows: list[int] = []
        self._data_dir = context.config.data_dir
        self._broker_words = context.broker_words
        self._slots = context.slots
        self._is_handler = index < context.handlers
        #: What could not be opened because the disk was full, by row.
        self._unopened: dict[int, tuple[TopicInfo, PartitionInfo]] = {}
        #: What could not be removed: partitions of deleted topics, with whether their rows are still theirs.
        self._unremoved: list[tuple[TopicInfo, PartitionInfo, bool]] = []
        self._remove_due_ns = 0
        self._readers: dict[int, LogReader] = {}
        self._ticks = 0
        self._owners: dict[int, int] = {}
        self._taken_over = 0
        #: What has been taken over from the metadata and not been added to `changes`, and the steps that go on.
        self._taken = Changes([], [], [])
        self._taking: Steps[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the controller has announced a change that this process has not taken over yet."""
        return self._broker_words.metadata_version > self.metadata.version

    @property
    def is_taking(self) -> bool:
        """Whether this process is in the middle of taking over what has been announced."""
        return self._taking is not None

    def publish_taken_over(self) -> None:
        """Publish up to which version of the metadata this handler has taken over changes, unless some are left."""
        version = self.metadata.version
        if version != self._taken_over and not self.changes and self._is_handler:
            self._taken_over = version
            self._slots.set_metadata_version(HANDLER, self.index, version)

    def load_metadata(self) -> None:
        """Read the metadata file and open, change or delete what this process owns accordingly, all at once."""
        self.take_metadata()
        count = len(self.changes)
        due_ns = self.clock.monotonic_ns() + PROGRESS_NS

        def log_progress() -> None:
            nonlocal due_ns
            if self.clock.monotonic_ns() >= due_ns:
                due_ns += PROGRESS_NS
                logger.info("opened %d of %d partitions", count - len(self.changes), count)

        self.changes.finish(log_progress)

    def take_metadata(self, end_ns: int = _NEVER_NS) -> None:
        """Take over what has changed; what that means for this process's logs is added to `changes`.

        What is not taken over by ``end_ns`` is left for the next call (`is_taking`). A fault of ours with one partition
        is logged and keeps no other from its turn: nothing is reported twice.
        """
        # What has been begun knows nothing of what has been announced since.
        begun, self._taking = self._taking, None
        try:
            for steps in filter(None, (begun, self.metadata.refresh_in_steps(self._taken))):
                for _ in steps:
                    # The controller takes over what it changes itself, all at once.
                    if self._is_handler and self.clock.monotonic_ns() >= end_ns:
                        self._taking = steps
                        return
        finally:
            # Also after a fault: it is not reported twice.
            taken = Changes(self._taken.created.copy(), self._taken.deleted.copy(), self._taken.altered.copy())
            for each in self._taken:
                each.clear()
            self._add_changes(taken)
        self.log_manager.expire_producers_after(self.metadata.broker_config.producer_id_expiration_ms)

    def _add_changes(self, taken: Changes) -> None:
        own = [(topic.name, partition.index) for topic, partition in taken.deleted if partition.owner == self.index]
        if own:
            self.log_manager.forget_checkpoints(own)
        # Deletions first: a topic that was deleted and created again keeps its directory's name.
        self.changes.delete(taken.deleted, self._forget)
        for topic, partition in taken.deleted:
            if topic.internal:
                # Its coordinator does not ask for its row.
                self._close(topic, partition)
            if self._unopened:
                self._unopened.pop(partition.row, None)
        for topic, partition in taken.created:
            self._owners[partition.row] = partition.owner
            if partition.owner == self.index:
                self._add_opening(topic, partition)
        for topic in taken.altered:
            rows = [partition.row for partition in topic.partitions if partition.owner == self.index]
            self.changes.alter(rows, self._bring_up_to_date)

    def _add_opening(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        opening = partial(_do, "open", self._open, topic, partition)
        self.changes.add((topic.name, partition.index), opening, opens=partition.row)

    def tick(self) -> None:
        """Do what is due: flush, checkpoint, look at the disk; what there was no room to open is added to `changes`."""
        self._ticks += 1
        self.log_manager.tick()
        self.storage.tick()
        if self._unopened and self.storage.hold is not AppendHold.EVERYTHING:
            unopened, self._unopened = self._unopened, {}
            for topic, partition in unopened.values():
                self._add_opening(topic, partition)
        if self._unremoved:
            self._remove_again()

    def _remove_again(self) -> None:
        """Remove what could not be removed, once in `REMOVE_AGAIN_NS`."""
        now_ns = self.clock.monotonic_ns()
        if now_ns >= self._remove_due_ns:
            self._remove_due_ns = now_ns + REMOVE_AGAIN_NS
            unremoved, self._unremoved = self._unremoved, []
            for topic, partition, is_ours in unremoved:
                with _contained("delete", topic.name, partition.index):
                    self._delete(topic, partition, is_open=is_ours)

    def take_closed_rows(self) -> list[int]:
        """Return the rows of partitions that have been deleted since this was last called."""
        closed, self._closed_rows = self._closed_rows, []
        return closed

    def rows(self) -> list[int]:
        """Return the rows of all partitions."""
        return list(self._owners)

    def owner_of(self, row: int) -> int | None:
        """Return the handler that owns a row, or None when there is no such partition any more."""
        return self._owners.get(row)

    def own(self, topic: str, partition: int) -> OwnedPartition | None:
        """Return a partition of this handler, opened if it only waits for that; None if it has none of that name."""
        info = self.metadata.partition(topic, partition)
        owned: OwnedPartition | None = None if info is None else self.owned.get(info.row)
        return owned

    def row_of(self, topic_name: str | None, topic_id: bytes | None, partition: int) -> int:
        """Return the row of a partition in the partition table, or -1 when there is no such partition."""
        topic = (
            self.metadata.topic(topic_name) if topic_name is not None else self.metadata.topic_by_id(topic_id or b"")
        )
        if topic is None or not 0 <= partition < len(topic.partitions):
            return -1
        return topic.partitions[partition].row

    def reader(self, row: int, topic: str, partition: int) -> LogReader:
        """Return the reader of a partition, whoever owns it."""
        reader = self._readers.get(row)
        if reader is None:
            directory = self._data_dir / f"{topic}-{partition}"
            reader = self._readers[row] = LogReader(directory)
        removals = self.table.removals(row)
        if reader.removals_seen != removals:
            reader.forget()
            reader.removals_seen = removals
        if reader.checked_at != self._ticks:
            reader.forget_missing()
            reader.checked_at = self._ticks
        return reader

    def _open(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        row = partition.row
        name = PartitionName(topic.name, partition.index, topic.topic_id)
        published = None
        if self.table.state(row) == STATE_OPEN:
            # A predecessor served this partition in this run: what it published is the truth.
            end, base, position = self.table.read_position(row)
            published = PublishedEnd(
                end, base, position, self.table.read_start(row), leader_epoch=self.table.leader_epoch(row)
            )
        try:
            log = self.log_manager.open(name, self.metadata.log_config(topic), published)
        except (LogDamaged, OSError) as error:
            logger.error("%s stays offline: %s", name.directory_name, error)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                self._unopened[row] = topic, partition
                self.storage.found_no_room(error.errno or 0, str(error))
            return
        log.hold(self.storage.hold)
        self.table.set_fault(row, 0)
        owned = OwnedPartition(log, row, self.table.row_writer(row))
        self.table.set_leader_epoch(row, log.leader_epoch)
        owned.publish()
        owned.writer.note_removal()
        self.table.set_state(row, STATE_OPEN)
        self.owned[row] = owned
        self.events.append(PartitionEvent(topic.name, partition.index, owned))

    def _forget(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        """Serve a deleted partition no longer, whoever owns it, and remove its log if it is this handler's."""
        row = partition.row
        self.changes.closed(row)
        self._closed_rows.append(row)
        self._readers.pop(row, None)
        self._owners.pop(row, None)
        if self._is_handler:
            self.table.forget_fetched(row, self.index)
        if partition.owner == self.index:
            with _contained("delete", topic.name, partition.index):
                self._delete(topic, partition, is_open=self._close(topic, partition))

    def _close(self, topic: TopicInfo, partition: PartitionInfo) -> bool:
        """Serve a partition of this handler no longer; return whether it was open."""
        if partition.row not in self.owned:
            return False
        # Before anything of it goes: whoever misses a file or an offset looks at the state again.
        self.table.set_state(partition.row, STATE_UNOPENED)
        del self.owned[partition.row]
        self.events.append(PartitionEvent(topic.name, partition.index, None))
        return True

    def _delete(self, topic: TopicInfo, partition: PartitionInfo, *, is_open: bool) -> None:
        """Remove the log of a deleted partition, and let go of its row; ``is_open``: it was when it was deleted."""
        is_ours = is_open or self._has_row(topic, partition)
        if is_ours:
            self.table.set_state(partition.row, STATE_UNOPENED)
        if self.owned.pop(partition.row, None) is not None:
            self.events.append(PartitionEvent(topic.name, partition.index, None))
        try:
            self.log_manager.delete(PartitionName(topic.name, partition.index, topic.topic_id))
        except OSError as error:
            # Its row stays on record, so that a replacement of this process goes on with it too.
            logger.error("cannot remove %s-%d, which is tried again: %s", topic.name, partition.index, error)
            self._unremoved.append((topic, partition, is_ours))
            return
        if is_ours:
            self.table.reset(partition.row)
            # Only now may the controller give the row to another partition.
            self.table.set_state(partition.row, STATE_CLOSED)

    def _has_row(self, topic: TopicInfo, partition: PartitionInfo) -> bool:
        """Return whether the row of a deleted partition is still to be closed.

        A predecessor may have closed it, and the controller have given it to another partition since: only a closed
        row is taken off the record. So what is not closed, and after that still on record, stays ours.
        """
        if partition.row in self.owned:
            return True
        return self.table.state(partition.row) != STATE_CLOSED and self.metadata.has_row(topic, partition)

    def _bring_up_to_date(self, row: int) -> None:
        """Have a log do what want of room has left, and take over its settings: whatever it waited for."""
        if row not in self.owned:
            return
        owned = self.owned[row]
        log = owned.log
        with _contained("bring up to date", log.name.directory_name):
            log.catch_up()
            topic = self.metadata.topic(log.name.topic)
            if topic is not None and topic.topic_id == log.name.topic_id:
                log.update_config(self.metadata.log_config(topic))
            self.storage.publish_fault(owned)


def _do(
    action: str, act: Callable[[TopicInfo, PartitionInfo], None], topic: TopicInfo, partition: PartitionInfo
) -> None:
    """Change something of a partition; a fault of ours is logged."""
    with _contained(action, topic.name, partition.index):
        act(topic, partition)


@contextmanager
def _contained(action: str, *name: object) -> Iterator[None]:
    """Log a fault of ours and go on."""
    try:
        yield
    except Exception:
        logger.exception("cannot %s %s", action, "-".join(map(str, name)))
