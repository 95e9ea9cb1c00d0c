"""The committed part of a partition's log: its segments, its end offsets, its durable part.

One writer, the handler that owns the partition. `MaintainedLog` adds the operations that free disk space,
`PartitionLog` adds appends. Staged batches become part of the log with a commit. A failure before the commit is rolled
back here, in memory and on disk, with the same functions that a replacement of the owner uses (`recovery`).
"""

import errno
import logging
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rotunda.broker.clock import Clock
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import RotundaError
from rotunda.broker.log.disk_room import NO_DESCRIPTOR, NO_ROOM
from rotunda.broker.log.flush_state import NEVER, FlushState
from rotunda.broker.log.flusher import FlushJob
from rotunda.broker.log.leader_epochs import resume_epochs, write_epochs
from rotunda.broker.log.partition_metadata import PartitionName
from rotunda.broker.log.producers.producer_entry import ProducerEntry
from rotunda.broker.log.producers.producer_recovery import load_producers
from rotunda.broker.log.producers.producer_snapshot import encode
from rotunda.broker.log.producers.snapshot_schedule import SnapshotSchedule
from rotunda.broker.log.recovery import (
    Checkpointed,
    LoadedFiles,
    LogDamaged,
    PublishedEnd,
    SegmentInfo,
    load_files,
    new_segment,
    restore_files,
)
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from rotunda.broker.log.segments.roll_policy import RollPolicy
from rotunda.broker.log.segments.rolled_segments import RolledSegments
from rotunda.broker.log.segments.segment_files import remove_directory
from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.native import compiled
from rotunda.broker.text_table import counted

DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000

_log = logging.getLogger(__name__)


class LogWriteFailed(RotundaError):  # noqa: N818  # said as it is
    """The staged batches could not be written; none of them is committed. The log is unchanged or offline (`fault`)."""

    def __init__(self, reason: str, error: OSError) -> None:
        super().__init__(f"{reason}: {error}")
        self.errno = error.errno or errno.EIO


class AppendHold(IntEnum):
    """Batches that are rejected although the log could append them."""

    NOTHING = 0
    #: Batches of clients.
    CLIENTS = 1
    #: Also the batches of this process.
    EVERYTHING = 2


class LogFields:
    """The attributes of a log that compiled code reads and writes (`broker/native/cached_requests.c`)."""

    __slots__ = ("_limits", "_segment", "leader_epoch", "next_offset")


if not TYPE_CHECKING and compiled is not None:
    LogFields = compiled.LogFields


