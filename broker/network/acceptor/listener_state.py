"""The acceptor's state of one listener, with its held connection. Knows nothing of limits or processors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from rotunda.broker.ipc.process_context import BoundListener


@dataclass(slots=True)
class Held:
    """A connection accepted but not handed over: its address in canonical form, and the reason why it waits."""

    client: socket.socket
    address: str
    port: int
    since: int
    """Number in the order of arrival."""
    ready_ns: int = 0
    """End of its wait for a connection rate (`A10`)."""
    rate_checked: bool = False
    """Whether the rate of its address has been checked: once (`A12`)."""


class ListenerState:
    """A listener is polled, or blocked by a held connection, or backing off."""

    def __init__(self, listener: BoundListener) -> None:
        self.listener = listener
        self.index = listener.index
        self.held: Held | None = None
        self.backoff_ns = 0
        self.retry_at_ns = 0
        self.polled = False
