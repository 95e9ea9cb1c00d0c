"""What the I/O thread tells of what it does, once a batch or a request: an interface, which the metrics have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.client.producer.batches.producer_batch import ProducerBatch


class SenderMetrics(Protocol):
    """Kafka's sensors of the Sender."""

    def record_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Take note of a request with these batches."""

    def record_latency(self, node_id: int, latency_ms: float) -> None:
        """Take note of how long a response took."""

    def record_throttle(self, throttle_ms: float) -> None:
        """Take note of how long a response asks to be left alone (`G33`)."""

    def record_retries(self, topic: str, records: int) -> None:
        """Take note of records that are sent again."""

    def record_errors(self, topic: str, records: int) -> None:
        """Take note of records that have failed."""

    def record_split(self) -> None:
        """Take note of a batch that was too large."""
