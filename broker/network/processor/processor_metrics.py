"""The processor's metrics: plain integers, stored on its metrics page every half second.

Runs in processor processes. Storing at most every ``INTERVAL_NS`` keeps shared memory out of the request path.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.server_log.slow_turns import SlowTurns
from rotunda.shm.metrics.catalogue import CLOSE_CAUSES, MAX_LISTENERS

if TYPE_CHECKING:
    from collections.abc import Collection

    from rotunda.broker.network.accounting.completed_requests import CompletedRequests
    from rotunda.broker.network.accounting.connection_status_publisher import ConnectionStatusPublisher
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.request_reader import RequestReader
    from rotunda.broker.network.processor.response_reader import ResponseReader
    from rotunda.broker.network.processor.tls.tls_listeners import TlsListeners
    from rotunda.shm.metrics.process_metrics import MetricsWriter

logger = logging.getLogger(__name__)

#: Maximum age of the page while the processor is awake.
INTERVAL_NS = 500_000_000
#: Checking all connections costs a millisecond per 10,000.
LOOK_NS = 1_000_000_000

#: As in `authentication.Counts`.
AUTHENTICATIONS = (
    *("authentications_succeeded", "authentications_failed", "reauthentications_succeeded"),
    *("reauthentications_failed", "reauthentication_ns", "sessions_expired"),
)

_MUTE_LABELS = {
    MuteCause.PIPELINE: "pipeline",
    MuteCause.ARENA: "arena",
    MuteCause.RING_FULL: "ring_full",
    MuteCause.OUTPUT: "output",
    MuteCause.ORDER: "order",
    MuteCause.DRAINING: "draining",
    MuteCause.PIPELINE_BYTES: "pipeline_bytes",
}


class ProcessorMetrics:
    """The processor's own counters and their metrics page."""

    def __init__(self, page: MetricsWriter, now_ns: int, snapshot: ConnectionStatusPublisher | None = None) -> None:
        self._page = page
        self._snapshot = snapshot
        self._published_ns = now_ns
        self._iteration_ns = now_ns
        self._turns = SlowTurns(logger, lambda: self._iteration_ns)
        self._ready = 0
        self._io_wait_ns = 0
        self._io_ns = 0
        self._polls = self._looked_ns = 0
        self._arena_depleted_ns = 0
        self._stored: dict[int, int] = {}
        self._closed = {cause: page.index("connections_closed", cause) for cause in CLOSE_CAUSES}
        self._muted = {cause: page.index("mutes", label) for cause, label in _MUTE_LABELS.items()}
        names = ("requests_received", "responses_sent", "bytes_received", "bytes_sent")
        own = ("io_wait_ns", "io_ns", "polls", "arena_depleted_ns", "requests_not_kept", "handshakes")
        others = ("answers_delayed", *self._turns.counters(), *AUTHENTICATIONS)
        self._counters = {name: page.index(name) for name in (*names, *own, *others)}
        self._counters["throttles"] = page.index("mutes", "throttled")
        self._opened = page.index("connections_opened")
        gauges = ("connections", "connections_throttled", "arena_used_bytes", "arena_free_bytes")
        more = ("requests_kept_bytes", "longest_turn_ns", "handshakes_under_way", "answers_held_back")
        self._gauges = {name: page.index(name) for name in (*gauges, *more, "answers_unwritten_bytes")}
        self._not_after = [page.index("certificate_not_after_ms", str(number)) for number in range(MAX_LISTENERS)]

    def connection_opened(self) -> None:
        """Count a connection received from the acceptor."""
        self._page.add(self._opened, 1)

    def connection_closed(self, cause: str) -> None:
        """Count a closed connection, by cause."""
        self._page.add(self._closed[cause], 1)

    def muted(self, causes: MuteCause) -> None:
        """Count the new mutes of a channel, by cause."""
        for cause in causes:
            if cause in self._muted:
                self._page.add(self._muted[cause], 1)

    def polled(self, before_ns: int, after_ns: int, *, arena_short: bool = False, ready: int = 0) -> None:
        """Account for one iteration: waiting from ``before_ns`` to ``after_ns``, working before that (``B30``).

        ``arena_short``: a request waits for a block of the arena; ``ready``: the number of ready descriptors.
        """
        self._polls += 1
        if arena_short:
            self._arena_depleted_ns += after_ns - self._iteration_ns
        worked_ns = before_ns - self._iteration_ns
        self._turns.took(worked_ns, self._ready)
        self._ready = ready
        self._io_ns += worked_ns
        self._io_wait_ns += after_ns - before_ns
        self._iteration_ns = after_ns

    def due(self, now_ns: int) -> bool:
        """Return whether the page is due for an update."""
        return now_ns - self._published_ns >= INTERVAL_NS

    def show(self, now_ns: int, channels: Collection[Channel]) -> None:
        """Store totals of all connections if due, and publish the connection snapshot if a reader wants it."""
        if now_ns >= self._looked_ns + LOOK_NS:
            self._looked_ns = now_ns
            unwritten_bytes = sum(channel.out_bytes + channel.held_bytes for channel in channels)
            self._page.set(self._gauges["answers_unwritten_bytes"], unwritten_bytes)
        if self._snapshot is not None:
            self._snapshot.run_once(now_ns, channels)

    def publish(
        self,
        now_ns: int,
        finished: CompletedRequests,
        ends: tuple[RequestReader, ResponseReader, TlsListeners],
        connections: int,
    ) -> None:
        """Store all values on the page."""
        reader, responses, tls = ends
        self._published_ns = now_ns
        values = {
            "requests_received": reader.counts.requests,
            "responses_sent": finished.count,
            "bytes_received": reader.counts.bytes,
            "bytes_sent": responses.bytes_received,
            "io_wait_ns": self._io_wait_ns,
            "io_ns": self._io_ns,
            "polls": self._polls,
            "arena_depleted_ns": self._arena_depleted_ns,
            **self._turns.counters(),
            "requests_not_kept": reader.kept.not_kept,
            "throttles": responses.throttled.count,
            "answers_delayed": responses.storms.count,
            "handshakes": tls.done_count,
            **dict(zip(AUTHENTICATIONS, reader.authentication.counts.values, strict=True)),
        }
        for name, index in self._counters.items():
            # The page continues its predecessor's counts, so only the increase is added.
            self._page.add(index, values[name] - self._stored.get(index, 0))
            self._stored[index] = values[name]
        pool = reader.sender.pool
        self._page.set(self._gauges["connections"], connections)
        self._page.set(self._gauges["arena_used_bytes"], pool.used_bytes)
        self._page.set(self._gauges["arena_free_bytes"], pool.free_bytes)
        self._page.set(self._gauges["requests_kept_bytes"], reader.kept.shared_bytes)
        self._page.set(self._gauges["longest_turn_ns"], self._turns.longest_ns)
        self._page.set(self._gauges["connections_throttled"], len(responses.throttled))
        self._page.set(self._gauges["answers_held_back"], len(responses.delayed))
        self._page.set(self._gauges["handshakes_under_way"], tls.under_way)
        for number, index in enumerate(self._not_after):
            self._page.set(index, tls.not_after_s.get(number, 0) * 1000)
        finished.flush(self._page)
