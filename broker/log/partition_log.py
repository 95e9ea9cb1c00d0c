"""The log of one partition, as the handler that owns it appends to it. One writer; readers use `log_reader`.

An append has two halves. `stage` judges a batch, gives it its place and remembers it: no I/O, not even for a roll,
and nothing is written into the caller's memory, so a request can be taken again from the ring after a crash.
`commit` writes everything staged in one go. Only when it has returned does the caller publish the new end in shared
memory, and only that makes the batches part of the log: invariant, at every instruction, the batches below the
published end are whole on disk, and whatever else lies there is cut away by the next `open`.
"""

import logging
import random
import struct
from pathlib import Path
from typing import Self

from broker.clock import Clock
from broker.errors import ApiError, RotundaError
from broker.log.append_limits import NO_OFFSET, STORAGE_ERROR, AppendLimits, StageResult, with_append_time
from broker.log.flush_state import NEVER, FlushState
from broker.log.leader_epochs import resume_epochs, write_epochs
from broker.log.log_segment import LogSegment
from broker.log.partition_metadata import PartitionName, read_topic_id, write_topic_id
from broker.log.producer_snapshot import SnapshotFiles, encode
from broker.log.producer_state import ProducerEntry
from broker.log.recovery import (
    Checkpointed,
    LogDamaged,
    PublishedEnd,
    SegmentInfo,
    SegmentShape,
    load_files,
    load_producers,
    new_segment,
)
from broker.log.segment_files import remove_directory, remove_segment_files
from broker.protocol.error_codes import ErrorCode
from broker.protocol.records import LOG_OVERHEAD_BYTES, BatchHeader, RawHeader
from broker.topic_config import LogConfig

__all__ = [
    "Checkpointed",
    "LogDamaged",
    "LogWriteFailed",
    "PartitionLog",
    "PartitionName",
    "PublishedEnd",
    "SegmentInfo",
]

#: Producer state is put on disk when walking what was written since would cost as much as reading this many bytes:
#: about 15 ms, be they few large batches or many small ones.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024

#: Walking over one batch header costs about as much as reading this many bytes.
WALK_BYTES_PER_BATCH = 4 * 1024

DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000

#: Base offset, batch length, leader epoch: what stands first in a batch and is not covered by its checksum.
#: Packed, then copied in: `pack_into` zeroes its target first, and a SIGKILL in between would leave no length.
_HEAD_BYTES = 16
_pack_head = struct.Struct(">qii").pack

_log = logging.getLogger(__name__)

_DUPLICATE = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class LogWriteFailed(RotundaError):  # noqa: N818  # said as it is
    """What was staged could not be written; none of it stands and the log is as it was."""


