"""The fuzzers: a process each that sends mutated frames through many connections at once.

One of them sends frames of every API and version, the other, as clients that have not authenticated, frames before,
within and after authentication, and mutated TLS. A frame counts when the broker has sent its response, or closed the
connection over it.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import random
import select
import signal
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping

from ops.reliability import chance
from ops.reliability.frames import NAMES, FrameMaker, Template
from ops.reliability.scripts import Barrage, Script, Strangers
from ops.reliability.wire import RECEIVE_BYTES, Wire
from ops.secured import PLAINTEXT
from rotunda.broker.errors import RotundaError
from rotunda.broker.protocol.api_keys import ApiKey

FRAMES, STRANGERS = "frames", "strangers"
#: Connections of each.
CONNECTIONS = {FRAMES: 16, STRANGERS: 64}
FRAMES_OF_A_VERSION = 12
#: APIs that create and delete files: one frame in some seconds is as good as a hundred.
EXPENSIVE = (
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_RECORDS,
)
#: Versions of Produce below this are rejected, each at the price of a connection.
OLDEST_PRODUCE = 3
FEW_FRAMES = 1
#: Without received data for this long, a connection whose requests may wait is closed, uncounted; another one shuts
#: down its side, as its frame may be incomplete, and must be closed by the broker.
PATIENCE_SECONDS = 0.5
#: A connection without response or close for this long is stuck.
STUCK_SECONDS = 60.0
LOOK_SECONDS = 0.05
#: Shorter than its patience; otherwise it would close connections before it has read from them.
LONGEST_REST_SECONDS = 0.2
TOPICS = 8


class Counts(ctypes.Structure):
    """The progress of a fuzzer; written by its process, read by the campaign."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("frames", "answered", "closed", "given_up", "stuck", "connections", "versions", "unprovoked")
    )


