"""The connections of listeners that are closed while the broker runs (`A30`): which they are, and that they end.

Runs in processor processes, before each turn of the loop. A listener of the same name may be opened again, in the same
place, while some of them still wait for an answer: they end all the same. A processor that is killed ends them with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerTable
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.processor import Processor


class RemovedListeners:
    """Notices listeners that are closed, and has the processor end their connections."""

    def __init__(self, table: ListenerTable) -> None:
        self._table = table
        self._seen = table.version
        self._closed: set[int] = set()
        #: The ids of connections that are to end and wait for answers still.
        self._ending: set[int] = set()

    def end_connections(self, processor: Processor) -> None:
        """End connections of closed listeners, also those that come only now: they were handed over before."""
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
