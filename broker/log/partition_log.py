"""The log of one partition, with the appends of its owner. One writer, that handler; readers use `log_reader`.

An append has two halves. `stage` validates a batch, assigns its offset and buffers it: no I/O, not even for a roll.
Only the offset is written into the caller's memory, so a request can be read again from the ring after a crash. A batch
that is slow to validate is validated before, by `validate`, which does not modify its memory. A batch that is slow to
write is written beyond the end of the file before it is staged, by `write_ahead`: it is not part of the log either.

`commit` writes all staged batches at once. Only when it has returned does the caller publish the new end in shared
memory, and only that makes the batches part of the log: invariant, at every instruction, the batches below the
published end are whole on disk, and anything beyond it is removed by the next `open`.
"""

import struct
from collections.abc import Callable

from rotunda.broker.log.committed_log import AppendHold, LogWriteFailed
from rotunda.broker.log.disk_room import NO_ROOM
from rotunda.broker.log.maintained_log import MaintainedLog
from rotunda.broker.log.partition_metadata import PartitionName
from rotunda.broker.log.producers.producer_entry import ProducerEntry
from rotunda.broker.log.producers.snapshot_schedule import WALK_BYTES_MORE_PER_MARKER, WALK_BYTES_PER_BATCH
from rotunda.broker.log.recovery import Checkpointed, LogDamaged, PublishedEnd, SegmentInfo
from rotunda.broker.log.validation.append_limits import (
    NO_OFFSET,
    STORAGE_ERROR,
    TO_BE_VALIDATED,
    Admitted,
    StageResult,
    Validated,
)
from rotunda.broker.log.validation.record_walk import is_as_claimed
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    RawHeader,
    patch_base_offset,
    patch_log_append_time,
    unpack_header,
)
from rotunda.broker.records.record_writer import EndTransactionMarker, end_transaction_marker
from rotunda.broker.steps import Steps

__all__ = [
    "AppendHold",
    "Checkpointed",
    "LogDamaged",
    "LogWriteFailed",
    "PartitionLog",
    "PartitionName",
    "PublishedEnd",
    "SegmentInfo",
]

#: Base offset, batch length, leader epoch: the first fields of a batch, not covered by its checksum. Packed, then
#: copied in: `pack_into` zeroes its target first, and a SIGKILL in between would leave no length.
_HEAD_BYTES = 16
_pack_head = struct.Struct(">qii").pack
_OFFSET_BYTES = 8
_pack_offset = struct.Struct(">q").pack

#: Attributes of a batch that is never stored by its header alone.
_ADMITTED_BITS = CODEC_MASK | LOG_APPEND_TIME_BIT

#: Attempts to write a batch ahead: transaction markers may be appended before it each time.
_ATTEMPTS = 3


