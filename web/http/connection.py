"""A connection of the status page: uvicorn's protocol of HTTP/1.1, which reports to the room what it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import Transport

    from rotunda.web.http.room import Room


class Connection(H11Protocol):
    """One connection. A subclass has the `room` of its server, since uvicorn makes the instances."""

    room: ClassVar[Room]

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Take a place."""
        super().connection_made(transport)
        self.room.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave it."""
        self.room.leave(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what has come; note whether it made a request whole."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self.room.serve(self)

    def on_response_complete(self) -> None:
        """Await the next request."""
        self.room.await_request(self)
        # Goes on with requests that were sent ahead.
        super().on_response_complete()
        # The room sees to it that nobody stays too long.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """Note that the client reads too slowly."""
        super().pause_writing()
        self.room.block(self)

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        super().resume_writing()
        self.room.unblock(self)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self.room.count_invalid(str(self.client[0] if self.client else "a client"))
        super().send_400_response(msg)

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that wait to be read."""
        return self.transport.get_write_buffer_size()

    def drop(self) -> None:
        """End at once, without sending what waits."""
        self.transport.abort()


def connections_in(room: Room) -> type[Connection]:
    """Return the class of connections that take their places in a room."""
    return type("PlacedConnection", (Connection,), {"room": room})
