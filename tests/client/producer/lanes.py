"""Records by the short way."""

from __future__ import annotations

from rotunda.broker.client.producer.batches.producer_batch import NOT_OPEN, Lane, TimedValue
from rotunda.broker.client.producer.futures import DeliveryCallback, RecordFuture


def by_lane(
    lane: Lane, value: object, timestamp_ms: int | None = None, callback: DeliveryCallback | None = None
) -> RecordFuture | None:
    """Return the record's future; None where the short way is not open to it."""
    try:
        return lane.send(
            value if timestamp_ms is None and callback is None else TimedValue(value, timestamp_ms, callback)
        )
    except NOT_OPEN:
        return None
