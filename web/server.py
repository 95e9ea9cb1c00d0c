"""The web server: runs uvicorn on an already listening socket, until a descriptor is readable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from rotunda.web.app import create_app
from rotunda.web.facts.readings import Reader
from rotunda.web.http.connection import connections_in
from rotunda.web.http.handshake import handshakes_in
from rotunda.web.http.listening_socket import ListeningSocket, is_exhausted
from rotunda.web.watch import Watch

if TYPE_CHECKING:
    from rotunda.web.http.room import Room
    from rotunda.web.sources import Sources

#: Time for running responses after a stop request; streams end at once.
GRACE_S = 1

#: Connections accepted per pass of the loop, few enough that a new one can send its request before later ones could
#: take its place.
_ACCEPTED_IN_A_TURN = 64

#: Connections that the system queues until they are accepted.
_BACKLOG = 1024

#: A peer that acknowledges nothing for this long is dead; the send buffer of one that does not read is small.
_UNACKNOWLEDGED_MS = 20_000
_SEND_BUFFER_BYTES = 256 * 1024

#: Ticks of uvicorn's main loop, one every 0.1 s, between two sweeps.
_SWEEP_TICKS = 10


class _Server(uvicorn.Server):
    """Leaves the signals to its process, and drops slow clients."""

    def __init__(self, config: uvicorn.Config, room: Room, beat: Callable[[], None]) -> None:
        super().__init__(config)
        self._room = room
        self._beat = beat

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept, with a system queue longer than the connections accepted per pass."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Run uvicorn's periodic tasks, drop slow clients, and beat while the loop runs."""
        self._beat()
        if counter % _SWEEP_TICKS == 0:
            self._room.sweep()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(sources: Sources, room: Room, listening: socket.socket, stop_fd: int, beat: Callable[[], None]) -> None:
    """Serve until `stop_fd` is readable; `beat` is called at least once a second while the loop runs."""
    watch = Watch(sources, Reader(sources, sources.reader.wants.web_looks), room)
    # The room counts and logs failures that clients can cause at will.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    # Accepted sockets inherit these from the listening one.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    config = uvicorn.Config(
        create_app(sources, watch, room),
        lifespan="off",
        loop="asyncio",
        http=connections_in(room) if sources.tls is None else handshakes_in(room, sources.tls),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        backlog=_ACCEPTED_IN_A_TURN,
        h11_max_incomplete_event_size=16 * 1024,
    )
    asyncio.run(_serve(_Server(config, room, beat), watch, room, ListeningSocket(listening), stop_fd))


async def _serve(server: uvicorn.Server, watch: Watch, room: Room, listening: socket.socket, stop_fd: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_on_failure, room))

    def stop() -> None:
        if not select.select((stop_fd,), (), (), 0)[0]:
            # Another signal has made it readable for a moment.
            return
        loop.remove_reader(stop_fd)
        server.should_exit = True
        watch.close()

    loop.add_reader(stop_fd, stop)
    await server.serve(sockets=[listening])


def _on_failure(room: Room, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log failures in the loop itself: mostly of accept."""
    failure = context.get("exception")
    if is_exhausted(failure):
        room.note_exhausted(failure)
    else:
        loop.default_exception_handler(context)
