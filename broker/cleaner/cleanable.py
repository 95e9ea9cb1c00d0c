"""The cleanable part of a partition: its segments that may be compacted, and its dirty ratio (LogCleanerManager).

Pure except for timestamp look-ups; runs in the cleaner process. Records below the *first dirty offset* were compacted
before. The dirty part extends from there to the first uncleanable offset: the active segment, open transactions and
records younger than min.compaction.lag.ms are not compacted. Whole segments only.
"""

from __future__ import annotations

from typing import NamedTuple

from rotunda.broker.cleaner.segments import Segment, SegmentedLog
from rotunda.broker.config.keys import MAX_LONG
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.indexes.offset_index import MAX_RELATIVE_OFFSET


class Cleanable(NamedTuple):
    """The segments of one partition that may be compacted, oldest first, and the start of the dirty ones."""

    segments: tuple[Segment, ...]
    first_dirty_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the cleanable bytes, from 0 to 1."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def dirty_segments(self) -> tuple[Segment, ...]:
        """The segments with records that were never compacted."""
        return tuple(each for each in self.segments if each.end_offset > self.first_dirty_offset)

    def is_due(self, config: LogConfig) -> bool:
        """Return whether compaction is due."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def cleanable(log: SegmentedLog, checkpoint: int | None, config: LogConfig, now_ms: int) -> Cleanable:
    """Return the cleanable segments; `checkpoint` is the previous clean offset. Raises FileNotFoundError."""
    start_offset, end_offset = log.published.start_offset, log.published.end_offset
    # A checkpoint beyond the end belongs to another log of this name.
    is_known = checkpoint is not None and start_offset <= checkpoint <= end_offset
    first_dirty = checkpoint if is_known and checkpoint is not None else start_offset
    limit = _first_uncleanable(log, first_dirty, config, now_ms)
    segments = tuple(each for each in log.rolled if each.end_offset <= limit and each.end_offset > start_offset)
    clean_bytes = sum(each.size_bytes for each in segments if each.end_offset <= first_dirty)
    dirty = [each for each in segments if each.end_offset > first_dirty]
    dirty_bytes = sum(each.size_bytes for each in dirty)
    is_overdue = _is_overdue(log, dirty, config.max_compaction_lag_ms, now_ms)
    return Cleanable(segments, first_dirty, clean_bytes, dirty_bytes, is_overdue)


def _first_uncleanable(log: SegmentedLog, first_dirty: int, config: LogConfig, now_ms: int) -> int:
    limit = min(log.published.stable_offset, log.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        too_young_ms = now_ms - config.min_compaction_lag_ms + 1
        for segment in log.rolled:
            if segment.end_offset > first_dirty and log.reaches(segment, too_young_ms):
                return min(limit, segment.base_offset)
    return limit


def _is_overdue(log: SegmentedLog, dirty: list[Segment], max_lag_ms: int, now_ms: int) -> bool:
    if max_lag_ms == MAX_LONG:
        return False
    firsts = [first_ms for each in dirty if (first_ms := log.first_timestamp_ms(each)) > 0]
    return bool(firsts) and min(firsts) < now_ms - max_lag_ms


def grouped(log: SegmentedLog, segments: tuple[Segment, ...], config: LogConfig) -> list[list[Segment]]:
    """Return the segments in groups, each to be merged into one segment within the limits of size and indexes."""
    groups: list[list[Segment]] = []
    log_bytes = index_bytes = 0
    for segment in segments:
        largest_index_bytes = log.largest_index_bytes(segment)
        fits = (
            bool(groups)
            and log_bytes + segment.size_bytes <= config.effective_segment_bytes
            and index_bytes + largest_index_bytes <= config.segment_index_bytes
            and segment.end_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if not fits:
            groups.append([])
            log_bytes = index_bytes = 0
        groups[-1].append(segment)
        log_bytes += segment.size_bytes
        index_bytes += largest_index_bytes
    return groups