class Fuzzer:
    """The campaign's side of a process. ``kind``: FRAMES or STRANGERS; ``trusted``: the file of certificates."""

    def __init__(
        self, kind: str, ports: Mapping[str, int], trusted: str, seed: int, wanted: int | None, rate: float
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.counts = context.Value(Counts, lock=False)
        arguments = (kind, dict(ports), trusted, seed, wanted, rate, self.counts)
        self._process = context.Process(target=run, args=arguments, daemon=True)

    def start(self) -> None:
        self._process.start()

    def join(self, seconds: float) -> None:
        """Wait until it has sent all frames, for this long at most."""
        self._process.join(seconds)

    def stop(self) -> None:
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()

    def numbers(self) -> dict[str, int]:
        return {name: getattr(self.counts, name) for name, _ in Counts._fields_}


class Connection:
    """A socket, its script, when data arrived last, and whether it has shut down its side."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.socket = socket.create_connection(("127.0.0.1", script.port), STUCK_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.last_moment = time.monotonic()
        self.has_ended = False

    def send(self, data: bytes) -> None:
        """Send data; what the socket does not accept at once is cut off."""
        with contextlib.suppress(OSError):
            self.socket.send(data)

    def receive(self) -> bytes | None:
        """Return the available data, none when the broker has closed the connection; None: nothing has arrived."""
        try:
            return self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def shut_down(self) -> None:
        self.has_ended = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close with a reset, so that no port stays in TIME_WAIT."""
        self.script.steps.close()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Crowd:
    """All connections of the process."""

    def __init__(self, size: int, draw: Callable[[], Script], counts: Counts) -> None:
        self._size, self._draw, self._counts = size, draw, counts
        self._poll = select.epoll()
        self._by_fd: dict[int, Connection] = {}

    def turn(self) -> None:
        """Open new connections, handle available data, and check timeouts."""
        while len(self._by_fd) < self._size and self._open():
            pass
        for fd, _ in self._poll.poll(LOOK_SECONDS):
            connection = self._by_fd[fd]
            data = connection.receive()
            if data:
                connection.last_moment = time.monotonic()
                self._go_on(connection, data)
            elif data is not None:
                self._closed(connection)
        now = time.monotonic()
        for connection in list(self._by_fd.values()):
            self._check(connection, now - connection.last_moment)

    def _open(self) -> bool:
        try:
            connection = Connection(self._draw())
        except OSError:
            return False
        self._by_fd[connection.socket.fileno()] = connection
        self._poll.register(connection.socket, select.EPOLLIN)
        self._counts.connections += 1
        self._go_on(connection, None)
        return True

    def _go_on(self, connection: Connection, data: bytes | None) -> None:
        try:
            connection.send(connection.script.steps.send(data))
        except StopIteration:
            self._leave(connection)
        except (OSError, RotundaError):
            # Inside TLS the end of the connection is part of the received data.
            self._closed(connection)

    def _check(self, connection: Connection, seconds: float) -> None:
        """Treat a connection without received data for some time."""
        if seconds > STUCK_SECONDS:
            self._counts.stuck += 1
            self._leave(connection)
        elif seconds > PATIENCE_SECONDS and connection.script.may_wait:
            self._counts.given_up += 1
            self._leave(connection)
        elif seconds > PATIENCE_SECONDS and connection.script.is_mutated and not connection.has_ended:
            connection.shut_down()

    def _closed(self, connection: Connection) -> None:
        """Count the frame over which the broker has closed a connection."""
        if connection.script.is_mutated:
            self._counts.closed += 1
            self._counts.frames += 1
        else:
            self._counts.unprovoked += 1
        self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        del self._by_fd[connection.socket.fileno()]
        self._poll.unregister(connection.socket)
        connection.close()


def run(
    kind: str, ports: dict[str, int], trusted: str, seed: int, wanted: int | None, rate: float, counts: Counts
) -> None:
    """Send mutated frames at that rate a second until enough of them were dealt with; runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = chance.source(seed, kind)
    templates = templates_of(ports[PLAINTEXT], source, counts)
    if kind == FRAMES:
        draw = Barrage(source, templates, ports[PLAINTEXT], counts).draw
    else:
        draw = Strangers(source, templates, ports, ssl.create_default_context(cafile=trusted), counts).draw
    crowd, begin = Crowd(CONNECTIONS[kind], draw, counts), time.monotonic()
    while wanted is None or counts.frames < wanted:
        crowd.turn()
        ahead_seconds = counts.frames / rate - (time.monotonic() - begin)
        if ahead_seconds > 0:
            time.sleep(min(ahead_seconds, LONGEST_REST_SECONDS))


def templates_of(port: int, source: random.Random, counts: Counts) -> list[Template]:
    """Return frames of every served version, once the broker returns the versions."""
    while True:
        try:
            with Wire(port) as wire:
                served = wire.ask(ApiKey.API_VERSIONS, 0, {}).api_keys
                maker = FrameMaker(source, make_topics(wire))
            break
        except OSError:
            time.sleep(LOOK_SECONDS)
    versions = [(int(each.api_key), v) for each in served for v in range(each.min_version, each.max_version + 1)]
    counts.versions = len(versions)
    return [
        maker.template(key, version)
        for key, version in versions
        for _ in range(FEW_FRAMES if is_expensive(key, version) else FRAMES_OF_A_VERSION)
    ]


def is_expensive(api_key: int, version: int) -> bool:
    return api_key in EXPENSIVE or (api_key == ApiKey.PRODUCE and version < OLDEST_PRODUCE)


def make_topics(wire: Wire) -> tuple[bytes, ...]:
    """Create those of the fuzzer's own topics that do not exist yet, and return their ids."""
    names = NAMES[:TOPICS]
    topics = [{"name": name, "num_partitions": 3, "replication_factor": 1} for name in names]
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 10_000})
    found = wire.ask(ApiKey.METADATA, 12, {"topics": [{"name": name} for name in names]}).topics
    return tuple(topic.topic_id for topic in found if any(topic.topic_id))
