"""The recent requests: cached in memory and published for live readers (`shm.tables.recent_requests`).

Runs in the recorder, in addition to the files, which lag by the time until one is finished. Rows stay arrays; only a
sample of them is counted by client, and a client's requests are listed by API and version, with the topics in them.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from rotunda.broker.ipc import connection_id
from rotunda.broker.request_log.ring_reader import joined
from rotunda.broker.request_log.slow_requests import durations_ns, select
from rotunda.shm.recorder_layout import REQUEST_ROW
from rotunda.shm.tables.recent_requests import NAMES_BYTES, NEWEST_ROWS, SLOWEST_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rotunda.broker.request_log.names import ClientNames, Clients, Subjects
    from rotunda.shm.tables.recent_requests import RecentWriter

    Rows = NDArray[np.void]

_NS_PER_S = 1_000_000_000

#: Least interval between publications, which also need a change.
INTERVAL_NS = 500_000_000

#: Time for which a slow request is shown.
SLOW_AGE_NS = 600 * _NS_PER_S

#: Most rows of one batch that are counted by client; more of them are sampled.
COUNTED_ROWS = 512

#: Most topics, and APIs with versions, cached of one client, and most clients listed and cached: the most recent ones.
#: A client chooses its versions, including unsupported ones.
MOST_TOPICS = 8
MOST_CALLS = 64
MOST_CLIENTS = 300
MOST_CONNECTIONS = 4 * MOST_CLIENTS
MOST_EVENTS = 200

_NO_ROWS = np.empty(0, REQUEST_ROW.dtype)


class Connection:
    """The known activity of one connection."""

    __slots__ = ("calls", "client", "last_ns", "names", "opened_ns", "topics")

    def __init__(self, client: int, names: ClientNames, opened_ns: int) -> None:
        #: Its present number: a client that sends its name gets another.
        self.client = client
        self.names = names
        self.opened_ns = opened_ns
        self.last_ns = opened_ns
        #: Requests by (API, version), estimated from samples.
        self.calls: dict[tuple[int, int], int] = {}
        self.topics: dict[int, None] = {}

    def count(self, call: tuple[int, int], n: int) -> None:
        """Add requests; when there are too many kinds, the rarest is deleted."""
        calls = self.calls
        if call not in calls and len(calls) >= MOST_CALLS:
            del calls[min(calls, key=calls.__getitem__)]
        calls[call] = calls.get(call, 0) + n

    def name_topic(self, subject: int) -> None:
        """Add a partition's subject; when there are too many, the least recently used is deleted."""
        self.topics.pop(subject, None)
        self.topics[subject] = None
        if len(self.topics) > MOST_TOPICS:
            self.topics.pop(next(iter(self.topics)))


