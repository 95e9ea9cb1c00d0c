"""The maintenance of a partition's log by its owner: deleting records, and rolling, removing and swapping segments.

One writer, the handler that owns the partition. `CommittedLog` holds the committed state; `PartitionLog` adds appends.
The caller publishes the changes.
"""

from rotunda.broker.errors import ApiError
from rotunda.broker.log.committed_log import CommittedLog
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode


class MaintainedLog(CommittedLog):
    """The log of one partition, without appends."""

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset` (-1: the log end) unless it is later already; return the log start.

        Segments that end at or below it are removed. They may have records of an open transaction: the transaction
        stays open, and the log is stable up to its start. Raises ApiError OFFSET_OUT_OF_RANGE beyond the end. The
        caller publishes the start.
        """
        if offset == -1:
            offset = self.log_end_offset
        if not 0 <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.last_stable_offset = max(self.last_stable_offset, offset)
            self.remove_segments_below_start()
            if self._epochs.cut_start(offset):
                self._write_epochs()
        return self.log_start_offset

    def remove_segments_below_start(self) -> int:
        """Remove the segments below the log start; return the number of bytes removed."""
        removed_bytes = self._rolled.remove_below(self.log_start_offset, self.segment_base)
        self.size_bytes = self._rolled.size_bytes + self.position
        self._snapshots.files.remove_before(self.segments()[0].base_offset)
        return removed_bytes

    def roll(self) -> bool:
        """Start a new segment at the end; False if the active segment is empty, or has staged batches.

        The caller publishes the new position of the end. Raises LogWriteFailed; without disk space the log is
        unchanged.
        """
        if self.fault or not self.position or self.next_offset != self.log_end_offset:
            return False
        try:
            self._stage_roll()
            self._write_rolls()
        except OSError as error:
            failure = self._write_failed(f"{self.directory}: no new segment", error)
            # The deletion of older segments, which frees space, continues.
            self.catch_up()
            raise failure from error
        self.segment_base = self._segment.base_offset
        self.position = 0
        self.size_bytes = self._rolled.size_bytes
        return True

    def swap_segments(self, swap: SegmentSwap) -> bool:
        """Replace segments with a cleaned segment; False if the segments in the log are not those of the swap.

        Raises OSError when the swap is incomplete: no batches can be appended then, and the swap is completed when the
        log is next opened.
        """
        if self.fault:
            return False
        try:
            done = self._rolled.try_swap(swap)
        except OSError as error:
            self._reject_batches(error)
            raise
        self.size_bytes = self._rolled.size_bytes + self.position
        if done:
            self._snapshots.sweep(self._rolled.bases())
        return done
