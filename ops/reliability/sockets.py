"""Bad manners on sockets: storms of connections, readers that do not read, senders that drip."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import time

from ops.reliability.attacks import Battlefield
from ops.reliability.bystander import TOPIC
from ops.reliability.wire import CLIENT_ID, Wire
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey

STORM = 400
SLOW = 20
LONGEST_SLOW_SECONDS = 8.0
DRIP_SECONDS = 0.05
RESET = struct.pack("ii", 1, 0)
VERSIONS = codec.encode_request(ApiKey.API_VERSIONS, 0, 1, CLIENT_ID, {})
#: The first bytes that a new connection may send.
OPENINGS = (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", VERSIONS, VERSIONS[:-1], VERSIONS * 50)
SMALL_BUFFER_BYTES = 4096
FETCHES = 50


def storm(field: Battlefield, chance: random.Random) -> None:
    """Open hundreds of connections at once; each sends something, or nothing, and is reset."""
    with (
        field.journal.window("connection storm"),
        contextlib.ExitStack() as connections,
    ):
        opened = [connections.enter_context(socket.socket()) for _ in range(STORM)]
        for each in opened:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", field.broker.port))
        time.sleep(chance.random())
        for each in opened:
            with contextlib.suppress(OSError):
                each.send(chance.choice(OPENINGS))
        time.sleep(chance.random())
        for each in opened:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def slow_readers(field: Battlefield, chance: random.Random) -> None:
    """Request large responses repeatedly, and read them slowly, for some seconds."""
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": TOPIC, "partitions": [place]}],
    }
    fetch = codec.encode_request(ApiKey.FETCH, 11, 1, CLIENT_ID, fields)
    with field.journal.window("slow readers"), contextlib.ExitStack() as connections:
        wires = [connections.enter_context(Wire(field.broker.port)) for _ in range(SLOW)]
        for wire in wires:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
            wire.send(fetch * FETCHES)
        end = time.monotonic() + chance.uniform(1, LONGEST_SLOW_SECONDS)
        while time.monotonic() < end and not field.ended.wait(DRIP_SECONDS):
            for each in readable(wires):
                with contextlib.suppress(OSError):
                    each.recv(100)


def slow_senders(field: Battlefield, chance: random.Random) -> None:
    """Send requests byte by byte, or a part of one and never the rest, for some seconds."""
    with field.journal.window("slow senders"), contextlib.ExitStack() as connections:
        wires = [connections.enter_context(Wire(field.broker.port)) for _ in range(SLOW)]
        end = time.monotonic() + chance.uniform(1, LONGEST_SLOW_SECONDS)
        at = 0
        while time.monotonic() < end and not field.ended.wait(DRIP_SECONDS):
            for wire in wires:
                with contextlib.suppress(OSError):
                    wire.socket.send(VERSIONS[at : at + 1])
            at = (at + 1) % len(VERSIONS)


def readable(wires: list[Wire]) -> list[socket.socket]:
    """Return the sockets of the connections on which something has arrived, or which have ended."""
    poll = select.poll()
    by_fd = {wire.socket.fileno(): wire.socket for wire in wires}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(0)]
