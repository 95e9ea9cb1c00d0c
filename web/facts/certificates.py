"""Warnings about the listeners' certificates that expire soon. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsReading

_DAY_MS = 86_400_000
#: Days before a certificate's expiry from which on it is named, as in the log.
NAMED_DAYS = 30


def certificate_remarks(
    pages: Mapping[tuple[str, int], MetricsReading], listeners: Sequence[str], wall_ms: int
) -> list[str]:
    """Return a sentence for each listener whose certificate expires soon; the pages are by role and index."""
    remarks = []
    for index, name in enumerate(listeners):
        ends = [page.values.get(("certificate_not_after_ms", str(index)), 0) for page in pages.values()]
        end_ms = min(filter(None, ends), default=None)
        if end_ms is not None and end_ms - wall_ms < NAMED_DAYS * _DAY_MS:
            day = datetime.fromtimestamp(end_ms / 1000, UTC).date()
            verb = "ends" if end_ms > wall_ms else "has ended"
            remarks.append(f"The certificate of listener {name} {verb} on {day}: replace it, then rotunda reload.")
    return remarks
