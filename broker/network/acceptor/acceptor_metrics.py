"""The acceptor's metrics, on its own page (`A23`, `A24`). Runs in the acceptor process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.shm.metrics.catalogue import MAX_LISTENERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.shm.metrics.process_metrics import MetricsWriter


class AcceptorMeters:
    """Counters by listener. Blocked time grows during the block, so that readers see it at once."""

    def __init__(self, writer: MetricsWriter, listeners: int, now_ns: Callable[[], int]) -> None:
        # Listeners beyond the number of labels share the last label.
        labels = [str(min(index, MAX_LISTENERS - 1)) for index in range(listeners)]
        self._writer = writer
        self._now_ns = now_ns
        self._accepted = [writer.index("connections_accepted", label) for label in labels]
        self._closed = [writer.index("connections_closed", label) for label in labels]
        self._rejected = [writer.index("connections_refused", label) for label in labels]
        self._blocked = [writer.index("blocked_ns", label) for label in labels]
        self._throttled = [writer.index("accept_throttled", label) for label in labels]
        self._throttle_ns = [writer.index("accept_throttle_ns", label) for label in labels]
        self._ip_throttled = [writer.index("ip_accept_throttled", label) for label in labels]
        self._ip_throttle_ns = [writer.index("ip_accept_throttle_ns", label) for label in labels]
        self._parked = writer.index("connections_parked")
        self._errors = writer.index("accept_errors")
        self._blocked_since_ns: dict[int, int] = {}

    def accepted(self, listener: int) -> None:
        """Count an accepted connection."""
        self._writer.add(self._accepted[listener], 1)

    def closed(self, listener: int) -> None:
        """Count a closed connection."""
        self._writer.add(self._closed[listener], 1)

    def rejected(self, listener: int) -> None:
        """Count a connection closed because its address has too many."""
        self._writer.add(self._rejected[listener], 1)
        self.closed(listener)

    def throttled(self, listener: int, delay_ms: int) -> None:
        """Count a connection delayed by a connection rate, and its delay (`A10`)."""
        self._writer.add(self._throttled[listener], 1)
        self._writer.add(self._throttle_ns[listener], delay_ms * 1_000_000)

    def parked(self, listener: int, delay_ms: int) -> None:
        """Count a connection that is closed after a delay (`A12`)."""
        self._writer.add(self._ip_throttled[listener], 1)
        self._writer.add(self._ip_throttle_ns[listener], delay_ms * 1_000_000)

    def set_parked(self, count: int) -> None:
        """Publish the number of parked connections."""
        self._writer.set(self._parked, count)

    def accept_error(self) -> None:
        """Count a failure to accept, to configure or to hand over."""
        self._writer.add(self._errors, 1)

    def block(self, listener: int) -> None:
        """Record that the listener is not polled while one of its connections waits."""
        self._blocked_since_ns[listener] = self._now_ns()

    def unblock(self, listener: int) -> None:
        """Record that the listener is polled again."""
        self.settle()
        self._blocked_since_ns.pop(listener, None)

    def settle(self) -> None:
        """Add the time that blocked listeners have been blocked since the last call."""
        if not self._blocked_since_ns:
            return
        now_ns = self._now_ns()
        for listener, since_ns in self._blocked_since_ns.items():
            self._writer.add(self._blocked[listener], now_ns - since_ns)
            self._blocked_since_ns[listener] = now_ns
