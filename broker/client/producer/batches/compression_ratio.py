"""What a codec makes of a topic's records: the estimate by which a batch is filled before it is packed.

Kafka's CompressionRatioEstimator: it follows better ratios slowly and worse ones at once. The I/O thread updates it,
the application's threads read it; a float is replaced as a whole.
"""

from __future__ import annotations

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATE_STEP: Final = 0.05
#: What the estimate is multiplied by: batches that come out larger than they may cost more than small ones.
_MARGIN: Final = 1.05


class CompressionRatios:
    """The estimates by topic; 1.0 to begin with."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def room_bytes(self, topic: str, packed_bytes: int) -> int:
        """Return how many bytes of records are expected to fit, packed, into so many."""
        return int(packed_bytes / (self._ratios.get(topic, 1.0) * _MARGIN))

    def update(self, topic: str, observed: float) -> None:
        """Move the estimate of a topic towards what has been seen."""
        known = self._ratios.get(topic, 1.0)
        if observed > known:
            self._ratios[topic] = max(known + _DETERIORATE_STEP, observed)
        else:
            self._ratios[topic] = max(known - _IMPROVING_STEP, observed)

    def set(self, topic: str, ratio: float) -> None:
        """Set the estimate of a topic, whose batch was too large."""
        self._ratios[topic] = ratio
