"""What the network client asks of whatever moves bytes: sockets, or a simulated network.

An interface, and the values that pass through it. All is called on the I/O thread, `wakeup` by any.
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
    """How far a connection had come when it ended, or what ended it."""

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
    """How a connection ended, and why; without a cause the broker closed it."""

    phase: ChannelPhase
    remote: str = ""
    cause: Exception | None = None

    @property
    def error(self) -> AuthenticationFailed | None:
        """Why the broker rejected this client, if it did."""
        return self.cause if isinstance(self.cause, AuthenticationFailed) else None

    def log(self, node_id: int) -> None:
        """Say that the connection to a broker has ended, as loudly as it deserves."""
        level, reason = _REASONS.get(self.phase, (logging.INFO, "disconnected"))
        logger.log(level, "Connection to node %s (%s) %s", node_id, self.remote, reason.format(self.cause))


class Endpoint(NamedTuple):
    """Where to connect to: the address, and the name that a certificate must be for."""

    address: Address
    host: str
    port: int


class Selectable(Protocol):
    """Connections by the broker's id. What happened in the last `poll` stands in the four attributes."""

    #: Those that stand since.
    connected: list[int]
    #: Those that ended, and how; not those that `close_channel` ended.
    disconnected: dict[int, ChannelState]
    #: What has left entirely, but not what did so within `send`.
    completed_sends: list[NetworkSend]
    #: What came in, each broker's in order.
    completed_receives: list[NetworkReceive]

    def connect(self, node_id: int, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Begin a connection. Raises OSError when not even that is possible."""

    def send(self, send: NetworkSend) -> None:
        """Begin to send; the one before must have left. Failures show in the next `poll`."""

    def poll(self, timeout_ms: float) -> None:
        """Do what can be done, or wait for it, not shorter than the timeout: rounded up."""

    def wakeup(self) -> None:
        """End the present wait, or the next one; from any thread."""

    def is_channel_ready(self, node_id: int) -> bool:
        """Whether a connection stands and, with TLS and SASL, is authenticated."""

    def close_channel(self, node_id: int) -> None:
        """End a connection, if there is one, without a word in `disconnected`."""

    def close(self) -> None:
        """End all."""
