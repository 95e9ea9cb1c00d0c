"""A partition's log as its owner makes room in it: records are deleted, segments are rolled, removed and swapped.

One writer, the handler that owns the partition. What stands is the business of `CommittedLog`; `PartitionLog` adds the
appending. The caller publishes what has changed.
"""

from rotunda.broker.errors import ApiError
from rotunda.broker.log.committed_log import CommittedLog
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode


class MaintainedLog(CommittedLog):
    """The log of one partition, but for appending."""

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset` (-1: its end) unless it starts later already; return where it starts.

        Whole segments below that are removed. Records of an open transaction may be among them: the transaction
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
        """Remove the segments that the log has no more use for; return how many bytes they had."""
        removed_bytes = self._rolled.remove_below(self.log_start_offset, self.segment_base)
        self.size_bytes = self._rolled.size_bytes + self.position
        self._snapshots.files.remove_before(self.segments()[0].base_offset)
        return removed_bytes

    def roll(self) -> bool:
        """Begin a new segment at the end; False if the last one is empty, or something is staged for it.

        The caller publishes the new place of the end. Raises LogWriteFailed; without room the log is as it was.
        """
        if self.fault or not self.position or self.next_offset != self.log_end_offset:
            return False
        try:
            self._stage_roll()
            self._write_rolls()
        except OSError as error:
            failure = self._write_failed(f"{self.directory}: no new segment", error)
            # Removing older ones, which makes room, goes on.
            self.catch_up()
            raise failure from error
        self.segment_base = self._segment.base_offset
        self.position = 0
        self.size_bytes = self._rolled.size_bytes
        return True

    def swap_segments(self, swap: SegmentSwap) -> bool:
        """Let a cleaned segment take the place of those it was made of; False if they are not there as it says.

        Raises OSError when it is half done and stays so: nothing more can be appended then, and the swap is completed
        when the log is opened next.
        """
        if self.fault:
            return False
        try:
            done = self._rolled.try_swap(swap)
        except OSError as error:
            self._refuse_batches(error)
            raise
        self.size_bytes = self._rolled.size_bytes + self.position
        if done:
            self._snapshots.sweep(self._rolled.bases())
        return done
