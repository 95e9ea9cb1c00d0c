"""The web server: uvicorn on a socket that listens already, until a descriptor is readable."""

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

#: How long answers under way may take after a stop was asked for; streams end at once.
GRACE_S = 1

#: Connections that are accepted in one turn of the loop, so few that one which has just come gets to send its request
#: before those behind it could take its place.
_ACCEPTED_IN_A_TURN = 64

#: Connections that the system keeps until they are accepted.
_BACKLOG = 1024

#: A peer that acknowledges nothing for so long has gone; what the system keeps for one that does not read is small.
_UNACKNOWLEDGED_MS = 20_000
_SEND_BUFFER_BYTES = 256 * 1024

#: Ticks of uvicorn's main loop, which come every 0.1 s, from one sweep to the next.
_SWEEP_TICKS = 10


class _Server(uvicorn.Server):
    """Leaves the signals to the process that it runs in, and drops who is slow."""

    def __init__(self, config: uvicorn.Config, room: Room, beat: Callable[[], None]) -> None:
        super().__init__(config)
        self._room = room
        self._beat = beat

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, with the system's own queue longer than what a turn takes from it."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does now and then, drop slow clients, and beat while the loop turns."""
        self._beat()
        if counter % _SWEEP_TICKS == 0:
            self._room.sweep()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(sources: Sources, room: Room, listening: socket.socket, stop_fd: int, beat: Callable[[], None]) -> None:
    """Serve until `stop_fd` is readable; `beat` is called at least once a second while this process turns."""
    watch = Watch(sources, Reader(sources, sources.reader.wants.web_looks), room)
    # What clients can cause at will is counted and logged by the room.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    # Accepted sockets have these from the listening one.
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
    """Log what fails in the loop itself: mostly accept."""
    failure = context.get("exception")
    if is_exhausted(failure):
        room.note_exhausted(failure)
    else:
        loop.default_exception_handler(context)
