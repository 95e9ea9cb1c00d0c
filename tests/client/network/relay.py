"""A relay between a client and a broker that disturbs the broker's responses."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tests.support.deadline import deadline_s

HOST = "127.0.0.1"

#: Returns the bytes to send for a response, its size included; None: the connection ends.
Disturb = Callable[[bytes], bytes | None]


def unchanged(response: bytes) -> bytes:
    """Leave a response as it is."""
    return response


class Relay:
    """Listens on `port`; `disturb` is applied to responses from now on."""

    def __init__(self, target_port: int) -> None:
        self.disturb: Disturb = unchanged
        #: Nothing is passed on while this is set.
        self.is_silent = False
        self.accepted = 0
        self._target_port = target_port
        self._sockets = ExitStack()
        self._listening = self._sockets.enter_context(socket.create_server((HOST, 0)))
        self.port: int = self._listening.getsockname()[1]
        self._stop = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._stop.set()
        self._thread.join(deadline_s())
        self._sockets.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for each in self._readable():
                if each is self._listening:
                    self._accept()
                elif each in self._pairs and not self.is_silent:
                    self._pass_on(each)
            if self.is_silent:
                self._stop.wait(0.01)

    def _readable(self) -> list[socket.socket]:
        by_descriptor = {each.fileno(): each for each in [self._listening, *self._pairs]}
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        return [by_descriptor[descriptor] for descriptor, _ in poll.poll(10)]

    def _accept(self) -> None:
        client = self._sockets.enter_context(self._listening.accept()[0])
        self.accepted += 1
        broker = self._sockets.enter_context(socket.create_connection((HOST, self._target_port)))
        self._pairs |= {client: broker, broker: client}

    def _pass_on(self, source: socket.socket) -> None:
        target = self._pairs[source]
        try:
            if source.getpeername()[1] == self._target_port:
                self._pass_response(source, target)
                return
            data = source.recv(65536)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        self._end(source)

    def _pass_response(self, broker: socket.socket, client: socket.socket) -> None:
        head = _exactly(broker, 4)
        if head is not None:
            body = _exactly(broker, struct.unpack(">i", head)[0])
            disturbed = self.disturb(head + body) if body is not None else None
            if disturbed is not None:
                client.sendall(disturbed)
                if len(disturbed) == 4 + len(body or b""):
                    return
        self._end(broker)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one)
        self._pairs.pop(other, None)
        one.close()
        other.close()


def _exactly(source: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        data = source.recv(size - len(found))
        if not data:
            return None
        found += data
    return bytes(found)


@contextmanager
def relay_to(port: int) -> Iterator[Relay]:
    """Yield a relay to that port."""
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()
