"""What one target process knows of the broker: configuration, metadata, the partitions it owns, readers of all others.

Runs in handler processes and the controller (which owns no partition). The one place where a change of metadata turns
into logs opened, reconfigured or deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from broker.apis.context import PendingAnswer
from broker.coordinator.service import Coordinators
from broker.errors import ApiError
from broker.log.disk_room import NO_ROOM
from broker.log.log_manager import LogManager
from broker.log.log_reader import LogReader
from broker.log.partition_log import AppendHold, LogDamaged, PartitionName, PublishedEnd
from broker.metadata.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from broker.metadata.reloading import ReloadRequest, reload
from broker.metadata.request_log_settings import store_settings
from broker.partitions.log_maintenance import LogUpkeep
from broker.partitions.owned_partition import OwnedPartition
from broker.partitions.partition_changes import OwnedPartitions, PartitionChanges
from broker.partitions.storage.storage_gate import StorageGate
from broker.protocol.error_codes import ErrorCode
from broker.scheduling.peer_tasks import TargetTasks
from shm.partitions import STATE_CLOSED, STATE_OPEN, STATE_UNOPENED
from shm.process_slots import HANDLER
from shm.storage import StorageState

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.ipc.process_context import Heritage
    from broker.metadata.controller import Controller
    from broker.partitions.storage.storage_watch import StorageWatch

logger = logging.getLogger(__name__)

REMOVE_AGAIN_NS = 1_000_000_000


class BrokerState:
    """Owned by the request loop of one target; API functions reach it as ``context.broker``."""

    def __init__(self, heritage: Heritage, index: int, metadata: MetadataCache, clock: Clock) -> None:
        self.heritage = heritage
        self.config = heritage.config
        self.index = index
        self.metadata = metadata
        self.clock = clock
        self.partitions = heritage.partitions
        self.client_hosts = heritage.client_hosts
        self.log_manager = LogManager(heritage.config.data_dir, clock, heritage.config.producer_id_expiration_ms)
        self.logs = self.log_manager.logs
        #: What is to be done to this process's partitions, in slices.
        self.changes = PartitionChanges()
        self.owned = OwnedPartitions(self.changes)
        self.storage = StorageGate(heritage, index, self.owned, clock)
        #: What could not be opened because the disk was full, by row.
        self._unopened: dict[int, tuple[TopicInfo, PartitionInfo]] = {}
        #: What could not be removed: partitions of deleted topics, with whether their rows are still theirs.
        self._unremoved: list[tuple[TopicInfo, PartitionInfo, bool]] = []
        self._remove_due_ns = 0
        self.controller: Controller | None = None
        self.reload_request = ReloadRequest()
        self.storage_watch: StorageWatch | None = None
        self.apis: Sequence[tuple[int, int, int]] = ()
        self.rows_closed: Callable[[Sequence[int]], None] = _nobody_waits
        self.ask_peer: Callable[[int, str, int, PendingAnswer], None] = _no_peers
        self.create_topics_later: Callable[[Sequence[str]], None] = _no_controller
        #: Whether something that a connection has asked for is done in slices, and is not done.
        self.is_in_slices: Callable[[int], bool] = _never
        self.tasks = TargetTasks(index)
        self.upkeep = LogUpkeep(self)
        self.coordinators = Coordinators(self)
        self._readers: dict[int, LogReader] = {}
        self._owners: dict[int, int] = {}
        self._taken_over = 0

    @property
    def is_behind(self) -> bool:
        """Whether the controller has announced a change that this process has not taken over yet."""
        return self.heritage.cluster.metadata_version > self.metadata.version

    def publish_taken_over(self) -> None:
        """Publish up to which version of the metadata this handler has taken over changes, unless some are left."""
        version = self.metadata.version
        if version != self._taken_over and not self.changes and self.index < self.heritage.handlers:
            self._taken_over = version
            self.heritage.slots.set_metadata_version(HANDLER, self.index, version)

    def release_rows(self) -> None:
        """Let rows of deleted partitions be used again, if they run short. Does something in the controller only."""
        if self.controller is not None and self.controller.release_rows():
            self.announce_metadata()

    def load_metadata(self) -> None:
        """Read the metadata file and open, change or delete what this process owns accordingly, all at once."""
        self.take_metadata()
        self.changes.finish()

    def take_metadata(self) -> None:
        """Take over what has changed; what that means for this process's logs is added to `changes`.

        A fault of ours with one partition is logged and keeps no other from its turn: nothing is reported twice.
        """
        changes = self.metadata.refresh()
        own = [(topic.name, partition.index) for topic, partition in changes.deleted if partition.owner == self.index]
        if own:
            self.log_manager.forget_checkpoints(own)
        # Deletions first: a topic that was deleted and created again keeps its directory's name.
        self._forget_all(changes.deleted)
        for topic, partition in changes.created:
            self._owners[partition.row] = partition.owner
            if partition.owner == self.index:
                opening = partial(_do, "open", self._open, topic, partition)
                self.changes.add((topic.name, partition.index), opening, opens=partition.row)
        for topic in changes.altered:
            rows = [partition.row for partition in topic.partitions if partition.owner == self.index]
            self.changes.alter(rows, partial(self._reconfigure, topic))
        self.log_manager.expire_producers_after(self.metadata.broker_config.producer_id_expiration_ms)

    def tick(self) -> None:
        """Do what is due: flush, checkpoint, look at the disk, and open what there was no room for."""
        self.log_manager.tick()
        if self.storage_watch is not None:
            self.storage_watch.tick()
        self.storage.tick()
        if self._unopened and self.storage.hold is not AppendHold.EVERYTHING:
            unopened, self._unopened = self._unopened, {}
            for topic, partition in unopened.values():
                with _contained("open", topic.name, partition.index):
                    self._open(topic, partition)
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

    def rows(self) -> list[int]:
        """Return the rows of all partitions."""
        return list(self._owners)

    def owner_of(self, row: int) -> int | None:
        """Return the handler that owns a row, or None when there is no such partition any more."""
        return self._owners.get(row)

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
            directory = self.config.data_dir / f"{topic}-{partition}"
            reader = self._readers[row] = LogReader(directory)
        removals = self.partitions.removals(row)
        if reader.removals_seen != removals:
            reader.forget()
            reader.removals_seen = removals
        return reader

    def ask_owner(self, row: int, kind: str, argument: int) -> PendingAnswer:
        """Ask the owner of a partition to do something; the answer may come later (``Parked``)."""
        pending = PendingAnswer()
        if self.owner_of(row) == self.index:
            pending.error_code, pending.value = self.do_owner_task(row, kind, argument)
            pending.done = True
        else:
            self.ask_peer(row, kind, argument, pending)
        return pending

    def do_owner_task(self, row: int, kind: str, argument: int) -> tuple[int, int]:
        """Do what `ask_owner` asked for, as the owner. Return (Kafka error code, value)."""
        owned = self.owned.get(row)
        if owned is None:
            return 6, -1
        try:
            value = _OWNER_TASKS[kind](owned, argument)
        except ApiError as error:
            return error.code, -1
        except OSError as error:
            logger.error("%s of %s failed: %s", kind, owned.log.directory, error)
            return int(ErrorCode.KAFKA_STORAGE_ERROR), -1
        owned.publish()
        return 0, value

    def announce_metadata(self) -> None:
        """Tell every process that the metadata has changed. Controller only."""
        if self.controller is None:
            raise RuntimeError("only the controller announces metadata")
        heritage = self.heritage
        # Also when nothing has changed: a predecessor may have been killed before it came to this.
        self.store_request_log_settings()
        if heritage.cluster.metadata_version == self.controller.version:
            return
        heritage.cluster.set_metadata_version(self.controller.version)
        for bell in (*heritage.target_bells, heritage.recorder_bell):
            bell.ring()

    def reload_if_asked(self) -> None:
        """Read the configuration file again if a signal has asked for it. Controller only; others are never asked."""
        if self.reload_request.asked and self.controller is not None:
            self.reload_request.asked = False
            reload(self.controller, self.metadata, self.config)
            self.announce_metadata()

    def store_request_log_settings(self) -> None:
        """Have requests recorded as settings and disk allow. Controller only."""
        has_room = self.heritage.cluster.storage_state < StorageState.NO_REQUEST_LOG
        store_settings(self.heritage.recorder_rings, self.metadata.broker_config, has_room=has_room)

    def _open(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        row = partition.row
        name = PartitionName(topic.name, partition.index, topic.topic_id)
        published = None
        if self.partitions.state(row) == STATE_OPEN:
            # A predecessor served this partition in this run: what it published is the truth.
            end, base, position = self.partitions.read_position(row)
            published = PublishedEnd(end, base, position, self.partitions.read_start(row))
        try:
            log = self.log_manager.open(name, self.metadata.log_config(topic), published)
        except (LogDamaged, OSError) as error:
            logger.error("%s stays offline: %s", name.directory_name, error)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                self._unopened[row] = topic, partition
                self.storage.found_no_room(error.errno or 0, str(error))
            return
        log.hold(self.storage.hold)
        self.partitions.set_fault(row, 0)
        owned = OwnedPartition(log, row, self.partitions.row_writer(row))
        self.partitions.set_leader_epoch(row, log.leader_epoch)
        owned.publish()
        owned.writer.note_removal()
        self.partitions.set_state(row, STATE_OPEN)
        self.owned[row] = owned
        self.coordinators.partition_opened(topic.name, partition.index, owned)

    def _forget_all(self, deleted: Sequence[tuple[TopicInfo, PartitionInfo]]) -> None:
        """Let go of deleted partitions, whoever owns them. There may be ten thousand: nothing is made for each."""
        rows: list[int] = []
        is_handler = self.index < self.heritage.handlers
        for topic, partition in deleted:
            row = partition.row
            rows.append(row)
            self._readers.pop(row, None)
            self._owners.pop(row, None)
            self._unopened.pop(row, None)
            if is_handler:
                self.partitions.forget_fetched(row, self.index)
            if partition.owner == self.index:
                try:
                    self._close(topic, partition)
                except Exception:
                    logger.exception("cannot forget %s-%d", topic.name, partition.index)
        if rows:
            self.rows_closed(rows)

    def _close(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        """Serve a deleted partition no longer; its log goes later."""
        self.changes.cancel(partition.row)
        is_open = partition.row in self.owned
        if is_open:
            # Before anything of it goes: whoever misses a file or an offset looks at the state again.
            self.partitions.set_state(partition.row, STATE_UNOPENED)
            del self.owned[partition.row]
            self.coordinators.partition_closed(topic.name, partition.index)
        deleting = partial(_do, "delete", partial(self._delete, is_open=is_open), topic, partition)
        self.changes.add((topic.name, partition.index), deleting)

    def _delete(self, topic: TopicInfo, partition: PartitionInfo, *, is_open: bool) -> None:
        """Remove the log of a deleted partition, and let go of its row; ``is_open``: it was when it was deleted."""
        is_ours = is_open or self._has_row(topic, partition)
        if is_ours:
            self.partitions.set_state(partition.row, STATE_UNOPENED)
        if self.owned.pop(partition.row, None) is not None:
            self.coordinators.partition_closed(topic.name, partition.index)
        try:
            self.log_manager.delete(PartitionName(topic.name, partition.index, topic.topic_id))
        except OSError as error:
            # Its row stays on record, so that a replacement of this process goes on with it too.
            logger.error("cannot remove %s-%d, which is tried again: %s", topic.name, partition.index, error)
            self._unremoved.append((topic, partition, is_ours))
            return
        if is_ours:
            self.partitions.reset(partition.row)
            # Only now may the controller give the row to another partition.
            self.partitions.set_state(partition.row, STATE_CLOSED)

    def _has_row(self, topic: TopicInfo, partition: PartitionInfo) -> bool:
        """Return whether the row of a deleted partition is still to be closed.

        A predecessor may have closed it, and the controller have given it to another partition since: only a closed
        row is taken off the record. So what is not closed, and after that still on record, stays ours.
        """
        if partition.row in self.owned:
            return True
        return self.partitions.state(partition.row) != STATE_CLOSED and self.metadata.has_row(topic, partition)

    def _reconfigure(self, topic: TopicInfo, row: int) -> None:
        if row in self.owned:
            with _contained("reconfigure", topic.name, f"row {row}"):
                self.owned[row].log.update_config(self.metadata.log_config(topic))


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


def _delete_records(owned: OwnedPartition, before: int) -> int:
    start_offset = owned.log.delete_records_before(before)
    owned.writer.note_removal()
    return start_offset


_OWNER_TASKS: dict[str, Callable[[OwnedPartition, int], int]] = {"delete_records": _delete_records}

#: How owner tasks are numbered in peer messages.
OWNER_TASK_NAMES: tuple[str, ...] = tuple(_OWNER_TASKS)


def _never(connection: int) -> bool:  # noqa: ARG001
    return False


def _nobody_waits(rows: Sequence[int]) -> None:
    """Stand in for the purgatory until the loop has one."""


def _no_peers(row: int, kind: str, argument: int, pending: PendingAnswer) -> None:
    raise RuntimeError(f"no peers to ask for {kind} {argument} on row {row}: {pending}")


def _no_controller(names: Iterable[str]) -> None:
    raise RuntimeError(f"no controller to create {list(names)}")
