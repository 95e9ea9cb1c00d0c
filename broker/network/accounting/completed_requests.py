"""Requests that are done with, gathered as they are and worked up a few thousand at a time.

Runs in processor processes. A request is finished when the last byte of its answer is written, or its connection has
gone (``D21``); keeping its target's facts is all that happens then. Now and then the rows become one array,
from which come the histograms of the metrics page, the totals of each connection, and the rows of the request log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rotunda.broker.network.accounting.request_counts import record_connections, record_requests
from rotunda.shm.metrics.catalogue import CLOSE_CAUSES
from rotunda.shm.recorder_layout import CONNECTION_EVENT, REQUEST_ROW

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rotunda.broker.network.accounting.client_registry import ClientRegistry
    from rotunda.broker.network.accounting.request_log_sender import RequestLogSender
    from rotunda.broker.network.processor.channel import Answered, Channel
    from rotunda.shm.metrics.process_metrics import MetricsWriter

    Rows = NDArray[numpy.void]

#: Rows gathered before they are worked up.
BATCH_ROWS = 4096

#: Rows that may wait for what is imported in the background.
MOST_WAITING_ROWS = 8 * BATCH_ROWS

_FACTS_BYTES = REQUEST_ROW.offset("client")
_OPENED = -1

#: A row as it is put together here, as a numpy type: its target's facts, in one piece, and the rest.
_PARTS: Any = {
    "names": ["facts", "client", "taken_ns", "end_ns"],
    "formats": [f"V{_FACTS_BYTES}", "i8", "i8", "i8"],
    "offsets": [0, *(REQUEST_ROW.offset(name) for name in ("client", "taken_ns", "end_ns"))],
    "itemsize": REQUEST_ROW.size,
}


class CompletedRequests:
    """What has been finished since the last flush, and the connections that were opened or closed."""

    def __init__(self, clients: ClientRegistry, sender: RequestLogSender | None = None) -> None:
        """Without a ``sender`` there is no request log."""
        #: All that have ever been taken in.
        self.count = 0
        #: Whether rows may be worked up: importing what that needs would hold up the first requests.
        self.is_prepared = True
        self._clients = clients
        self._sender = sender
        self._answered: list[Answered] = []
        # Place of the client, rows, time of the last byte, for each run of rows of one client, one after the other.
        self._runs: list[int] = []
        self._orphans: list[tuple[int, Answered]] = []
        self._closed: list[tuple[Channel, int, int]] = []
        self._events: list[bytes] = []

    @property
    def listeners_in_use(self) -> set[int]:
        """The listeners of connections that are open now."""
        return {listener for listener, *_ in self._clients.software}

    def __len__(self) -> int:
        return len(self._answered) + len(self._orphans)

    def add(self, channel: Channel, end_ns: int) -> None:
        """Take in the requests whose answers have just been written, and empty the channel's list of them. HOT."""
        answered = channel.answered
        if channel.former_clients:
            self._add_renamed(channel, end_ns)
        elif channel.client is not None:
            self._runs += (channel.client.place, len(answered), end_ns)
            self._answered += answered
        self.count += len(answered)
        answered.clear()

    def add_lone(self, channel: Channel, answered: Answered, end_ns: int) -> None:
        """Take in a request whose answer has just been written, while the channel had no other. HOT."""
        client = channel.client
        if client is None or channel.former_clients:
            channel.answered.append(answered)
            self.add(channel, end_ns)
            return
        self._runs += (client.place, 1, end_ns)
        self._answered.append(answered)
        self.count += 1

    def add_orphans(self, orphans: list[tuple[int, Answered]]) -> None:
        """Take in answers to connections that have gone, and empty the list of them."""
        self._orphans += orphans
        self.count += len(orphans)
        orphans.clear()

    def note_taken(self, count: int) -> None:
        """Say how many answers have been taken in all, before any of them is written: what a successor will miss."""
        if self._sender is not None:
            self._sender.note_taken(count)

    def opened(self, channel: Channel) -> None:
        """Note a new connection."""
        self._clients.connected(channel)
        if self._sender is not None:
            self._events.append(_event(channel, channel.opened_ns, _OPENED))

    def closed(self, channel: Channel, cause: str, now_ns: int) -> None:
        """Note the end of a connection; answers that it has not read are done with."""
        self.add(channel, now_ns)
        if channel.client is None:
            # A fault has ended it before it was known here.
            return
        self._clients.retire(channel)
        self._closed.append((channel, now_ns, CLOSE_CAUSES.index(cause)))

    def flush(self, metrics: MetricsWriter) -> None:
        """Work up what was gathered."""
        rows = None
        if (self._answered or self._orphans) and (self.is_prepared or len(self) >= MOST_WAITING_ROWS):
            rows = self._take_rows()
            record_requests(rows, self._clients.texts, metrics)
        record_connections(self._clients.software, metrics)
        if self._sender is not None:
            self._events += [_event(*closed) for closed in self._closed]
            self._sender.push(rows, self._events)
        self._closed.clear()
        if not self:
            # No row refers to them any more.
            self._clients.forget_retired()

    def _add_renamed(self, channel: Channel, end_ns: int) -> None:
        """Divide requests among the names under which they were sent."""
        sequence = channel.first_unfinished
        for each in channel.answered:
            while channel.former_clients and sequence >= channel.former_clients[0][0]:
                self._clients.outgrown(channel.former_clients.pop(0)[1])
            client = channel.former_clients[0][1] if channel.former_clients else channel.client
            assert client is not None  # noqa: S101 - it was renamed
            self._runs += (client.place, 1, end_ns)
            self._answered.append(each)
            sequence += 1

    def _take_rows(self) -> Rows:
        """Return the rows as one array of REQUEST_ROWs, adding up what each connection has done."""
        import numpy as np  # noqa: PLC0415 - not needed before the first requests are finished

        known = len(self._answered)
        answered = self._answered + [each for _, each in self._orphans]
        facts, taken_ns = zip(*answered, strict=True)
        wide = np.zeros(len(answered), dtype=_PARTS)
        wide["facts"] = np.frombuffer(b"".join(facts), dtype=f"V{_FACTS_BYTES}")
        wide["taken_ns"] = taken_ns
        runs = np.array(self._runs, dtype=np.int64).reshape(-1, 3)
        places = np.repeat(runs[:, 0], runs[:, 1])
        wide["end_ns"][:known] = np.repeat(runs[:, 2], runs[:, 1])
        wide["end_ns"][known:] = wide["taken_ns"][known:]
        wide["client"][known:] = [self._clients.number_of(connection) for connection, _ in self._orphans]
        finished: Rows = wide.view(REQUEST_ROW.dtype)
        if known:
            finished["client"][:known] = self._add_up(places, finished[:known])
        self._answered = []
        self._orphans = []
        self._runs = []
        return finished

    def _add_up(self, places: NDArray[numpy.int64], rows: Rows) -> NDArray[numpy.int64]:
        """Add the rows to their connections' totals; return the number of each row's client."""
        import numpy as np  # noqa: PLC0415

        counts = np.bincount(places)
        sums = [np.bincount(places, rows[name]) for name in ("request_bytes", "response_bytes")]
        errors = np.bincount(places, rows["error_code"] != 0)
        numbers = np.zeros(len(counts), np.int64)
        for place in np.flatnonzero(counts).tolist():
            client = self._clients.by_place[place]
            assert client is not None  # noqa: S101 - places of rows are not given away before they are flushed
            numbers[place] = client.number
            for index, column in enumerate((counts, *sums, errors)):
                client.totals[index] += int(column[place])
        found: NDArray[numpy.int64] = numbers[places]
        return found


def _event(channel: Channel, now_ns: int, cause: int) -> bytes:
    client = channel.client
    assert client is not None  # noqa: S101 - it was connected
    opened_ns, totals = channel.opened_ns, client.totals
    return CONNECTION_EVENT.struct.pack(client.number, channel.connection_id, now_ns, opened_ns, *totals, cause)