class PartitionLog(MaintainedLog):
    """Appends to one partition.

    After a write that failed for lack of space the log waits to be restored (`catch_up`). After any other error it is
    offline. In both cases every further batch is rejected with KAFKA_STORAGE_ERROR; the committed records can still be
    read and deleted.
    """

    #: The batch that is being written ahead; until `end_ahead`, batches of other clients are TO_BE_VALIDATED.
    _ahead: memoryview | None = None

    def validate(self, batch: memoryview, header: BatchHeader) -> Steps[Validated]:
        """Return in steps the `validated` argument of `stage`, for a batch slow to validate. Changes no state."""
        return self._limits.admit(batch, header, self._wall_ms())

    def stage(
        self, batch: memoryview, header: RawHeader, *, is_own: bool = False, validated: Validated | None = None
    ) -> StageResult:
        """Validate one whole, valid batch and assign its offset. HOT. No I/O; `batch` is read until `commit` returns.

        The base offset and leader epoch are written into the batch itself, where its checksum does not cover them. The
        stored batch may be a copy with other contents; then the base offset is written into both.

        Returns (0, base offset, log append time or -1); (46, base offset, time) for a duplicate, which is acknowledged
        like the original after the next `commit`; else (error code, -1, -1). That is TO_BE_VALIDATED if the batch needs
        the result of `validate`, or waits for `write_ahead`. An `is_own` batch, of this process, is stored unchanged.
        """
        _, length, _, _, _, attributes, delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LOG_OVERHEAD_BYTES
        now_ms = self._wall_ms()
        append_time_ms = -1
        sent = None
        limits = self._limits
        if limits.is_strict or not (
            is_own
            or (
                size <= limits.at_once_bytes
                and delta < limits.most_records
                and not attributes & _ADMITTED_BITS
                and max_timestamp - now_ms <= limits.after_max_ms
                and now_ms - base_timestamp <= limits.before_max_ms
                and (
                    is_as_claimed(batch, delta + 1, base_timestamp, max_timestamp)
                    if limits.validates
                    else 0 <= max_timestamp >= base_timestamp
                )
            )
        ):
            stored = self._stored(batch, header, now_ms, validated, is_own=is_own)
            if isinstance(stored, tuple):
                return stored
            sent, batch = batch, stored
            size = len(batch)
            length = size - LOG_OVERHEAD_BYTES
            max_timestamp = unpack_header(batch)[8]
            if limits.log_append_time and not is_own:
                append_time_ms = now_ms
        producers = self._producers
        if producer_id >= 0:
            verdict = producers.validate(producer_id, epoch, sequence, delta, attributes)
            if verdict:
                return self._verdict(verdict, producer_id, sequence, delta)
        base_offset = self.next_offset
        last_offset = base_offset + delta
        if sent is not None:
            # For a copy the note belongs in the batch as received.
            sent[:_OFFSET_BYTES] = _pack_offset(base_offset)
        batch[:_HEAD_BYTES] = _pack_head(base_offset, length, self.leader_epoch)
        if not self._segment.try_stage(batch, size, last_offset, max_timestamp, now_ms):
            self._stage_first(batch, size, last_offset, max_timestamp, now_ms)
        if producer_id >= 0:
            producers.append(header, base_offset, delta, max_timestamp if max_timestamp >= 0 else now_ms)
        self.next_offset = last_offset + 1
        return 0, base_offset, append_time_ms

    def _stored(
        self, batch: memoryview, header: RawHeader, now_ms: int, validated: Validated | None, *, is_own: bool
    ) -> memoryview | StageResult:
        """Return the stored form of a batch, or the reason for its rejection."""
        if self.fault or self._held > is_own:
            return STORAGE_ERROR
        if is_own:
            return batch
        limits = self._limits
        validated = validated or limits.admit_at_once(batch, BatchHeader._make(header), now_ms) or TO_BE_VALIDATED
        if isinstance(validated, tuple):
            return validated
        if self._ahead is not None and validated.batch is not self._ahead:
            return TO_BE_VALIDATED
        return _with_append_time(validated, now_ms) if limits.log_append_time else validated.batch

    def begin_ahead(self, batch: memoryview) -> None:
        """Make batches of other clients wait until `end_ahead` for a large one, which is written ahead and staged."""
        self._ahead = batch
        self._set_strictness()

    def write_ahead(self, batch: memoryview, rolled: Callable[[], None]) -> Steps[None]:
        """Write a large batch in steps to its expected position, beyond the end of the log.

        Nothing is staged when this begins. `rolled` is called when a new segment with room for the batch was created.
        If the end moves meanwhile, because this process appends, the batch is written again, or in the end by the
        commit like any other. Passing write errors, as a full disk, are left to the commit; after a permanent error the
        log is offline.
        """
        for _ in range(_ATTEMPTS):
            try:
                if not self._segment.fits(len(batch)) and self.roll():
                    rolled()
                segment, position = self._segment, self._segment.position
                if self.fault or self._held or self._pending_rolls or not segment.fits(len(batch)):
                    return
                for _ in segment.write_ahead(batch):
                    yield
                    if self.fault or self._held or self._segment is not segment:
                        break
            except LogWriteFailed:
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    self._reject_batches(error)
                return
            if self._segment is segment and segment.position == position:
                return

    def end_ahead(self) -> None:
        """Accept batches of all clients again; an unstaged batch that was written ahead is discarded."""
        self._ahead = None
        self._set_strictness()
        self._segment.forget_ahead()

    def close(self, *, clean: bool = True, moves: bool = False) -> None:
        """Close the files (see `CommittedLog.close`), and discard a batch that is being written ahead."""
        if self._ahead is not None:
            self.end_ahead()
        super().close(clean=clean, moves=moves)

    def _set_strictness(self) -> None:
        super()._set_strictness()
        self._limits.is_strict |= self._ahead is not None

    def stage_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        transaction_version: int = 0,
    ) -> StageResult:
        """Stage the control batch that ends a producer's transaction here, for WriteTxnMarkers.

        It is written even if no transaction is open. Returns (0, its offset, -1), or (error code, -1, -1):
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        if self.fault or self._held is AppendHold.EVERYTHING:
            return STORAGE_ERROR
        producers = self._producers
        error = producers.validate_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if error:
            return error, NO_OFFSET, -1
        now_ms, offset = self._wall_ms(), self.next_offset
        batch = end_transaction_marker(producer_id, producer_epoch, coordinator_epoch, commit, now_ms)
        patch_base_offset(batch, offset, self.leader_epoch)
        size = len(batch)
        if not self._segment.try_stage(batch, size, offset, now_ms, now_ms):
            self._stage_first(batch, size, offset, now_ms, now_ms)
        marker = EndTransactionMarker(commit, coordinator_epoch)
        self._snapshots.left_bytes -= WALK_BYTES_MORE_PER_MARKER
        aborted = producers.end_transaction(producer_id, producer_epoch, marker, offset, now_ms)
        if aborted is not None:
            self._segment.transaction_index.stage(aborted)
        self.next_offset = offset + 1
        return 0, offset, -1

    def ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer has a transaction open in this partition, in this epoch. HOT (KIP-890)."""
        return self._producers.ongoing_transaction(producer_id, producer_epoch)

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer has written to this partition in a later epoch."""
        entry = self._producers.get(producer_id)
        return entry is not None and producer_epoch < entry.epoch

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return the producer id and the first offset of each open transaction."""
        return list(self._producers.open_transactions.items())

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer, or None."""
        return self._producers.get(producer_id)

    def knows_producer(self, producer_id: int) -> bool:
        """Return whether the state of a producer is cached: it has written a batch and is not expired."""
        return producer_id in self._producers

    def _verdict(self, verdict: int, producer_id: int, sequence: int, delta: int) -> StageResult:
        """Return the result for a batch that is rejected by its producer's state, or is a duplicate."""
        if verdict != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return verdict, NO_OFFSET, -1
        known = self._producers.find_duplicate(producer_id, sequence, delta)
        if known is None:
            raise AssertionError(f"duplicate of an unknown batch: producer {producer_id}, sequence {sequence}")
        return verdict, known.first_offset, known.timestamp_ms if self._limits.log_append_time else -1

    def _stage_first(
        self, batch: memoryview | bytearray, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Stage the first batch of a segment: of the active one if it is empty, else of the next."""
        if self._segment.staged_position:
            self._stage_roll()
        self._rolls.anchor(self._segment, max_timestamp, now_ms)
        self._segment.stage(batch, size, last_offset, max_timestamp)

    def commit(self) -> bool:
        """Write all staged batches. HOT. Return whether there were any: the caller then publishes the new end.

        Raises LogWriteFailed when the write was incomplete; none of the batches is committed then, and `catch_up`
        removes the partial write.
        """
        next_offset = self.next_offset
        if next_offset == self.log_end_offset:
            return False
        segment = self._segment
        if self._is_first_commit:
            self._write_new_epoch()
        try:
            if self._pending_rolls:
                self._write_rolls()
            batches = segment.write()
            if self._flushes:
                self._flush_as_configured(segment, next_offset)
        except OSError as error:
            raise self._write_failed(segment.path, error) from error
        self.log_end_offset = next_offset
        self.last_stable_offset = self._stable_end(next_offset) if self._producers.open_transactions else next_offset
        self.segment_base = segment.base_offset
        self.position = position = segment.position
        size_bytes = self._rolled.size_bytes + position
        snapshots = self._snapshots
        snapshots.left_bytes -= size_bytes - self.size_bytes + batches * WALK_BYTES_PER_BATCH
        if snapshots.left_bytes <= 0:
            snapshots.write(next_offset, self._producers, self._rolled.bases())
        self.size_bytes = size_bytes
        return True


def _with_append_time(admitted: Admitted, now_ms: int) -> memoryview:
    """Return a batch with the broker's time at its staging, so that times ascend with offsets."""
    batch = admitted.batch if admitted.is_copy else memoryview(bytearray(admitted.batch))
    patch_log_append_time(batch, now_ms)
    return batch
