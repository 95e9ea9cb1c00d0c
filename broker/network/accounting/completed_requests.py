"""Buffers completed requests and aggregates them in batches of a few thousand.

Runs in processor processes. A request is complete when the last byte of its response is written, or its connection is
closed (``D21``); until the flush only its target's facts are stored. A flush turns the rows into one array.
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
    from rotunda.broker.network.processor.channel import Channel, Completion
    from rotunda.shm.metrics.process_metrics import MetricsWriter

    Rows = NDArray[numpy.void]

#: Rows buffered before an aggregation.
BATCH_ROWS = 4096

#: Rows that may wait for the background import of numpy.
MOST_WAITING_ROWS = 8 * BATCH_ROWS

_FACTS_BYTES = REQUEST_ROW.offset("client")
_OPENED = -1

#: A row under construction, as a numpy type: its target's facts in one field, and the other columns.
_PARTS: Any = {
    "names": ["facts", "client", "taken_ns", "end_ns"],
    "formats": [f"V{_FACTS_BYTES}", "i8", "i8", "i8"],
    "offsets": [0, *(REQUEST_ROW.offset(name) for name in ("client", "taken_ns", "end_ns"))],
    "itemsize": REQUEST_ROW.size,
}


class CompletedRequests:
    """Requests completed since the last flush, and connections opened or closed."""

    def __init__(self, clients: ClientRegistry, sender: RequestLogSender | None = None) -> None:
        """Without a ``sender`` there is no request log."""
        #: Total of all requests ever added.
        self.count = 0
        #: Whether rows may be aggregated: importing numpy would delay the first requests.
        self.is_prepared = True
        self._clients = clients
        self._sender = sender
        #: The rows; compiled code adds to this list and the next too.
        self.completions: list[Completion] = []
        #: Place of the client, rows, time of the last byte: three numbers for each run of rows of one client.
        self.runs: list[int] = []
        self._orphans: list[tuple[int, Completion]] = []
        self._closed: list[tuple[Channel, int, int]] = []
        self._events: list[bytes] = []

    @property
    def listeners_in_use(self) -> set[int]:
        """The listeners with open connections."""
        return {listener for listener, *_ in self._clients.software}

    def __len__(self) -> int:
        return len(self.completions) + len(self._orphans)

    def add(self, channel: Channel, end_ns: int) -> None:
        """Add the requests whose responses have just been written, and clear the channel's list of them. HOT."""
        completions = channel.completions
        if channel.former_clients:
            self._add_renamed(channel, end_ns)
        elif channel.client is not None:
            self.runs += (channel.client.place, len(completions), end_ns)
            self.completions += completions
        self.count += len(completions)
        completions.clear()

    def add_lone(self, channel: Channel, completion: Completion, end_ns: int) -> None:
        """Add one request whose response has just been written; the channel has no other. HOT."""
        client = channel.client
        if client is None or channel.former_clients:
            channel.completions.append(completion)
            self.add(channel, end_ns)
            return
        self.runs += (client.place, 1, end_ns)
        self.completions.append(completion)
        self.count += 1

    def add_orphans(self, orphans: list[tuple[int, Completion]]) -> None:
        """Add responses to closed connections, and clear the list of them."""
        self._orphans += orphans
        self.count += len(orphans)
        orphans.clear()

    def note_received(self, count: int) -> None:
        """Publish the total of responses received, before they are written: a successor counts the missing ones."""
        if self._sender is not None:
            self._sender.note_received(count)

    def opened(self, channel: Channel) -> None:
        """Record a new connection."""
        self._clients.connected(channel)
        if self._sender is not None:
            self._events.append(_event(channel, channel.opened_ns, _OPENED))

    def closed(self, channel: Channel, cause: str, now_ns: int) -> None:
        """Record the end of a connection; its unread responses count as complete."""
        self.add(channel, now_ns)
        if channel.client is None:
            # A fault closed it before it was registered.
            return
        self._clients.retire(channel)
        self._closed.append((channel, now_ns, CLOSE_CAUSES.index(cause)))

    def flush(self, metrics: MetricsWriter) -> None:
        """Aggregate the buffered requests."""
        rows = None
        if (self.completions or self._orphans) and (self.is_prepared or len(self) >= MOST_WAITING_ROWS):
            rows = self._collect_rows()
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
        for each in channel.completions:
            while channel.former_clients and sequence >= channel.former_clients[0][0]:
                self._clients.outgrown(channel.former_clients.pop(0)[1])
            client = channel.former_clients[0][1] if channel.former_clients else channel.client
            assert client is not None  # noqa: S101 - it was renamed
            self.runs += (client.place, 1, end_ns)
            self.completions.append(each)
            sequence += 1

    def _collect_rows(self) -> Rows:
        """Return the rows as one array of REQUEST_ROWs, adding them to the totals of their connections."""
        import numpy as np  # noqa: PLC0415 - not needed before the first requests are finished

        known = len(self.completions)
        completions = self.completions + [each for _, each in self._orphans]
        facts, received_ns = zip(*completions, strict=True)
        wide = np.zeros(len(completions), dtype=_PARTS)
        wide["facts"] = np.frombuffer(b"".join(facts), dtype=f"V{_FACTS_BYTES}")
        wide["taken_ns"] = received_ns
        runs = np.array(self.runs, dtype=np.int64).reshape(-1, 3)
        places = np.repeat(runs[:, 0], runs[:, 1])
        wide["end_ns"][:known] = np.repeat(runs[:, 2], runs[:, 1])
        wide["end_ns"][known:] = wide["taken_ns"][known:]
        wide["client"][known:] = [self._clients.number_of(connection) for connection, _ in self._orphans]
        finished: Rows = wide.view(REQUEST_ROW.dtype)
        if known:
            finished["client"][:known] = self._add_up(places, finished[:known])
        self.completions.clear()
        self._orphans = []
        self.runs.clear()
        return finished

    def _add_up(self, places: NDArray[numpy.int64], rows: Rows) -> NDArray[numpy.int64]:
        """Add the rows to their connections' totals; return the client number of each row."""
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
