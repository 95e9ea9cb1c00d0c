"""Compacts one partition: builds the key map, then rewrites each group of segments without superseded records.

Runs in the cleaner process. It reads inactive segments and writes new files; the owner swaps them in. If it is
interrupted at any point, the log is unchanged except for the finished groups.

An unreadable batch is caused by its producer or the disk, and is mostly the only one: it is kept unchanged, its keys
are ignored, and the rest is compacted. It is counted, for the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rotunda.broker.cleaner.batch_filter import BatchFilter, CleanedBatch, Cleaning, untouched
from rotunda.broker.cleaner.cleanable import Cleanable, grouped
from rotunda.broker.cleaner.cleaned_segment import CleanedSegment
from rotunda.broker.cleaner.key_map import KeyMap
from rotunda.broker.cleaner.raw_records import raw_records
from rotunda.broker.cleaner.segments import Segment, SegmentedLog
from rotunda.broker.cleaner.transactions import CleanedTransactions
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import BatchHeader, crc_ok
from rotunda.broker.records.record_reader import uncompressed_records

#: Called with the number of bytes read or written: yields to other processes, and raises to end the round.
Pause = Callable[[int], None]

#: Requests the owner to swap in a cleaned segment; False if it did not.
Swap = Callable[[SegmentSwap], bool]


class SettingsChanged(RotundaError):  # noqa: N818  # said as it is
    """The settings of a round have changed. Segments swapped in before followed the earlier settings."""


class Limits(NamedTuple):
    """The limits that the broker's settings set for one round."""

    key_map_bytes: int
    producer_id_expiration_ms: int


class CompactionStats:
    """The statistics of a round, for the metrics page and the log. `unreadable` has base offsets and reasons."""

    __slots__ = ("bytes_read", "bytes_written", "records_removed", "unreadable")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_removed = 0
        self.unreadable: dict[int, str] = {}


class Compaction:
    """One round over one partition."""

    def __init__(
        self, log: SegmentedLog, cleanable: Cleanable, config: LogConfig, limits: Limits, now_ms: int, pause: Pause
    ) -> None:
        self._log = log
        self._cleanable = cleanable
        self._config = config
        self._limits = limits
        self._now_ms = now_ms
        self._pause = pause
        self.stats = CompactionStats()

    def run(self, swap: Swap) -> int | None:
        """Compact; return the offset below which the partition is clean now, None if the owner rejected a swap.

        Raises ApiError where the batches of a segment cannot be separated, OSError, and the exceptions of `pause` and
        `swap`, such as SettingsChanged.
        """
        aborted = self._log.aborted_transactions()
        newest = KeyMap(self._limits.key_map_bytes)
        end_offset = self._map_keys(newest, CleanedTransactions(aborted, self._cleanable.first_dirty_offset))
        producers = self._log.last_records(self._now_ms, self._limits.producer_id_expiration_ms)
        cleaning = Cleaning(
            newest,
            end_offset,
            producers,
            self._now_ms,
            self._config.delete_retention_ms,
            self._config.max_uncompressed_bytes,
        )
        transactions = CleanedTransactions(aborted, self._log.published.start_offset)
        batch_filter = BatchFilter(cleaning, transactions)
        segments = tuple(each for each in self._cleanable.segments if each.base_offset < end_offset)
        for group in grouped(self._log, segments, self._config):
            if not self._clean_group(group, batch_filter, transactions, swap):
                return None
        return end_offset

    def _map_keys(self, newest: KeyMap, transactions: CleanedTransactions) -> int:
        """Map every key of the dirty segments to its newest offset; return the offset at which the map was full."""
        end_offset = first_dirty = self._cleanable.first_dirty_offset
        for segment in self._cleanable.dirty_segments:
            for batch, header in self._log.batches(segment):
                self._account_read(len(batch))
                _check_place(header, segment)
                is_data = not transactions.is_discarded(batch, header) and not header.is_control
                if header.last_offset < first_dirty:
                    continue
                if is_data and header.record_count:
                    full_at = self._map_batch(newest, batch, header)
                    if full_at >= 0:
                        return full_at
                end_offset = header.last_offset + 1
            end_offset = max(end_offset, segment.end_offset)
        return end_offset

    def _clean_group(
        self, group: list[Segment], batch_filter: BatchFilter, transactions: CleanedTransactions, swap: Swap
    ) -> bool:
        cleaned = CleanedSegment(self._log.directory, group[0].base_offset, self._config.index_interval_bytes)
        try:
            is_changed = len(group) > 1
            for segment in group:
                is_changed |= self._clean_segment(segment, batch_filter, cleaned)
            aborted = transactions.kept_aborts()
            if not is_changed:
                cleaned.discard()
                return True
            cleaned.finish(aborted, group[-1].modified_ns)
        except Exception:
            cleaned.discard()
            raise
        old_bytes = sum(each.size_bytes for each in group)
        self.stats.bytes_written += cleaned.size_bytes
        try:
            self._pause(0)
            return swap(
                SegmentSwap(group[0].base_offset, group[-1].base_offset, len(group), old_bytes, cleaned.size_bytes)
            )
        except SettingsChanged:
            # After other errors the owner may still swap it in.
            cleaned.discard()
            raise

    def _clean_segment(self, segment: Segment, batch_filter: BatchFilter, cleaned: CleanedSegment) -> bool:
        """Write the remaining batches of a segment; return whether any batch changed."""
        is_changed = False
        for batch, header in self._log.batches(segment):
            self._account_read(len(batch))
            _check_place(header, segment)
            left = self._clean_batch(batch, header, batch_filter)
            self.stats.records_removed += header.record_count - left.records
            if left.data is not batch:
                is_changed = True
            if left.data:
                cleaned.append(left.data, header.last_offset, left.max_timestamp_ms)
                self._pause(len(left.data))
        return is_changed

    def _clean_batch(self, batch: memoryview, header: BatchHeader, batch_filter: BatchFilter) -> CleanedBatch:
        try:
            return batch_filter.clean(batch, header)
        except ApiError as error:
            self._leave(header, error)
            return untouched(batch, header)

    def _map_batch(self, newest: KeyMap, batch: memoryview, header: BatchHeader) -> int:
        """Map the keys of a batch; return the offset of the first record for which the map is full, or -1."""
        first_dirty = self._cleanable.first_dirty_offset
        try:
            if not crc_ok(batch, header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, "its checksum is wrong")
            data = uncompressed_records(batch, header, self._config.max_uncompressed_bytes)
            records = raw_records(data, header.record_count, header.last_offset_delta)
            # All keys or none: an unchanged batch must not supersede older records.
            keys = [(each.key, header.base_offset + each.offset_delta) for each in records if each.key is not None]
        except ApiError as error:
            self._leave(header, error)
            return -1
        put = newest.put
        for key, offset in keys:
            if offset >= first_dirty and not put(key, offset):
                return offset
        return -1

    def _leave(self, header: BatchHeader, error: ApiError) -> None:
        self.stats.unreadable[header.base_offset] = str(error.message)

    def _account_read(self, size_bytes: int) -> None:
        self.stats.bytes_read += size_bytes
        self._pause(size_bytes)


def _check_place(header: BatchHeader, segment: Segment) -> None:
    """Raise ApiError if a batch claims offsets outside its segment: it cannot be moved elsewhere."""
    if not segment.base_offset <= header.base_offset <= header.last_offset < segment.end_offset:
        where = f"segment {segment.base_offset}, batch at offset {header.base_offset}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where}: offsets up to {header.last_offset}")
