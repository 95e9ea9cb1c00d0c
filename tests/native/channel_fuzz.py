"""Rings, received frames and sent responses, in C and in Python, from the same bytes; the fuzzer calls it."""

from __future__ import annotations

import random
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from rotunda.broker import native
from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc import request_channel
from rotunda.broker.ipc.request_channel import RANGE, RESPONSE, ChannelShape
from rotunda.broker.network.accounting.completed_requests import CompletedRequests
from rotunda.broker.network.processor import channel as channel_twin
from rotunda.broker.network.processor import request_reader, response_reader
from rotunda.broker.network.processor.kept_requests import KeptRequests
from rotunda.broker.network.processor.request_sender import MemoryPool, RequestSender
from rotunda.shm.rings.ring import RingConsumer, RingCorrupt, RingProducer, initialise, ring_bytes
from tests.support.native import module_of
from tests.support.wire_client import request_frame

RING_BYTES = 1024
CHANNEL_RING_BYTES = 256 * 1024
CONNECTION = 77
#: Of which responses have ranges.
FILES = Path(request_reader.__file__), Path(response_reader.__file__)


def compare_rings(compiled: ModuleType, numbers: random.Random) -> None:
    """Do the same steps with the ends of two rings, the lengths in which are sometimes damaged."""
    views = [memoryview(bytearray(ring_bytes(RING_BYTES))) for _ in range(2)]
    for view in views:
        initialise(view, 0, RING_BYTES)
    kinds: tuple[tuple[Any, Any], ...] = (
        (RingProducer, RingConsumer),
        (partial(compiled.RingProducer, corrupt=RingCorrupt), partial(compiled.RingConsumer, corrupt=RingCorrupt)),
    )
    producers = [kind[0](view, 0) for kind, view in zip(kinds, views, strict=True)]
    consumers = [kind[1](view, 0) for kind, view in zip(kinds, views, strict=True)]
    for _ in range(60):
        step, size = (
            numbers.choice("ccccprrlld" if numbers.random() < 0.02 else "ccccprrll"),
            numbers.randrange(-2, 530),
        )
        position = numbers.choice([0, producers[0].position, consumers[0].cursor])
        damage = numbers.randrange(24, ring_bytes(RING_BYTES) // 8), numbers.choice([-8, 0, 7, 2**40, -(2**63), 24])
        if step == "d":
            for view in views:
                view.cast("q")[damage[0]] = damage[1]
        outcomes = [_of_ring(step, *ends, size, position) for ends in zip(producers, consumers, strict=True)]
        assert outcomes[0] == outcomes[1], (step, size, outcomes)
        assert views[0] == views[1], step


STEPS = {
    "c": lambda producer, _, number, __: producer.claim(number),
    "p": lambda producer, *_: (producer.publish(), producer.position, producer.consumed()),
    "r": lambda _, ring, number, __: (ring.read(number % 7), ring.cursor, ring.pending()),
    "l": lambda _, ring, number, position: ring.release() if number % 2 else ring.release_to(position),
    "d": lambda *_: None,
}


def _of_ring(step: str, *of: Any) -> object:
    try:
        return STEPS[step](*of)
    except RingCorrupt as error:
        return str(error).rpartition("length")[2]
    except ValueError as error:
        return str(error)


class Side:
    """A channel with its reader and its responses, in one implementation."""

    def __init__(self, compiled: ModuleType | None, handlers: int) -> None:
        kept = KeptRequests(1 << 20, 1 << 20)
        config = load(None, {"pipeline.max": "5", "pipeline.resume": "5"}, {})
        with using(compiled):
            shape = ChannelShape(1, handlers + 1, CHANNEL_RING_BYTES)
            self.view = memoryview(bytearray(shape.bytes_needed))
            rings = request_channel.RequestChannel(self.view, shape)
            rings.initialise()
            pool = MemoryPool(memoryview(bytearray(1 << 20)), 0, 1 << 20, -1, 2)
            bells: Any = (SimpleNamespace(ring=bool),) * (handlers + 1)
            self.sender = RequestSender(rings, 0, bells, pool, handlers=handlers)
            self.reader = request_reader.RequestReader(config, self.sender, kept, _now_ns)
            storms: Any = SimpleNamespace(are_watched=False)
            self.responses = response_reader.ResponseReader(rings, 0, kept, 1 << 20, _now_ns, storms)
            clients: Any = None
            self.finished = CompletedRequests(clients)
            self.responses.record_in(self.finished)
            self.answers = rings.response_producer(0, 0)
            kind = channel_twin if compiled is None else module_of("channel", Path(channel_twin.__file__))
            kind.FileSend = channel_twin.FileSend
        ours, self.client = socket.socketpair()
        for end in (ours, self.client):
            end.setblocking(False)
        self.channel = kind.Channel(ours, CONNECTION, 1, 3, "peer")
        self.channel.client = SimpleNamespace(place=3)
        self.faults: list[str] = []
        # A file that is not open yet is left to the twin.
        self.responses._files.open(str(FILES[0]), FILES[0].stat().st_ino)
        self.refused = False

    def receive(self, data: bytes) -> object:
        """Read what a client sends; return all that has changed."""
        if data:
            self.client.send(data)
        outcome: object = None
        try:
            if not self.channel.muted:
                outcome = self.reader.read(self.channel)
        except InvalidReceive as error:
            outcome, self.channel.inbox, self.refused = repr(error), b"", True
        self.sender.publish()
        return outcome, self.state()

    def send(self, frames: list[tuple[bytes, bytes]], *, is_timed: bool) -> object:
        """Send responses, as `Processor.process_new_responses` does; return all that has changed."""
        for envelope, body in frames:
            at = self.answers.claim(len(envelope) + len(body))
            self.view[at : at + len(envelope) + len(body)] = envelope + body
        self.answers.publish()
        responses, finished = self.responses, self.finished
        ready = responses.read({CONNECTION: self.channel}, self._fault)
        if responses.has_lone:
            finish = partial(finished.add_lone) if is_timed else finished.add_lone
            responses.send_lone(ready, finish, self._fault)
        for channel in ready.values():
            if not channel.out or channel.send_out():
                finished.add(channel, _now_ns())
                self.reader.lift_mutes(channel)
        responses.release()
        wire = b""
        with suppress(BlockingIOError):
            wire = self.client.recv(1 << 20)
        return wire, self.faults, sorted(finished.completions), self.state()

    def state(self) -> object:
        channel = self.channel
        received = self.reader.counts
        counts = received.requests, received.bytes, self.finished.count, self.responses.bytes_received
        return (
            channel.next_sequence, channel.next_response, int(channel.muted), channel.inbox, channel.kept_bytes,
            channel.read_bytes, channel.repeatable, channel.completions, sorted(channel.held), channel.closing, counts,
        )  # fmt: skip

    def close(self) -> None:
        self.client.close()
        self.channel.sock.close()

    def _fault(self, _channel: object) -> None:
        self.faults.append(repr(sys.exc_info()[1]))


def _now_ns() -> int:
    return 1_000_000


@contextmanager
def using(compiled: ModuleType | None) -> Iterator[None]:
    """Have the modules of a processor choose this implementation."""
    modules = native, request_reader, response_reader
    ends = request_channel.RingProducer, request_channel.RingConsumer
    for module in modules:
        module.compiled = compiled
    if compiled is not None:
        request_channel.RingProducer = partial(compiled.RingProducer, corrupt=RingCorrupt)
        request_channel.RingConsumer = partial(compiled.RingConsumer, corrupt=RingCorrupt)
    yield
    for module in modules:
        module.compiled = None
    request_channel.RingProducer, request_channel.RingConsumer = ends


def compare_channels(compiled: ModuleType, numbers: random.Random) -> None:
    """Receive the same bytes on two channels, and send the same responses."""
    handlers = numbers.choice((1, 1, 3))
    sides = Side(None, handlers), Side(compiled, handlers)
    try:
        session = numbers.choice((b"", b"session"))
        for side in sides:
            side.channel.session = session
        waiting = b""
        for _ in range(30):
            for _ in range(numbers.randrange(4)):
                waiting += any_request(numbers)
            sent, waiting = _cut(numbers, waiting)
            received = [side.receive(sent) for side in sides]
            assert received[0] == received[1], sent.hex()
            assert sides[0].view == sides[1].view, sent.hex()
            if sides[0].refused:
                break
            frames = [any_response(numbers, sides[0].channel) for _ in range(sides[0].channel.in_flight and 4)]
            is_timed = numbers.random() < 0.3
            written = [side.send(frames, is_timed=is_timed) for side in sides]
            assert written[0] == written[1], frames
            assert sides[0].view == sides[1].view, frames
    finally:
        for side in sides:
            side.close()


def any_request(numbers: random.Random) -> bytes:
    """Return a request; some are none."""
    key = numbers.choice((0, 0, 3, 12, 12, 18, 19, 200, -1))
    body = numbers.randbytes(numbers.choice((0, 5, 100, 3000)))
    if numbers.random() < 0.5:
        body = struct.pack(">hhiih3siii", -1, 1, 9, 1, 3, b"top", 1, numbers.randrange(9), 0)
    whole = request_frame(key, numbers.randrange(8), numbers.randrange(99), body)
    return whole if numbers.random() < 0.98 else struct.pack(">i", numbers.choice((-1, 0, 7, 2**31 - 1)))


def _cut(numbers: random.Random, data: bytes) -> tuple[bytes, bytes]:
    at = len(data) if numbers.random() < 0.7 else numbers.randrange(len(data) + 1)
    return data[:at], data[at:]


def any_response(numbers: random.Random, channel: Any) -> tuple[bytes, bytes]:
    """Return a response, mostly to the next request that has none, and of its first bytes what it claims."""
    body = numbers.randbytes(numbers.choice((0, 4, 30, 5000)))
    connection = CONNECTION if numbers.random() < 0.97 else 5
    sequence = numbers.randrange(channel.next_response, channel.next_sequence) - numbers.choice((0,) * 20 + (1,))
    kind = numbers.choice((0,) * 9 + (1, 16))
    envelope = [0] * (len(RESPONSE.unpack(bytes(RESPONSE.size))))
    ranges = numbers.choice((0, 0, 0, 1, 1, 2)) if body else 0
    envelope[:5] = connection, sequence, len(body), ranges, kind
    rows, paths, left = b"", b"", len(body)
    for _ in range(ranges):
        before, file, position = numbers.randrange(left + 1), numbers.choice(FILES), numbers.randrange(9)
        path = bytes(file)
        rows += RANGE.pack(before, file.stat().st_ino, position, numbers.choice((1, 50, 9_000)), len(path))
        paths, left = paths + path, left - before
    return RESPONSE.pack(*envelope), rows + paths + body
