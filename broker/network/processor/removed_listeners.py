"""Ends the connections of listeners that are closed while the broker runs (`A30`).

Runs in processor processes, before each iteration of the loop. A listener of the same name may be reopened, at the same
index, while some connections still wait for a response: they end all the same. A killed processor ends them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerTable
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.processor import Processor


class RemovedListeners:
    """Detects closed listeners, and has the processor end their connections."""

    def __init__(self, table: ListenerTable) -> None:
        self._table = table
        self._seen = table.version
        self._closed: set[int] = set()
        #: The ids of ending connections that still wait for responses.
        self._ending: set[int] = set()

    def end_connections(self, processor: Processor) -> None:
        """End connections of closed listeners, including late ones that were handed over before the close."""
        if self._table.version != self._seen:
            self._seen = self._table.version
            self._closed = {index for index, entry in enumerate(self._table) if not entry.is_open}
        has_closed = self._closed and not self._closed.isdisjoint(processor.finished.listeners_in_use)
        if has_closed or self._ending:
            before, self._ending = self._ending, set()
            processor.end_connections(lambda channel: self._is_ending(channel, before))

    def _is_ending(self, channel: Channel, before: set[int]) -> bool:
        if channel.listener not in self._closed and channel.connection_id not in before:
            return False
        self._ending.add(channel.connection_id)
        return True