class CommittedLog(LogFields):
    """The committed log of one partition, up to `log_end_offset`, in the file at `segment_base` and `position`.

    `next_offset` is the offset of the next staged batch; below `last_stable_offset` no transaction is open. `fault` is
    the error number with which the log went offline, 0 while it accepts batches. After a write that failed for lack of
    space it is one of `NO_ROOM`: batches are rejected until `catch_up` has restored the committed state. Any other
    error is permanent.
    """

    def __init__(self, directory: Path, name: PartitionName, config: LogConfig, clock: Clock) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.producer_id_expiration_ms = DEFAULT_PRODUCER_ID_EXPIRATION_MS
        self._clock = clock
        self._wall_ms = clock.wall_ms
        self._flush = FlushState(directory)
        self.fault = 0
        self._held = AppendHold.NOTHING
        self._rolled = RolledSegments(directory, [])
        self._pending_rolls: list[tuple[LogSegment, list[bytes]]] = []
        self._is_first_commit = True
        #: Base offsets of segments begun by a failed write, which are not part of the log; removed when the log is
        #: restored.
        self._begun: set[int] = set()
        self._apply_config(config)

    @classmethod
    def open(
        cls,
        directory: Path,
        name: PartitionName,
        config: LogConfig,
        clock: Clock,
        resume: PublishedEnd | Checkpointed,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
    ) -> Self:
        """Open the log in `directory`, creating it if missing, cut to the committed batches (see `recovery`).

        Raises LogDamaged when the files contradict `resume`, OSError.
        """
        if not directory.is_dir():
            directory.mkdir(parents=True)
        log = cls(directory, name, config, clock)
        log.producer_id_expiration_ms = producer_id_expiration_ms
        log._load(resume)
        log._snapshots.opened(log.log_end_offset, log._producers, log._rolled.bases())
        return log

    def _load(self, resume: PublishedEnd | Checkpointed) -> None:
        files = load_files(self.directory, self._rolls.shape, resume)
        bases = files.bases()
        self.log_start_offset = max(resume.log_start_offset, bases[0])
        self._rolled = RolledSegments(self.directory, files.rolled)
        self._snapshots = SnapshotSchedule(self.directory)
        self._adopt_files(files, resume.recovery_point)
        if isinstance(resume, Checkpointed) and self._producers.open_transactions:
            _log.info(
                "%s: last stable offset %d, log end %d: open transactions of %s",
                self.directory,
                self.last_stable_offset,
                self.log_end_offset,
                counted(len(self._producers.open_transactions), "producer"),
            )
        # A replacement must have every producer of its predecessor, however old the timestamps of the records are.
        if isinstance(resume, Checkpointed):
            self.expire_producers()
        self._epochs = resume_epochs(
            self.directory,
            files.epoch_starts,
            files.end_offset,
            bases,
            least_epoch=resume.leader_epoch if isinstance(resume, PublishedEnd) else None,
        )
        self._is_first_commit = True
        self.leader_epoch = self._epochs.latest

    def _write_new_epoch(self) -> None:
        """Write the epoch of this run to disk, before its first batch. Raises LogWriteFailed.

        Idle logs then add nothing to the start time, and readers of the files know the epoch of every batch.
        """
        try:
            OPEN_SEGMENTS.with_room(lambda: write_epochs(self.directory, self._epochs, durable=False))
        except OSError as error:
            raise self._write_failed(self.directory, error) from error
        self._is_first_commit = False

    def _adopt_files(self, files: LoadedFiles, recovery_point: int) -> None:
        """Continue from files that hold exactly the committed batches. Raises OSError."""
        self._segment = files.active
        self._pending_rolls = []
        self.log_end_offset = self.next_offset = files.end_offset
        self._producers = load_producers(self.directory, files, self._snapshots)
        self.last_stable_offset = self._stable_end(files.end_offset)
        self._flush.reset(min(recovery_point, files.end_offset), files.bases(), self._clock.monotonic_ns())
        self.segment_base = files.active.base_offset
        self.position = files.active.position
        self.size_bytes = self._rolled.size_bytes + self.position
        if files.active.position:
            self._rolls.anchor(files.active, files.first_timestamp_ms(), self._wall_ms())
        files.active.close()

    def update_config(self, config: LogConfig) -> None:
        """Apply changed settings; index settings apply from the next segment on."""
        self._apply_config(config)
        self._rolls.change(self._segment)

    def _apply_config(self, config: LogConfig) -> None:
        self.config = config
        self._rolls = RollPolicy(config)
        self._limits = AppendLimits(config)
        self._set_strictness()
        self._flush.flush_messages = config.flush_messages
        self._flush.flush_ms = config.flush_ms
        self._flushes = (config.flush_messages, config.flush_ms) != (NEVER, NEVER)

    def _set_strictness(self) -> None:
        """Update `is_strict`: whether every batch is validated in full."""
        self._limits.is_strict = self._limits.is_always_strict or bool(self.fault or self._held)

    # ---- rolls and failures --------------------------------------------------------------------------------------

    def _stable_end(self, end_offset: int) -> int:
        """Return the last stable offset of a log that ends at `end_offset`: no transaction below it is open."""
        return max(self._producers.stable_end(end_offset), self.log_start_offset)

    def _stage_roll(self) -> None:
        """Start a new segment in memory; `_write_rolls` creates it on disk."""
        self._pending_rolls.append((self._segment, encode(self._producers)))
        self._segment = new_segment(self.directory, self.next_offset, self._rolls.shape, existing=False)

    def _write_rolls(self) -> None:
        """Write the complete segments and create their successors. Raises OSError."""
        successors = [segment for segment, _ in self._pending_rolls[1:]] + [self._segment]
        for (segment, snapshot), successor in zip(self._pending_rolls, successors, strict=True):
            segment.write()
            segment.become_inactive()
            self._rolled.append(segment.base_offset, segment.position)
            self._flush.note_roll(segment.base_offset, self._clock.monotonic_ns())
            self._snapshots.files.write(successor.base_offset, snapshot)
            successor.create(self._rolls.preallocate_bytes)
        self._pending_rolls = []
        self._snapshots.note_rolls(self._rolled.bases())

    def _flush_as_configured(self, segment: LogSegment, end_offset: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if self._flush.is_due_at(end_offset):
            try:
                self._flush.sync_data(segment.fileno(), end_offset, now_ns)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    self._set_offline(error)
                raise
        self._flush.note_commit(now_ns)

    def discard_staged(self) -> None:
        """Discard the staged, uncommitted batches."""
        if self.next_offset != self.log_end_offset:
            self._restore()

    def _forget_staged(self) -> None:
        """Discard the staged batches, and close the files that were begun for them."""
        staged = [self._segment, *(segment for segment, _ in self._pending_rolls)]
        for segment in staged:
            segment.close()
        begun = [*(each.base_offset for each in staged), *self._rolled.forget_from(self.segment_base)]
        self._begun.update(base_offset for base_offset in begun if base_offset > self.segment_base)
        self._pending_rolls = []
        self.next_offset = self.log_end_offset

    def _restore(self) -> None:
        """Return to the committed state, on disk and in memory; reject all batches while that fails too."""
        self._forget_staged()
        end = PublishedEnd(self.log_end_offset, self.segment_base, self.position, self.log_start_offset)
        try:
            files = restore_files(self.directory, self._rolled.infos, self._begun, self._rolls.shape, end)
            self._snapshots.reset()
            self._adopt_files(files, self.recovery_point)
            self._begun = set()
        except (OSError, LogDamaged) as error:
            is_passing = not self.fault and isinstance(error, OSError) and error.errno in NO_ROOM
            self._set_offline(error, is_passing=is_passing)

    def _write_failed(self, action: object, error: OSError) -> LogWriteFailed:
        """Return the exception to raise. Without space the log waits for `catch_up`; any other error makes it offline.

        Such an error may have damaged adjacent data: after one error the disk is not used again for this log.
        """
        if error.errno in NO_DESCRIPTOR:
            # Restoring the log opens directories and files.
            OPEN_SEGMENTS.make_room()
        if error.errno not in NO_ROOM:
            if not self.fault:
                self._set_offline(error)
        elif self.fault:
            self._restore()
        else:
            self._forget_staged()
            self.fault = error.errno or errno.ENOSPC
            self._set_strictness()
        return LogWriteFailed(str(action), error)

    def hold(self, hold: AppendHold) -> None:
        """Reject batches from now on, or accept them again. O(1), because up to ten thousand logs are updated."""
        self._held = hold
        self._set_strictness()

    @property
    def needs_catch_up(self) -> bool:
        """Whether `catch_up` has something to do after a write that failed for lack of space."""
        return self.fault in NO_ROOM or not self._epochs.is_stored

    def catch_up(self) -> None:
        """Recover from a write that failed for lack of space: roll back the partial write, then accept batches again.

        The rollback needs no disk space, only file descriptors.
        """
        if self.fault in NO_ROOM:
            self.fault = 0
            self._restore()
            self._set_strictness()
        if not self._epochs.is_stored:
            self._write_epochs()

    def check_present(self) -> None:
        """Make the log offline if its active segment file was removed or replaced: appends could never be read."""
        if self.fault or self._segment.is_present():
            return
        missing = FileNotFoundError(errno.ENOENT, "removed during an append", str(self._segment.path))
        self._set_offline(missing)

    # ---- durability ----------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Offset below which everything is durable."""
        return self._flush.recovery_point

    def flush_due_ns(self) -> int | None:
        """Return the monotonic time at which `flush` is due, or None if there is nothing to flush."""
        # A partial write is not made durable: it is removed.
        return None if self.fault in NO_ROOM else self._flush.due_ns

    def on_flush_due(self, note: Callable[[], None]) -> None:
        """Call ``note`` whenever a flush gets its due time; now if one has it already."""
        self._flush.on_due = note
        if self._flush.due_ns is not None:
            note()

    def flush(self) -> None:
        """Make everything committed durable. Raises LogWriteFailed.

        The log is offline then: the kernel does not retry a write-back that has failed.
        """
        try:
            self._flush.sync_rolled()
            self._segment.sync()
        except OSError as error:
            self._set_offline(error)
            raise LogWriteFailed(str(self.directory), error) from error
        self._flush.done(self.log_end_offset)

    def begin_flush(self) -> FlushJob:
        """Return a job that makes everything committed durable; `end_flush` records its result."""
        return self._flush.begin(self.segment_base, self.log_end_offset)

    def end_flush(self, job: FlushJob, error: OSError | None) -> None:
        """Record the result of a flush job. After an error the log is offline, as after `flush`.

        Files that could not be opened for lack of a descriptor are unchanged: they are flushed later.
        """
        if error is None:
            self._flush.end(job)
        elif error.errno in NO_DESCRIPTOR:
            self._flush.put_off(self._clock.monotonic_ns())
        else:
            # An offline log is never caught up later.
            self.catch_up()
            self._set_offline(error)

    def reject_everything(self) -> None:
        """Reject all further batches: the staged batches, and so the state in memory, may be wrong."""
        self._set_offline(RuntimeError("an internal error, see above"))

    def _set_offline(self, error: Exception, *, is_passing: bool = False) -> None:
        self.next_offset = self.log_end_offset
        self._reject_batches(error, is_passing=is_passing)

    def _reject_batches(self, error: Exception, *, is_passing: bool = False) -> None:
        """Reject further batches; batches that are already staged may still be written."""
        until = "there is space" if is_passing else "the broker is restarted"
        _log.error("%s is offline and rejects records until %s: %s", self.directory, until, error)
        number = getattr(error, "errno", None) or errno.EIO
        self.fault = errno.EIO if number in NO_ROOM and not is_passing else number
        self._limits.is_strict = True

    # ---- the rest ------------------------------------------------------------------------------------------------

    def segments(self) -> list[SegmentInfo]:
        """Return the committed segments, oldest first."""
        return [*self._rolled.infos, SegmentInfo(self.segment_base, self.position)]

    def _write_epochs(self) -> None:
        """Write the epochs to disk. A failure, as on a full disk, does not prevent the deletion of records."""
        try:
            write_epochs(self.directory, self._epochs, durable=False)
        except OSError as error:
            _log.warning("%s: the leader epochs cannot be written: %s", self.directory, error)

    def active_producers(self) -> Iterator[ProducerEntry]:
        """Iterate over the state of all producers, read-only; each entry is current when it is returned."""
        return iter(self._producers)

    @property
    def producer_ids(self) -> int:
        """Number of cached producers."""
        return len(self._producers)

    def expire_producers(self) -> None:
        """Expire producers that wrote nothing for `producer.id.expiration.ms`."""
        self._producers.expire(self._wall_ms(), self.producer_id_expiration_ms)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) as in OffsetForLeaderEpoch; (-1, -1) for an unknown epoch (KIP-320)."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def close(self, *, clean: bool = True, moves: bool = False) -> None:
        """Close the files; `clean` also makes everything durable, so that the next open checks nothing.

        With `moves`, only the producer state is written: the next owner, in the same run of the broker, reads no
        batches.
        """
        self.discard_staged()
        self.catch_up()
        if moves and not self.fault and self._snapshots.files.offsets[-1:] != [self.log_end_offset]:
            self._snapshots.write(self.log_end_offset, self._producers, self._rolled.bases())
        if clean and not self.fault and self.recovery_point != self.log_end_offset:
            self._segment.finish_time_index()
            self._snapshots.write(self.log_end_offset, self._producers, self._rolled.bases())
            self._snapshots.files.sync_newest()
            self.flush()
        self._segment.close()

    def delete(self) -> None:
        """Delete the log. Its directory is renamed first, so that a partly deleted one is never opened as a log."""
        self._segment.close()
        remove_directory(self.directory)
