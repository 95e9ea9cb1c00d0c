"""From where on a partition is kept, by age, by size and by its log start (Kafka's UnifiedLog.deleteOldSegments).

Pure but for the timestamps that it has looked up; runs in the cleaner process. Segments go whole and oldest first.
The one that is appended to goes with the others when all have expired: its owner then begins a new one at the end.
"""

from __future__ import annotations

from rotunda.broker.cleaner.segments import Segment, SegmentedLog
from rotunda.broker.config.topic_config import LogConfig


def retained_from(log: SegmentedLog, config: LogConfig, now_ms: int) -> int:
    """Return where the log should begin: at a segment, or at its end if nothing is to be kept.

    Raises FileNotFoundError when segments go meanwhile.
    """
    segments = [each for each in log.rolled if each.end_offset > log.published.start_offset]
    if log.active.size_bytes:
        segments.append(log.active)
    retention_bytes, retention_ms = config.retention
    removed = _beyond_size(segments, retention_bytes)
    removed += _expired(log, segments[removed:], retention_ms, now_ms)
    return segments[removed].base_offset if removed < len(segments) else log.published.end_offset


def _beyond_size(segments: list[Segment], retention_bytes: int) -> int:
    """Return how many of the oldest segments the partition can do without and still have its size."""
    if retention_bytes < 0:
        return 0
    surplus_bytes = sum(each.size_bytes for each in segments) - retention_bytes
    for number, segment in enumerate(segments):
        surplus_bytes -= segment.size_bytes
        if surplus_bytes < 0:
            return number
    return len(segments)


def _expired(log: SegmentedLog, segments: list[Segment], retention_ms: int, now_ms: int) -> int:
    """Return how many of the oldest segments have only records that are too old."""
    if retention_ms < 0:
        return 0
    for number, segment in enumerate(segments):
        if log.reaches(segment, now_ms - retention_ms):
            return number
    return len(segments)
