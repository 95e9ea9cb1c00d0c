"""The periodic tasks of a processor: freeing memory and files, publishing metrics.

Runs in processor processes, at the end of an iteration of the loop. It knows no single connection.
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

#: The shortest interval between two checks: iterations of a busy loop are much shorter.
LOOK_NS: Final = 1_000_000

#: How often unused memory and files are freed, however idle the process is.
GIVE_BACK_NS: Final = 1_000_000_000


class PeriodicTasks:
    """The periodic tasks of one processor."""

    def __init__(
        self,
        counts: tuple[ProcessorMetrics, CompletedRequests],
        ends: tuple[RequestReader, ResponseReader, TlsListeners],
        by_id: Mapping[int, Channel],
    ) -> None:
        self._metrics, self._finished = counts
        self._ends = ends
        self._by_id = by_id
        #: Time of the next check. HOT: compared in the loop.
        self.next_ns = 0
        self._give_back_ns = 0

    def look(self, now_ns: int) -> None:
        """Run the tasks that are due."""
        self.next_ns = now_ns + LOOK_NS
        if now_ns >= self._give_back_ns:
            self._give_back_ns = now_ns + GIVE_BACK_NS
            reader, responses, _ = self._ends
            reader.sender.reclaim()
            responses.forget_unused(now_ns)
        if len(self._finished) >= BATCH_ROWS or self._metrics.due(now_ns):
            self.publish(now_ns)

    def publish(self, now_ns: int) -> None:
        """Publish the counters, and aggregate the completed requests."""
        self._metrics.publish(now_ns, self._finished, self._ends, len(self._by_id))
        self._metrics.show(now_ns, self._by_id.values())
