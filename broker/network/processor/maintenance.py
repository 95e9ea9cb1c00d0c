"""Maintenance: what the clock alone asks of a processor: memory and files given back, figures published.

Runs in processor processes, at the end of a turn of the loop. It knows no single connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.network.accounting.completed_requests import BATCH_ROWS, CompletedRequests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.processor_metrics import ProcessorMetrics
    from rotunda.broker.network.processor.request_reader import RequestReader
    from rotunda.broker.network.processor.response_reader import ResponseReader
    from rotunda.broker.network.processor.tls.tls_listeners import TlsListeners

#: How often, at most, it is looked whether anything is due: the turns of a busy loop are much shorter.
LOOK_NS: Final = 1_000_000

#: How often memory and files that nobody uses any more are given back, however little there is to do.
GIVE_BACK_NS: Final = 1_000_000_000


class Maintenance:
    """The maintenance of one processor."""

    def __init__(
        self,
        counts: tuple[ProcessorMetrics, CompletedRequests],
        ends: tuple[RequestReader, ResponseReader, TlsListeners],
        by_id: Mapping[int, Channel],
    ) -> None:
        self._metrics, self._finished = counts
        self._ends = ends
        self._by_id = by_id
        #: When to look next. HOT: whoever turns the loop compares.
        self.next_ns = 0
        self._give_back_ns = 0

    def look(self, now_ns: int) -> None:
        """Do what is due."""
        self.next_ns = now_ns + LOOK_NS
        if now_ns >= self._give_back_ns:
            self._give_back_ns = now_ns + GIVE_BACK_NS
            reader, responses, _ = self._ends
            reader.sender.reclaim()
            responses.forget_unused(now_ns)
        if len(self._finished) >= BATCH_ROWS or self._metrics.due(now_ns):
            self.publish(now_ns)

    def publish(self, now_ns: int) -> None:
        """Publish what has been counted, and work up the requests that have been finished."""
        self._metrics.publish(now_ns, self._finished, self._ends, len(self._by_id))
        self._metrics.show(now_ns, self._by_id.values())
