"""The retention of a partition, by age, size and log start (Kafka's UnifiedLog.deleteOldSegments).

Pure except for timestamp look-ups; runs in the cleaner process. Whole segments are removed, oldest first. The active
one is removed with the others when all have expired: its owner then begins a new one at the end.
"""

from __future__ import annotations

from rotunda.broker.cleaner.segments import Segment, SegmentedLog
from rotunda.broker.config.topic_config import LogConfig


def retained_from(log: SegmentedLog, config: LogConfig, now_ms: int) -> int:
    """Return the new log start: the base offset of a segment, or the log end if no segment is retained.

    Raises FileNotFoundError when segments are removed meanwhile.
    """
    segments = [each for each in log.rolled if each.end_offset > log.published.start_offset]
    if log.active.size_bytes:
        segments.append(log.active)
    retention_bytes, retention_ms = config.retention
    removed = _beyond_size(segments, retention_bytes)
    removed += _expired(log, segments[removed:], retention_ms, now_ms)
    return segments[removed].base_offset if removed < len(segments) else log.published.end_offset


def _beyond_size(segments: list[Segment], retention_bytes: int) -> int:
    """Return the number of oldest segments that can be removed without falling below the retention size."""
    if retention_bytes < 0:
        return 0
    surplus_bytes = sum(each.size_bytes for each in segments) - retention_bytes
    for number, segment in enumerate(segments):
        surplus_bytes -= segment.size_bytes
        if surplus_bytes < 0:
            return number
    return len(segments)


def _expired(log: SegmentedLog, segments: list[Segment], retention_ms: int, now_ms: int) -> int:
    """Return the number of oldest segments that have only expired records."""
    if retention_ms < 0:
        return 0
    for number, segment in enumerate(segments):
        if log.reaches(segment, now_ms - retention_ms):
            return number
    return len(segments)
