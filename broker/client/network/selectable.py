"""Interface between the network client and its transport: sockets, or a simulated network.

All methods are called on the I/O thread; `wakeup` may be called from any thread.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import NamedTuple, Protocol

from rotunda.broker.client.errors import AuthenticationFailed
from rotunda.broker.client.network.addresses import Address
from rotunda.broker.client.network.requests import NetworkReceive, NetworkSend

logger = logging.getLogger(__name__)


class ChannelPhase(Enum):
    """The phase of a connection when it ended, or the cause of its end."""

    NOT_CONNECTED = auto()
    AUTHENTICATE = auto()
    AUTHENTICATION_FAILED = auto()
    READY = auto()
    EXPIRED = auto()
    LOCAL_CLOSE = auto()


_REASONS = {
    ChannelPhase.NOT_CONNECTED: (
        logging.WARNING,
        "could not be established. Node may not be available.",
    ),
    ChannelPhase.AUTHENTICATE: (
        logging.WARNING,
        "terminated during authentication. The port may not be one of this security.protocol, a firewall may be in the "
        "way, or the network was disturbed.",
    ),
    ChannelPhase.AUTHENTICATION_FAILED: (logging.ERROR, "failed authentication due to: {}"),
    ChannelPhase.EXPIRED: (logging.DEBUG, "was idle and is closed."),
}


class ChannelState(NamedTuple):
    """How a connection ended, and the cause; without a cause the broker closed it."""

    phase: ChannelPhase
    remote: str = ""
    cause: Exception | None = None

    @property
    def error(self) -> AuthenticationFailed | None:
        """The authentication failure that ended the connection, if any."""
        return self.cause if isinstance(self.cause, AuthenticationFailed) else None

    def log(self, node_id: int) -> None:
        """Log the end of a connection, at the level of its phase."""
        level, reason = _REASONS.get(self.phase, (logging.INFO, "disconnected"))
        logger.log(level, "Connection to node %s (%s) %s", node_id, self.remote, reason.format(self.cause))


class Endpoint(NamedTuple):
    """The address to connect to, and the host name expected in the certificate."""

    address: Address
    host: str
    port: int


class Selectable(Protocol):
    """Connections by broker id. Four attributes hold the events of the last `poll`."""

    #: Connections established in the last poll.
    connected: list[int]
    #: Connections that ended, with their final state; without those closed by `close_channel`.
    disconnected: dict[int, ChannelState]
    #: Requests written completely, without those completed within `send`.
    completed_sends: list[NetworkSend]
    #: Received responses, in order per broker.
    completed_receives: list[NetworkReceive]

    def connect(self, node_id: int, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Start to connect. Raises OSError if the attempt fails at once."""

    def send(self, send: NetworkSend) -> None:
        """Start to send; the previous request must be complete. Failures are reported by the next `poll`."""

    def poll(self, timeout_ms: float) -> None:
        """Process ready I/O, or wait for it until the timeout, which is rounded up."""

    def wakeup(self) -> None:
        """Wake the current wait, or the next one. Thread-safe."""

    def is_channel_ready(self, node_id: int) -> bool:
        """Whether a connection is established and, with TLS and SASL, authenticated."""

    def close_channel(self, node_id: int) -> None:
        """Close a connection if it exists, without an entry in `disconnected`."""

    def close(self) -> None:
        """Close all connections."""
