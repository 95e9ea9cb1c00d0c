"""The target's metrics, taken from the request loop and stored on its metrics page now and then.

Runs in handler processes and the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.handler.request_handler import RequestHandler
    from shm.metrics.process_metrics import MetricsWriter

#: How old the page may be while the target is awake.
INTERVAL_NS = 500_000_000


class HandlerMetrics:
    """Copies the loop's counters to the page; the page goes on with its predecessor's counts."""

    def __init__(
        self, page: MetricsWriter, handler: RequestHandler, now_ns: int, also: Sequence[Callable[[int], None]] = ()
    ) -> None:
        """Take what else is to be published now and then; it is given the monotonic time."""
        self._page = page
        self._handler = handler
        self._also = also
        self._started_ns = now_ns
        self._published_ns = now_ns
        self._idle_ns = 0
        self._stored: dict[str, int] = {}

    def slept(self, ns: int) -> None:
        """Account for time asleep on the bell (``E01``)."""
        self._idle_ns += ns

    def due(self, now_ns: int) -> bool:
        """Return whether the page is old enough to be written again."""
        return now_ns - self._published_ns >= INTERVAL_NS

    def publish(self, now_ns: int) -> None:
        """Store everything on the page, and have published what else there is."""
        self._published_ns = now_ns
        times = {"idle_ns": self._idle_ns, "busy_ns": max(0, now_ns - self._started_ns - self._idle_ns)}
        for name, value in {**self._handler.counters(), **times}.items():
            # A counter never goes back, whatever the clock does.
            growth = value - self._stored.get(name, 0)
            if growth > 0:
                self._page.add(self._page.index(name), growth)
                self._stored[name] = value
        for name, value in self._handler.gauges().items():
            self._page.set(self._page.index(name), value)
        for publish in self._also:
            publish(now_ns)
