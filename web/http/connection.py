"""A connection of the status page: uvicorn's HTTP/1.1 protocol, which reports its state to the room."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import Transport

    from rotunda.web.http.room import Room


class Connection(H11Protocol):
    """One connection. A subclass has the `room` of its server, because uvicorn makes the instances."""

    room: ClassVar[Room]

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Enter the room."""
        super().connection_made(transport)
        self.room.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the room."""
        self.room.leave(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received bytes; report a completed request."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self.room.serve(self)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.room.await_request(self)
        # Continues with pipelined requests.
        super().on_response_complete()
        # The room enforces the time limits.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """Report that the client reads too slowly."""
        super().pause_writing()
        self.room.block(self)

    def resume_writing(self) -> None:
        """Report that the client has caught up."""
        super().resume_writing()
        self.room.unblock(self)

    def send_400_response(self, msg: str) -> None:
        """Respond to bytes that are not HTTP."""
        self.room.count_invalid(str(self.client[0] if self.client else "a client"))
        super().send_400_response(msg)

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses not yet read by the client."""
        return self.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Abort the connection, without sending buffered bytes."""
        self.transport.abort()


def connections_in(room: Room) -> type[Connection]:
    """Return the class of connections that report to a room."""
    return type("PlacedConnection", (Connection,), {"room": room})
