"""A network between the network client and a simulated cluster: it delays, loses, cuts, and delivers cut requests late.

It replaces the selector. Requests of one connection arrive in order; a connection that ends loses those that have not
arrived, but a first part may arrive later, when the client has another connection already.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rotunda.broker.client.network.channel import ChannelPhase, ChannelState, Endpoint
from rotunda.broker.client.network.requests import NetworkReceive, NetworkSend
from rotunda.broker.protocol.api_keys import ApiKey
from tests.client.simulation.clock import SimulatedClock
from tests.client.simulation.cluster import Cluster

MOST_TURNS_A_SECOND = 20_000

_INIT_PRODUCER_ID = ApiKey.INIT_PRODUCER_ID.to_bytes(2)
#: The id -1 and the epoch -1.
_NO_PRODUCER_ID = b"\xff" * 10


class Stuck(BaseException):
    """Nothing will ever happen again, or all the time at once."""


@dataclass
class Weather:
    """The faults of the network. Probabilities are for each request or connection; times are milliseconds."""

    delay_ms: float = 2
    slow: float = 0.0
    slow_ms: float = 500
    blocked_write: float = 0.0
    refused_connection: float = 0.0
    cut: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.5
    late_ms: float = 2000


@dataclass
class Connection:
    """One connection and its data in flight."""

    node_id: int
    server: int
    sent: int = 0
    is_open: bool = True
    is_deaf: bool = False
    """No answer comes any more."""
    survivors: int = 0
    """How many of what was sent arrives although the connection has ended."""
    late_ms: float = 0.0
    last_arrival_ms: float = 0.0
    last_answer_ms: float = 0.0
    unwritten: deque[NetworkSend] = field(default_factory=deque)


class SimulatedNetwork:
    """`Selectable` without sockets."""

    def __init__(self, clock: SimulatedClock, cluster: Cluster, chance: random.Random, weather: Weather) -> None:
        self.connected: list[int] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.weather = weather
        self.is_closed = False
        self._clock = clock
        self._cluster = cluster
        self._chance = chance
        self._connections: dict[int, Connection] = {}
        self._all: list[Connection] = []
        self._news: list[Callable[[], None]] = []
        self._is_woken = False
        self._turns = 0
        self._turns_since_ms = 0.0

    # Called by the network client.

    def connect(self, node_id: int, endpoint: Endpoint, _send_buffer_bytes: int, _receive_buffer_bytes: int) -> None:
        server = int(endpoint.host.removeprefix("broker"))
        connection = Connection(node_id, server)
        delay_ms = self._delay_ms()
        if not self._cluster.is_up[server] or self._chance.random() < self.weather.refused_connection:
            self._clock.at(delay_ms, partial(self._news.append, partial(self._refused, node_id)))
            return
        self._clock.at(delay_ms, partial(self._news.append, partial(self._stands, connection)))

    def send(self, send: NetworkSend) -> None:
        connection = self._connections.get(send.node_id)
        if connection is None:
            return
        if self._chance.random() < self.weather.blocked_write:
            self._clock.at(self._delay_ms(), partial(self._news.append, partial(self._written, connection, send)))
            return
        self._write(connection, send)

    def poll(self, timeout_ms: float) -> None:
        self.connected, self.disconnected, self.completed_sends, self.completed_receives = [], {}, [], []
        self._count_turn()
        self._clock.now_ms += 0.002
        until_ms = self._clock.now_ms + max(0.0, timeout_ms)
        self._clock.run_due()
        while not self._news and not self._is_woken and self._clock.now_ms < until_ms:
            upcoming_ms = self._clock.next_event_ms
            if upcoming_ms is None and until_ms == float("inf"):
                raise Stuck(f"nothing will happen after {self._clock.now_ms:.0f} ms")
            self._clock.now_ms = (
                until_ms if upcoming_ms is None else max(self._clock.now_ms, min(upcoming_ms, until_ms))
            )
            self._clock.run_due()
        self._is_woken = False
        news, self._news = self._news, []
        for each in news:
            each()

    def wakeup(self) -> None:
        self._is_woken = True

    def is_channel_ready(self, node_id: int) -> bool:
        return node_id in self._connections

    def close_channel(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            self._end(connection)

    def close(self) -> None:
        for node_id in list(self._connections):
            self.close_channel(node_id)
        self.is_closed = True

    # Events of a connection.

    def cut_all(self, server: int | None = None) -> None:
        """End all connections, or those to one broker; the client hears of it."""
        for connection in list(self._connections.values()):
            if server is None or connection.server == server:
                self._cut(connection)

    def _stands(self, connection: Connection) -> None:
        if self.is_closed:
            return
        self._connections[connection.node_id] = connection
        self.connected.append(connection.node_id)

    def _refused(self, node_id: int) -> None:
        self.disconnected[node_id] = ChannelState(ChannelPhase.NOT_CONNECTED)

    def _written(self, connection: Connection, send: NetworkSend) -> None:
        if connection.is_open:
            self._write(connection, send)
            self.completed_sends.append(send)

    def _write(self, connection: Connection, send: NetworkSend) -> None:
        wire = b"".join(send.buffers)
        send.write_to(lambda _buffers: len(wire))
        arrival_ms = max(connection.last_arrival_ms, self._clock.now_ms + self._delay_ms())
        connection.last_arrival_ms = arrival_ms
        number, connection.sent = connection.sent, connection.sent + 1
        self._clock.at(arrival_ms - self._clock.now_ms, partial(self._arrives, connection, number, wire))
        if self._chance.random() < self.weather.lost_answer:
            connection.is_deaf = True
        if self._chance.random() < self.weather.cut:
            self._clock.at(self._delay_ms(), partial(self._cut, connection))

    def _cut(self, connection: Connection) -> None:
        if connection.is_open and self._connections.get(connection.node_id) is connection:
            del self._connections[connection.node_id]
            self._end(connection)
            self._news.append(lambda: self.disconnected.update({connection.node_id: ChannelState(ChannelPhase.READY)}))

    def _end(self, connection: Connection) -> None:
        connection.is_open = False
        if self._chance.random() < self.weather.late:
            connection.survivors = connection.sent - self._chance.randint(0, 5)
            connection.late_ms = self._chance.uniform(0, self.weather.late_ms)

    def _arrives(self, connection: Connection, number: int, wire: bytes) -> None:
        if connection.is_open:
            self._reaches(connection, wire)
        elif number < connection.survivors and self._may_be_late(wire):
            self._clock.at(connection.late_ms, partial(self._reaches, connection, wire))

    def _may_be_late(self, wire: bytes) -> bool:
        """Return whether the cluster's protocol is safe if a request is late.

        Protocol 1 cannot distinguish a late EndTxn from that of the next transaction: the reason for KIP-890. And a
        late InitProducerId of a producer without an id cannot be distinguished from that of a successor, which fences
        this one.
        """
        if wire[4:6] == _INIT_PRODUCER_ID and _NO_PRODUCER_ID in wire:
            return False
        return self._cluster.config.transaction_version >= 2 or wire[4:6] == b"\0\0"

    def _reaches(self, connection: Connection, wire: bytes) -> None:
        if not self._cluster.is_up[connection.server]:
            return
        response = self._cluster.response(connection.server, wire)
        if response is None or not connection.is_open:
            return
        answer_ms = max(connection.last_answer_ms, self._clock.now_ms + self._delay_ms())
        connection.last_answer_ms = answer_ms
        self._clock.at(answer_ms - self._clock.now_ms, partial(self._answers, connection, response))

    def _answers(self, connection: Connection, response: bytes) -> None:
        if connection.is_open and not connection.is_deaf:
            receive = NetworkReceive(connection.node_id, response, 4, len(response))
            self._news.append(lambda: connection.is_open and self.completed_receives.append(receive))

    def _delay_ms(self) -> float:
        if self._chance.random() < self.weather.slow:
            return self._chance.uniform(0, self.weather.slow_ms)
        return self._chance.uniform(0.1, self.weather.delay_ms)

    def _count_turn(self) -> None:
        self._turns += 1
        if self._clock.now_ms - self._turns_since_ms > 1000:
            self._turns, self._turns_since_ms = 0, self._clock.now_ms
        if self._turns > MOST_TURNS_A_SECOND:
            raise Stuck(f"{self._turns} turns in a second, at {self._clock.now_ms:.0f} ms: the loop spins")
