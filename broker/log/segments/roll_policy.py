"""The roll policy: when a segment is full or too old, by the topic's settings. Pure; used by the owner."""

import random

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.recovery import SegmentShape
from rotunda.broker.log.segments.log_segment import LogSegment


class RollPolicy:
    """The roll policy of one topic. `shape` has the index settings of future segments."""

    __slots__ = ("_jitter_ms", "_segment_ms", "preallocate_bytes", "segment_bytes", "shape")

    def __init__(self, config: LogConfig) -> None:
        self.segment_bytes = config.effective_segment_bytes
        self.preallocate_bytes = self.segment_bytes if config.preallocate else 0
        self._segment_ms = config.effective_segment_ms
        self._jitter_ms = min(config.segment_jitter_ms, self._segment_ms)
        self.shape = SegmentShape(config.index_interval_bytes, config.segment_index_bytes)

    def anchor(self, segment: LogSegment, first_timestamp_ms: int, now_ms: int) -> None:
        """Set the size and age limits of a segment; the age counts from the largest timestamp of its first batch."""
        segment.anchor_roll(first_timestamp_ms, now_ms, self._roll_after_ms(), self.segment_bytes)

    def change(self, segment: LogSegment) -> None:
        """Update the size and age limits of the active segment after a change of settings."""
        segment.change_roll(self._roll_after_ms(), self.segment_bytes)

    def _roll_after_ms(self) -> int:
        early_ms = random.randrange(self._jitter_ms) if self._jitter_ms else 0  # noqa: S311  # spreads rolls
        return self._segment_ms - early_ms
