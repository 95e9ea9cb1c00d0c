"""The snapshot of a processor's connections, with their totals.

Runs in processor processes, when the metrics page is due, and only while a reader requests it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.ipc import connection_id

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.shm.tables.snapshot_buffer import SnapshotWriter, Wants

logger = logging.getLogger(__name__)

INTERVAL_NS: Final = 1_000_000_000

#: A snapshot uses at most one part in this many of a processor's time.
SHARE: Final = 50

#: The longest interval: on a busy machine a snapshot is slow because other processes run meanwhile.
MOST_INTERVAL_NS: Final = 10_000_000_000

#: After a fault no snapshot is made for this long.
FAULT_PAUSE_NS: Final = 60_000_000_000

#: The most connections in one snapshot; the others are counted.
MOST_CONNECTIONS: Final = 1000

#: The list to shorten if a snapshot does not fit.
LISTS: Final = ("connections",)


class ConnectionStatusPublisher:
    """One processor's snapshot."""

    def __init__(
        self, writer: SnapshotWriter, wants: Wants, listeners: Sequence[ListenerEntry], now_ns: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._wants = wants
        self._listeners = listeners
        self._now_ns = now_ns
        self._next_ns = 0

    def run_once(self, now_ns: int, channels: Collection[Channel]) -> None:
        """Publish if due and a reader wants it. A fault costs readers this snapshot only."""
        if now_ns < self._next_ns or self._wants.until_ns() <= now_ns:
            return
        try:
            self._writer.publish(self.document(channels), LISTS, now_ns)
            self._next_ns = now_ns + min(max(INTERVAL_NS, (self._now_ns() - now_ns) * SHARE), MOST_INTERVAL_NS)
        except Exception:
            logger.exception("cannot publish the snapshot of connections")
            self._next_ns = now_ns + FAULT_PAUSE_NS

    def document(self, channels: Collection[Channel]) -> dict[str, Any]:
        """Return the current snapshot."""
        return {
            "connections": [self._status(channel) for channel in islice(channels, MOST_CONNECTIONS)],
            "left_out": {"connections": max(0, len(channels) - MOST_CONNECTIONS)},
        }

    def _status(self, channel: Channel) -> dict[str, Any]:
        client_id, software, version = channel.names
        totals = (0, 0, 0, 0) if channel.client is None else channel.client.totals
        return {
            "id": connection_id.text(channel.connection_id),
            "client_id": client_id,
            "software": software,
            "version": version,
            "peer": channel.peer,
            "listener": self._listeners[channel.listener].name,
            "opened_ns": channel.opened_ns,
            "active_ns": channel.last_active_ns,
            "requests": totals[0],
            "request_bytes": totals[1],
            "response_bytes": totals[2],
            "errors": totals[3],
            "in_flight": channel.in_flight,
            "muted": [cause.name.lower() for cause in channel.muted if cause.name is not None],
        }
