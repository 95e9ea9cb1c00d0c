"""The partitions of one target: the logs of its own, readers of all others, and the owner of each.

Runs in handler processes and the controller (which owns no partition). The only module that opens, reconfigures or
deletes logs for a metadata change. Must not know the contents of its partitions: coordinators learn of opened and
closed partitions from `events`.
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
    from rotunda.broker.steps import Steps

logger = logging.getLogger(__name__)

REMOVE_AGAIN_NS = 1_000_000_000

#: Interval of the progress log lines while partitions are opened at the start.
PROGRESS_NS = 2_000_000_000

_NEVER_NS = 1 << 62


class PartitionEvent(NamedTuple):
    """A partition that this handler opened, or closed because it was deleted: ``owned`` is then None."""

    topic: str
    partition: int
    owned: OwnedPartition | None


class PartitionManager:
    """The partitions of one target, used by its request loop."""

    def __init__(self, context: ProcessContext, index: int, metadata: MetadataCache, clock: Clock) -> None:
        self.index = index
        self.metadata = metadata
        self.clock = clock
        self.table = context.partitions
        self.log_manager = LogManager(context.config.data_dir, clock, context.config.producer_id_expiration_ms)
        #: Pending changes of this process's partitions; they run in slices.
        self.changes = PartitionChanges()
        self.owned = OwnedPartitions(self.changes)
        self.storage = StorageGate(
            context, index, self.owned, clock, lambda row: self.changes.alter((row,), self._bring_up_to_date)
        )
        #: Opened and closed partitions, in this order, until the coordinators process them.
        self.events: deque[PartitionEvent] = deque()
        self._closed_rows: list[int] = []
        self._data_dir = context.config.data_dir
        self._broker_words = context.broker_words
        self._slots = context.slots
        self._is_handler = index < context.handlers
        #: Partitions that could not be opened because the disk was full, by row.
        self._unopened: dict[int, tuple[TopicInfo, PartitionInfo]] = {}
        #: Deleted partitions whose logs could not be removed, with whether their rows are still theirs.
        self._unremoved: list[tuple[TopicInfo, PartitionInfo, bool]] = []
        self._remove_due_ns = 0
        self._readers: dict[int, LogReader] = {}
        self._ticks = 0
        self._owners: dict[int, int] = {}
        self._published_version = 0
        #: Metadata changes applied here but not yet added to `changes`, and the steps that continue.
        self._unapplied = Changes([], [], [])
        self._refreshing: Steps[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the controller has published a change that this process has not applied yet."""
        return self._broker_words.metadata_version > self.metadata.version

    @property
    def is_taking(self) -> bool:
        """Whether this process is applying a metadata change in steps."""
        return self._refreshing is not None

    def publish_taken_over(self) -> None:
        """Publish the metadata version up to which this handler has applied changes, unless some are pending."""
        version = self.metadata.version
        if version != self._published_version and not self.changes and self._is_handler:
            self._published_version = version
            self._slots.set_metadata_version(HANDLER, self.index, version)

    def load_metadata(self) -> None:
        """Read the metadata file and open, change or delete this process's partitions accordingly, all at once."""
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
        """Apply metadata changes; the resulting changes of this process's logs are added to `changes`.

        Changes not applied by ``end_ns`` are left for the next call (`is_taking`). An internal error with one partition
        is logged and does not block the others: no change is reported twice.
        """
        # Steps in progress do not include changes published since.
        begun, self._refreshing = self._refreshing, None
        try:
            for steps in filter(None, (begun, self.metadata.refresh_in_steps(self._unapplied))):
                for _ in steps:
                    # The controller applies its own changes, all at once.
                    if self._is_handler and self.clock.monotonic_ns() >= end_ns:
                        self._refreshing = steps
                        return
        finally:
            # Also after an error: no change is reported twice.
            changes = Changes(
                self._unapplied.created.copy(), self._unapplied.deleted.copy(), self._unapplied.altered.copy()
            )
            for each in self._unapplied:
                each.clear()
            self._add_changes(changes)
        self.log_manager.expire_producers_after(self.metadata.broker_config.producer_id_expiration_ms)

    def _add_changes(self, changes: Changes) -> None:
        own = [(topic.name, partition.index) for topic, partition in changes.deleted if partition.owner == self.index]
        if own:
            self.log_manager.forget_checkpoints(own)
        # Deletions first: a topic that was deleted and recreated reuses its directory's name.
        self.changes.delete(changes.deleted, self._forget)
        for topic, partition in changes.deleted:
            if topic.internal:
                # The coordinator of an internal topic does not look up the row, so close it now.
                self._close(topic, partition)
            if self._unopened:
                self._unopened.pop(partition.row, None)
        for topic, partition in changes.created:
            self._owners[partition.row] = partition.owner
            if partition.owner == self.index:
                self._add_opening(topic, partition)
        for topic in changes.altered:
            rows = [partition.row for partition in topic.partitions if partition.owner == self.index]
            self.changes.alter(rows, self._bring_up_to_date)

    def _add_opening(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        opening = partial(_do, "open", self._open, topic, partition)
        self.changes.add((topic.name, partition.index), opening, opens=partition.row)

    def tick(self) -> None:
        """Run periodic tasks: flush, checkpoint, check the disk; queue partitions not opened because of a full disk."""
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
        """Retry failed removals, once per `REMOVE_AGAIN_NS`."""
        now_ns = self.clock.monotonic_ns()
        if now_ns >= self._remove_due_ns:
            self._remove_due_ns = now_ns + REMOVE_AGAIN_NS
            unremoved, self._unremoved = self._unremoved, []
            for topic, partition, is_ours in unremoved:
                with _contained("delete", topic.name, partition.index):
                    self._delete(topic, partition, is_open=is_ours)

    def take_closed_rows(self) -> list[int]:
        """Return the rows of partitions deleted since the last call."""
        closed, self._closed_rows = self._closed_rows, []
        return closed

    def rows(self) -> list[int]:
        """Return the rows of all partitions."""
        return list(self._owners)

    def owner_of(self, row: int) -> int | None:
        """Return the handler that owns a row, or None if the partition does not exist."""
        return self._owners.get(row)

    def own(self, topic: str, partition: int) -> OwnedPartition | None:
        """Return a partition of this handler, after any pending open; None if it does not own one of that name."""
        info = self.metadata.partition(topic, partition)
        owned: OwnedPartition | None = None if info is None else self.owned.get(info.row)
        return owned

    def row_of(self, topic_name: str | None, topic_id: bytes | None, partition: int) -> int:
        """Return the row of a partition in the partition table, or -1 if it does not exist."""
        topic = (
            self.metadata.topic(topic_name) if topic_name is not None else self.metadata.topic_by_id(topic_id or b"")
        )
        if topic is None or not 0 <= partition < len(topic.partitions):
            return -1
        return topic.partitions[partition].row

    def reader(self, row: int, topic: str, partition: int) -> LogReader:
        """Return the reader of a partition, for any owner."""
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
            # A predecessor served this partition in this run: its published ends are authoritative.
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
        """Stop serving a deleted partition of any owner, and remove its log if this handler owns it."""
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
        """Stop serving a partition of this handler; return whether it was open."""
        if partition.row not in self.owned:
            return False
        # Before any file is removed: readers that miss a file or an offset check the state again.
        self.table.set_state(partition.row, STATE_UNOPENED)
        del self.owned[partition.row]
        self.events.append(PartitionEvent(topic.name, partition.index, None))
        return True

    def _delete(self, topic: TopicInfo, partition: PartitionInfo, *, is_open: bool) -> None:
        """Remove the log of a deleted partition and release its row; ``is_open``: it was open when deleted."""
        is_ours = is_open or self._has_row(topic, partition)
        if is_ours:
            self.table.set_state(partition.row, STATE_UNOPENED)
        if self.owned.pop(partition.row, None) is not None:
            self.events.append(PartitionEvent(topic.name, partition.index, None))
        try:
            self.log_manager.delete(PartitionName(topic.name, partition.index, topic.topic_id))
        except OSError as error:
            # The metadata retains its row, so that a replacement of this process retries the removal too.
            logger.error("cannot remove %s-%d, retrying: %s", topic.name, partition.index, error)
            self._unremoved.append((topic, partition, is_ours))
            return
        if is_ours:
            self.table.reset(partition.row)
            # Only now may the controller assign the row to another partition.
            self.table.set_state(partition.row, STATE_CLOSED)

    def _has_row(self, topic: TopicInfo, partition: PartitionInfo) -> bool:
        """Return whether the row of a deleted partition still has to be closed.

        A predecessor may have closed it, and the controller may have assigned it to another partition since: the
        metadata drops only closed rows. A row that is not closed, and afterwards still in the metadata, is therefore
        still this partition's.
        """
        if partition.row in self.owned:
            return True
        return self.table.state(partition.row) != STATE_CLOSED and self.metadata.has_row(topic, partition)

    def _bring_up_to_date(self, row: int) -> None:
        """Recover a log from a failed write and apply its current settings, whichever was pending."""
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
    """Change a partition; log an internal error."""
    with _contained(action, topic.name, partition.index):
        act(topic, partition)


@contextmanager
def _contained(action: str, *name: object) -> Iterator[None]:
    """Log an internal error and continue."""
    try:
        yield
    except Exception:
        logger.exception("cannot %s %s", action, "-".join(map(str, name)))
