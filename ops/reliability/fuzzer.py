"""The fuzzer: a process that sends mutated frames of every API and version through many connections at once.

A frame counts when the broker has sent its response, or closed the connection over it. Frames after the one that closed
its connection are sent again. A connection whose next response is late (a fetch or a join that waits as requested) is
closed, uncounted.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import random
import select
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator

from ops.reliability import chance
from ops.reliability.frames import NAMES, FrameMaker, Template
from ops.reliability.mutations import Mutator
from ops.reliability.wire import RECEIVE_BYTES, Wire
from rotunda.broker.protocol.api_keys import ApiKey

CONNECTIONS = 16
AT_ONCE = 48
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
#: A connection without received data for this long is closed.
PATIENCE_SECONDS = 0.5
LOOK_SECONDS = 0.1
#: Shorter than its patience; otherwise it would close connections before it has read from them.
LONGEST_REST_SECONDS = 0.2
TOPICS = 8


class Counts(ctypes.Structure):
    """The fuzzer's progress; written by its process, read by the campaign."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("frames", "answered", "closed", "given_up", "connections", "versions", "unprovoked")
    )


class Fuzzer:
    """The campaign's side of the process."""

    def __init__(self, port: int, seed: int, wanted: int | None, frames_per_second: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.counts = context.Value(Counts, lock=False)
        arguments = (port, seed, wanted, frames_per_second, self.counts)
        self._process = context.Process(target=run, args=arguments, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._process.start()

    def stop(self) -> None:
        """End it."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()

    def numbers(self) -> dict[str, int]:
        """Return the counts so far."""
        return {name: getattr(self.counts, name) for name, _ in Counts._fields_}


class Attacker:
    """One connection of the fuzzer and its frames in flight."""

    def __init__(self, port: int, counts: Counts) -> None:
        self._port, self._counts = port, counts
        self.waiting: deque[bytes] = deque()
        self._partial = b""
        self.last_moment = 0.0
        self.socket: socket.socket | None = None

    def connect(self) -> None:
        """Open the connection; OSError when the broker is not there."""
        self.socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._partial = b""
        self._counts.connections += 1

    def send(self, frames: Iterator[bytes], now: float) -> None:
        """Send the remaining frames, and new ones up to the number in flight."""
        self.waiting.extend(itertools.islice(frames, AT_ONCE - len(self.waiting)))
        self.last_moment = now
        with contextlib.suppress(BlockingIOError):
            # A partly sent frame is cut: it stays in the list, and is sent whole on the next connection.
            self.socket.send(b"".join(self.waiting))

    def receive(self, now: float) -> bool:
        """Read the available responses; return False when the broker has closed the connection."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            return False
        self.last_moment = now
        data = self._partial + data
        at, answers = 0, 0
        while at + 4 <= len(data):
            behind = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if behind > len(data):
                break
            at = behind
            answers += 1
        self._partial = data[at:]
        for _ in range(min(answers, len(self.waiting))):
            self.waiting.popleft()
        self._counts.answered += answers
        self._counts.frames += answers
        return True

    def close(self) -> None:
        """Close with a reset, so that no port stays in TIME_WAIT."""
        if self.socket is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.socket.close()
            self.socket = None


class Barrage:
    """All connections of the process."""

    def __init__(self, port: int, counts: Counts, frames: Iterator[bytes]) -> None:
        self._counts, self._frames = counts, frames
        self._poll = select.epoll()
        self._attackers = [Attacker(port, counts) for _ in range(CONNECTIONS)]
        self._by_fd: dict[int, Attacker] = {}

    def turn(self) -> None:
        """Wait for responses, read them and send more."""
        now = time.monotonic()
        for attacker in self._attackers:
            if attacker.socket is None:
                self._open(attacker, now)
        events = self._poll.poll(LOOK_SECONDS)
        now = time.monotonic()
        for fd, _ in events:
            attacker = self._by_fd[fd]
            if not attacker.receive(now):
                self._lose(attacker, "closed")
            elif not attacker.waiting:
                attacker.send(self._frames, now)
        for attacker in self._attackers:
            if attacker.socket is not None and now - attacker.last_moment > PATIENCE_SECONDS:
                self._lose(attacker, "given_up")

    def _open(self, attacker: Attacker, now: float) -> None:
        try:
            attacker.connect()
        except OSError:
            time.sleep(LOOK_SECONDS)
            return
        self._by_fd[attacker.socket.fileno()] = attacker
        self._poll.register(attacker.socket, select.EPOLLIN)
        attacker.send(self._frames, now)

    def _lose(self, attacker: Attacker, how: str) -> None:
        """Close a connection; count its first frame without a response as the cause."""
        if attacker.waiting:
            attacker.waiting.popleft()
            setattr(self._counts, how, getattr(self._counts, how) + 1)
            self._counts.frames += how == "closed"
        del self._by_fd[attacker.socket.fileno()]
        self._poll.unregister(attacker.socket)
        attacker.close()


def run(port: int, seed: int, wanted: int | None, frames_per_second: float, counts: Counts) -> None:
    """Send mutated frames at that rate until enough of them were dealt with; runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = chance.source(seed, "frames")
    barrage = Barrage(port, counts, mutated_frames(templates_of(port, source, counts), source))
    begin = time.monotonic()
    while wanted is None or counts.frames < wanted:
        barrage.turn()
        ahead_seconds = counts.frames / frames_per_second - (time.monotonic() - begin)
        if ahead_seconds > 0:
            time.sleep(min(ahead_seconds, LONGEST_REST_SECONDS))


def mutated_frames(templates: list[Template], source: random.Random) -> Iterator[bytes]:
    """Yield mutated frames without end, every version of every API as often as any other, but for expensive ones."""
    mutated = Mutator(source, templates).mutated
    while True:
        source.shuffle(templates)
        yield from map(mutated, templates)


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
    """Return whether requests of a version cost much more than others."""
    return api_key in EXPENSIVE or (api_key == ApiKey.PRODUCE and version < OLDEST_PRODUCE)


def make_topics(wire: Wire) -> tuple[bytes, ...]:
    """Create those of the fuzzer's own topics that do not exist yet, and return their ids."""
    names = NAMES[:TOPICS]
    topics = [{"name": name, "num_partitions": 3, "replication_factor": 1} for name in names]
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 10_000})
    found = wire.ask(ApiKey.METADATA, 12, {"topics": [{"name": name} for name in names]}).topics
    return tuple(topic.topic_id for topic in found if any(topic.topic_id))