class PartitionLog:
    """Appends to one partition. `log_end_offset`, `segment_base` and `position` are what is committed.

    `next_offset` is where the next staged batch will stand. After a failed write the log restores itself; if even
    that fails, every further batch is refused with KAFKA_STORAGE_ERROR.
    """

    def __init__(self, directory: Path, name: PartitionName, config: LogConfig, clock: Clock) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.producer_id_expiration_ms = DEFAULT_PRODUCER_ID_EXPIRATION_MS
        self._clock = clock
        self._wall_ms = clock.wall_ms
        self._flush = FlushState(directory)
        self._failed = False
        self._rolled: list[SegmentInfo] = []
        self._pending_rolls: list[tuple[LogSegment, bytes]] = []
        self.update_config(config)

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
        """Return the log in `directory`, which is made if it is not there, cut to what stands (see `recovery`).

        Raises LogDamaged when the files contradict `resume` or belong to another topic, OSError.
        """
        directory.mkdir(parents=True, exist_ok=True)
        topic_id = read_topic_id(directory)
        if topic_id is None:
            write_topic_id(directory, name.topic_id)
        elif topic_id != name.topic_id:
            raise LogDamaged(f"{directory} belongs to topic id {topic_id.hex()}, not {name.topic_id.hex()}")
        log = cls(directory, name, config, clock)
        log.producer_id_expiration_ms = producer_id_expiration_ms
        log._load(resume)
        return log

    def _load(self, resume: PublishedEnd | Checkpointed) -> None:
        files = load_files(self.directory, self._segment_shape, resume)
        self._segment = files.active
        self._rolled = files.rolled
        self._pending_rolls = []
        self.log_end_offset = self.next_offset = self.last_stable_offset = files.end_offset
        bases = [*(info.base_offset for info in files.rolled), files.active.base_offset]
        self.log_start_offset = max(resume.log_start_offset, bases[0])
        self._snapshots = SnapshotFiles(self.directory)
        self._producers = load_producers(self.directory, files, self._snapshots)
        # A replacement must know every producer that its predecessor knew, however old the records' own time is.
        if isinstance(resume, Checkpointed):
            self.expire_producers()
        self._epochs = resume_epochs(
            self.directory, files.epoch_starts, files.end_offset, new_epoch=isinstance(resume, Checkpointed)
        )
        self.leader_epoch = self._epochs.latest
        recovery_point = min(resume.recovery_point, files.end_offset)
        self._flush.reset(recovery_point, bases, self._clock.monotonic_ns())
        self._rolled_bytes = sum(info.size_bytes for info in files.rolled)
        self.segment_base = files.active.base_offset
        self.position = files.active.position
        self.size_bytes = self._rolled_bytes + self.position
        self._replay_bytes = 0
        if files.active.position:
            self._anchor_roll(files.active, files.first_timestamp_ms(), self._wall_ms())
        files.active.close()

    def update_config(self, config: LogConfig) -> None:
        """Take over changed settings; index settings hold from the next segment on."""
        self.config = config
        self._segment_bytes = config.effective_segment_bytes
        self._segment_shape = SegmentShape(config.index_interval_bytes, config.segment_index_bytes)
        self._limits = AppendLimits(config)
        self._limits.is_strict |= self._failed
        self._flush.flush_messages = config.flush_messages
        self._flush.flush_ms = config.flush_ms
        self._flushes = (config.flush_messages, config.flush_ms) != (NEVER, NEVER)

    # ---- appending -----------------------------------------------------------------------------------------------

    def stage(self, batch: memoryview, header: RawHeader) -> StageResult:
        """Judge one whole, valid batch and give it its place. HOT. No I/O; `batch` is read until `commit` returns.

        The place is written into the batch itself: base offset and leader epoch, which its checksum does not cover.
        Returns (0, base offset, log append time or -1); (46, base offset, time) for a duplicate, to be answered as
        the success that it once was, after the next `commit`; else (error code, -1, -1).
        """
        _, length, _, _, _, attributes, delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LOG_OVERHEAD_BYTES
        now_ms = self._wall_ms()
        append_time_ms = -1
        limits = self._limits
        if (
            limits.is_strict
            or size > limits.largest_bytes
            or max_timestamp - now_ms > limits.after_max_ms
            or now_ms - base_timestamp > limits.before_max_ms
        ):
            refusal = STORAGE_ERROR if self._failed else limits.refusal(batch, BatchHeader._make(header), now_ms)
            if refusal is not None:
                return refusal
            if limits.log_append_time:
                append_time_ms = max_timestamp = now_ms
                batch = with_append_time(batch, now_ms)
        producers = self._producers
        if producer_id >= 0:
            verdict = producers.judge(producer_id, epoch, sequence, delta, attributes)
            if verdict:
                return self._verdict(verdict, producer_id, sequence, delta)
        base_offset = self.next_offset
        last_offset = base_offset + delta
        batch[:_HEAD_BYTES] = _pack_head(base_offset, length, self.leader_epoch)
        segment = self._segment
        if not segment.staged_position:
            self._anchor_roll(segment, max_timestamp, now_ms)
            segment.stage(batch, size, last_offset, max_timestamp)
        elif not segment.try_stage(batch, size, last_offset, max_timestamp, now_ms):
            self._stage_roll(max_timestamp, now_ms).stage(batch, size, last_offset, max_timestamp)
        if producer_id >= 0:
            producers.append(header, base_offset, delta, max_timestamp)
        self.next_offset = last_offset + 1
        return 0, base_offset, append_time_ms

    def _verdict(self, verdict: int, producer_id: int, sequence: int, delta: int) -> StageResult:
        """Return the answer to a batch that its producer's state does not admit."""
        if verdict != _DUPLICATE:
            return verdict, NO_OFFSET, -1
        known = self._producers.find_duplicate(producer_id, sequence, delta)
        if known is None:
            raise AssertionError(f"duplicate of no known batch: producer {producer_id}, sequence {sequence}")
        return verdict, known.first_offset, known.timestamp_ms if self._limits.log_append_time else -1

    def _stage_roll(self, first_timestamp_ms: int, now_ms: int) -> LogSegment:
        """Go on in a new segment, in memory; `commit` makes it so on disk."""
        self._pending_rolls.append((self._segment, encode(self._producers.entries.values())))
        self._segment = new_segment(self.directory, self.next_offset, self._segment_shape, existing=False)
        self._anchor_roll(self._segment, first_timestamp_ms, now_ms)
        return self._segment

    def _anchor_roll(self, segment: LogSegment, first_timestamp_ms: int, now_ms: int) -> None:
        jitter_ms = min(self.config.segment_jitter_ms, self.config.effective_segment_ms)
        early_ms = random.randrange(jitter_ms) if jitter_ms else 0  # noqa: S311  # spreads rolls, guards nothing
        roll_after_ms = self.config.effective_segment_ms - early_ms
        segment.anchor_roll(first_timestamp_ms, now_ms, roll_after_ms, self.config.effective_segment_bytes)

    def commit(self) -> bool:
        """Write everything staged. HOT. Return whether there was anything: the caller then publishes the new end.

        Raises LogWriteFailed when it could not be written whole; nothing of it stands then.
        """
        next_offset = self.next_offset
        if next_offset == self.log_end_offset:
            return False
        segment = self._segment
        try:
            if self._pending_rolls:
                self._write_rolls()
            batches = segment.write()
            if self._flushes:
                self._flush_as_configured(segment, next_offset)
        except OSError as error:
            self._restore()
            raise LogWriteFailed(f"{segment.path}: {error}") from error
        self.log_end_offset = self.last_stable_offset = next_offset
        self.segment_base = segment.base_offset
        self.position = position = segment.position
        size_bytes = self._rolled_bytes + position
        self._replay_bytes += size_bytes - self.size_bytes + batches * WALK_BYTES_PER_BATCH
        self.size_bytes = size_bytes
        if self._replay_bytes >= SNAPSHOT_INTERVAL_BYTES:
            self._take_snapshot()
        return True

    def _write_rolls(self) -> None:
        """Write the segments that are complete and begin those that follow. Raises OSError."""
        successors = [segment for segment, _ in self._pending_rolls[1:]] + [self._segment]
        for (segment, snapshot), successor in zip(self._pending_rolls, successors, strict=True):
            segment.write()
            segment.become_inactive()
            self._rolled.append(SegmentInfo(segment.base_offset, segment.position))
            self._rolled_bytes += segment.position
            self._flush.note_roll(segment.base_offset, self._clock.monotonic_ns())
            self._snapshots.write(successor.base_offset, snapshot)
            successor.create(self._segment_bytes if self.config.preallocate else 0)
        self._pending_rolls = []
        self._replay_bytes = 0
        self._snapshots.sweep([info.base_offset for info in self._rolled])

    def _flush_as_configured(self, segment: LogSegment, end_offset: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if self._flush.is_due_at(end_offset):
            try:
                self._flush.sync_data(segment.fileno(), end_offset, now_ns)
            except OSError:
                self._go_offline()
                raise
        self._flush.note_commit(now_ns)

    def _take_snapshot(self) -> None:
        """Put producer state on disk. That it cannot be written costs a longer walk after a crash and nothing else."""
        self._replay_bytes = 0
        try:
            self._snapshots.write(self.log_end_offset, encode(self._producers.entries.values()))
            self._snapshots.sweep([info.base_offset for info in self._rolled])
        except OSError as error:
            _log.warning("%s: no producer snapshot at %d: %s", self.directory, self.log_end_offset, error)

    def discard_staged(self) -> None:
        """Forget what was staged and not committed."""
        if self.next_offset != self.log_end_offset:
            self._restore()

    def _restore(self) -> None:
        """Go back to what is committed, on disk and in memory; refuse everything if even that fails."""
        for segment, _ in self._pending_rolls:
            segment.close()
        self._segment.close()
        try:
            self._load(
                PublishedEnd(
                    self.log_end_offset,
                    self.segment_base,
                    self.position,
                    self.log_start_offset,
                    self.recovery_point,
                )
            )
        except (OSError, LogDamaged):
            self._go_offline()

    # ---- durability ----------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Offset below which everything is durable."""
        return self._flush.recovery_point

    def flush_due_ns(self) -> int | None:
        """Return the monotonic time at which `flush` should be called, or None while there is nothing to do."""
        return self._flush.due_ns

    def flush(self) -> None:
        """Make everything committed durable. Raises LogWriteFailed.

        The log is offline then: a write that the kernel failed to bring to disk once is not tried again by it.
        """
        try:
            self._flush.sync_rolled()
            self._segment.sync()
        except OSError as error:
            self._go_offline()
            raise LogWriteFailed(f"{self.directory}: {error}") from error
        self._flush.done(self.log_end_offset)

    def _go_offline(self) -> None:
        _log.exception("%s: offline", self.directory)
        self.next_offset = self.log_end_offset
        self._failed = self._limits.is_strict = True

    # ---- the rest ------------------------------------------------------------------------------------------------

    def segments(self) -> list[SegmentInfo]:
        """Return the segments, oldest first, as committed."""
        return [*self._rolled, SegmentInfo(self.segment_base, self.position)]

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset` (-1: its end) unless it starts later already; return where it starts.

        Whole segments below that are removed. Raises ApiError OFFSET_OUT_OF_RANGE beyond the end. The caller
        publishes the start.
        """
        if offset == -1:
            offset = self.log_end_offset
        if not 0 <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._remove_segments_below(offset)
            if self._epochs.cut_start(offset):
                write_epochs(self.directory, self._epochs, durable=False)
        return self.log_start_offset

    def _remove_segments_below(self, offset: int) -> None:
        """Remove the segments all of whose records are below `offset`, oldest first; never the one appended to."""
        while self._rolled:
            following = self._rolled[1].base_offset if len(self._rolled) > 1 else self.segment_base
            if following > offset:
                break
            info = self._rolled.pop(0)
            remove_segment_files(self.directory, info.base_offset)
            self._rolled_bytes -= info.size_bytes
            self.size_bytes -= info.size_bytes
        self._snapshots.remove_before(self.segments()[0].base_offset)

    def active_producers(self) -> list[ProducerEntry]:
        """Return the state of every producer, for reading."""
        return list(self._producers.entries.values())

    def expire_producers(self) -> None:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`."""
        self._producers.expire(self._wall_ms(), self.producer_id_expiration_ms)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when not known (KIP-320)."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def close(self, *, clean: bool = True) -> None:
        """Let go of the files; `clean` also makes everything durable, so that the next open checks nothing."""
        self.discard_staged()
        if clean and not self._failed and self.recovery_point != self.log_end_offset:
            self._segment.finish_time_index()
            self._take_snapshot()
            self._snapshots.sync_newest()
            self.flush()
        self._segment.close()

    def delete(self) -> None:
        """Remove the log. Its directory is first renamed, so that a half-removed one is never taken for a log."""
        self._segment.close()
        remove_directory(self.directory)