class RecentRequests:
    """Collects rows and events on arrival, and publishes them."""

    def __init__(self, writer: RecentWriter, clients: Clients, subjects: Subjects) -> None:
        self._writer = writer
        self._clients = clients
        self._subjects = subjects
        self._newest: deque[Rows] = deque()
        self._kept = 0
        self._slowest: Rows | None = None
        #: By name, the most recently active last.
        self._connections: dict[str, Connection] = {}
        #: By number of client, including some ended ones, so that their last rows do not add them again.
        self._by_client: dict[int, Connection] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._changed = False
        self._published_ns = 0

    def add_rows(self, rows: Rows, now_ns: int) -> None:
        """Add rows, whose `partition_row` already contains subjects."""
        self._changed = True
        # A copy: the array it is a part of may be a hundred times as large.
        self._newest.append(rows[-NEWEST_ROWS:].copy())
        self._kept += len(self._newest[-1])
        while self._kept - len(self._newest[0]) >= NEWEST_ROWS:
            self._kept -= len(self._newest.popleft())
        self._keep_slowest(rows, now_ns)
        step = -(-len(rows) // COUNTED_ROWS)
        self._count(rows[::step], step)

    def add_connections(self, events: Rows) -> None:
        """Add opened and closed connections."""
        self._changed = True
        for number, client, opened_ns, cause in zip(
            *(events[name].tolist() for name in ("connection_id", "client", "opened_ns", "cause")), strict=True
        ):
            name = connection_id.text(number)
            if cause < 0:
                # Its first rows may have arrived before.
                opened = self._connections.get(name) or Connection(client, self._clients.get(client), opened_ns)
                opened.opened_ns = opened_ns
                self._put(opened)
            else:
                self._connections.pop(name, None)
        if len(self._by_client) > 2 * MOST_CONNECTIONS:
            # Clients still connected are added again.
            self._by_client.clear()

    def client_numbers(self) -> set[int]:
        """Return the numbers of the clients of cached rows."""
        return {number for rows in self._kept_rows() for number in rows["client"].tolist()}

    def subjects(self) -> set[int]:
        """Return the subjects of cached rows and connections."""
        named = {subject for rows in self._kept_rows() for subject in rows["partition_row"].tolist()}
        return named.union(
            *(each.topics for each in self._by_client.values()), *(each.topics for each in self._connections.values())
        )

    def add_group_event(self, event: dict[str, Any]) -> None:
        """Add an event of a group."""
        self._changed = True
        self._events.append(event)

    def publish(self, now_ns: int, epoch_ns: int) -> None:
        """Publish changes, if the interval has passed."""
        if not self._changed or now_ns - self._published_ns < INTERVAL_NS:
            return
        self._changed = False
        self._published_ns = now_ns
        newest = np.concatenate([*self._newest])[-NEWEST_ROWS:] if self._newest else _NO_ROWS
        slowest = self._slowest if self._slowest is not None else _NO_ROWS
        clients, events = MOST_CLIENTS, MOST_EVENTS
        while True:
            names = self._names(np.concatenate([newest, slowest]), clients, events)
            if len(names) <= NAMES_BYTES:
                break
            # Names are long: drop connections before rows, and rows before slow ones.
            if clients:
                clients //= 2
            elif len(newest) or events:
                newest, events = newest[len(newest) // 2 + 1 :], events // 2
            else:
                slowest = slowest[: len(slowest) // 2]
        self._writer.publish(newest.tobytes(), slowest.tobytes(), names, epoch_ns, now_ns)

    @property
    def due_ns(self) -> int | None:
        """When the next publication is due, on the monotonic clock; None without changes."""
        return self._published_ns + INTERVAL_NS if self._changed else None

    def _keep_slowest(self, rows: Rows, now_ns: int) -> None:
        if self._slowest is not None:
            self._slowest = select(self._slowest, self._slowest["end_ns"] > now_ns - SLOW_AGE_NS)
            if len(self._slowest) == SLOWEST_ROWS:
                rows = select(rows, durations_ns(rows) > int(durations_ns(self._slowest[-1:])[0]))
                if not len(rows):
                    return
            rows = joined([self._slowest, rows])
        order = np.argsort(-durations_ns(rows), kind="stable")[:SLOWEST_ROWS]
        self._slowest = select(rows, order)

    def _count(self, rows: Rows, step: int) -> None:
        """Add rows, each of which represents `step`, to their clients' activity."""
        clients, codes = np.unique(rows["client"], return_inverse=True)
        # One number for each combination: codes, subjects and APIs with their versions each have bits of their own.
        calls = codes << 48 | (rows["partition_row"].astype(np.int64) + 1) << 16
        calls |= (rows["api_key"].astype(np.int64) & 0xFF) << 8 | (rows["api_version"].astype(np.int64) & 0xFF)
        _, firsts, places = np.unique(calls, return_index=True, return_inverse=True)
        weights = np.bincount(places, rows["weight"] * step).astype(np.int64).tolist()
        last_ns = int(rows["end_ns"].max())
        found = rows[firsts]
        columns = [clients[codes[firsts]], *(found[name] for name in ("api_key", "api_version", "partition_row"))]
        for client, key, version, subject, weight in zip(*(each.tolist() for each in columns), weights, strict=True):
            connection = self._by_client.get(client) or self._meet(client, last_ns)
            if connection.last_ns != last_ns and connection.names.connection in self._connections:
                self._put(connection)
            connection.last_ns = last_ns
            connection.count((key, version), weight)
            if subject >= 0:
                connection.name_topic(subject)

    def _meet(self, client: int, now_ns: int) -> Connection:
        """Return the connection of a new client number."""
        names = self._clients.get(client)
        connection = self._connections.get(names.connection)
        if connection is None:
            # Opened before this process began, or closed meanwhile.
            connection = Connection(client, names, now_ns)
        connection.client, connection.names = client, names
        self._put(connection)
        return connection

    def _put(self, connection: Connection) -> None:
        """Put a connection last; when there are too many, the first is deleted."""
        name = connection.names.connection
        self._connections.pop(name, None)
        self._connections[name] = self._by_client[connection.client] = connection
        if len(self._connections) > MOST_CONNECTIONS:
            first = self._connections.pop(next(iter(self._connections)))
            self._by_client.pop(first.client, None)

    def _kept_rows(self) -> list[Rows]:
        return [*self._newest, *(() if self._slowest is None else (self._slowest,))]

    def _names(self, rows: Rows, clients: int, events: int) -> bytes:
        """Return the JSON for rows, with this many of the most recently active connections, and of the last events."""
        active = sorted(self._connections.values(), key=lambda each: each.last_ns, reverse=True)[:clients]
        return json.dumps(self._described(rows, active, events), ensure_ascii=False).encode(errors="replace")

    def _described(self, rows: Rows, connections: list[Connection], events: int) -> dict[str, Any]:
        numbers = np.unique(rows["client"]).tolist()
        subjects = np.unique(rows["partition_row"]).tolist()
        return {
            "clients": {number: self._clients.get(number) for number in numbers},
            "subjects": {subject: self._subjects.name(subject) for subject in subjects if subject >= 0},
            "connections": [
                {
                    "names": each.names,
                    "opened_ns": each.opened_ns,
                    "last_ns": each.last_ns,
                    "calls": [(*call, count) for call, count in each.calls.items()],
                    "topics": sorted({self._subjects.name(subject)[0] or "" for subject in each.topics}),
                }
                for each in connections
            ],
            "connection_count": len(self._connections),
            "events": list(self._events)[len(self._events) - min(events, len(self._events)) :],
        }
