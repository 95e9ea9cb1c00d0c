"""A TLS connection of the status page before its handshake: it already counts as a connection in the room.

So half-open handshakes have the limits in number and time of connections without a request. After the handshake, the
connection of `web.http.connection` replaces it and needs no knowledge of TLS.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rotunda.web.http.connection import Connection, connections_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from rotunda.web.http.room import Room

    Context = Callable[[], SSLContext]

#: Time limit for a client's response to the end of TLS.
_GOODBYE_S = 1.0


class Handshake(asyncio.Protocol):
    """One handshake, with the present TLS context from `context`; `successor` is the secured connection's class."""

    def __init__(self, room: Room, context: Context, successor: type[Connection], **given: Any) -> None:
        self._room = room
        self._context = context
        self._successor = successor
        self._given = given
        self._early = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the room and start the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        # `start_tls` runs before anything is read: do not pause here, as Python 3.11 would still read here, and not
        # after it.
        self._transport = transport
        self._room.enter(self)
        self._task = asyncio.get_running_loop().create_task(self._shake(transport))

    def data_received(self, data: bytes) -> None:
        """Buffer bytes that arrive right after the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Leave the room: the client disconnected during its handshake."""
        self._room.leave(self)

    @property
    def unread_bytes(self) -> int:
        """Always 0: nothing is buffered."""
        return 0

    def drop(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        whose = (transport.get_extra_info("peername") or ("a client",))[0]
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport,
                self,
                self._context(),
                server_side=True,
                ssl_handshake_timeout=self._room.limits.timeout_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError as failure:
            # Also ssl.SSLError and a connection that was dropped meanwhile.
            transport.abort()
            self._room.leave(self)
            self._room.count_no_handshake(str(whose), str(failure))
            return
        self._room.leave(self)
        if secured is None or secured.is_closing():
            return
        following = self._successor(**self._given)
        secured.set_protocol(following)
        following.connection_made(secured)
        if self._early:
            following.data_received(bytes(self._early))


def handshakes_in(room: Room, context: Context) -> type[Handshake]:
    """Return the factory of TLS connections that report to a room."""
    # uvicorn calls it like a class.
    return cast("type[Handshake]", partial(Handshake, room, context, connections_in(room)))
