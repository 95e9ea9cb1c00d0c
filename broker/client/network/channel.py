"""One connection to a broker: its transport, its preparation, what is being sent, and responses cut out of its bytes.

Runs on the I/O thread, driven by the selector. A response is not copied, unless it came in several reads, and then
once. Kafka's KafkaChannel.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from broker.client.access import Access
from broker.client.network.network_send import NetworkReceive, NetworkSend
from broker.client.network.requests import Buffer
from broker.client.network.sasl_authenticator import SaslAuthenticator, renewal_ms
from broker.client.network.selectable import ChannelPhase, ChannelState
from broker.errors import InvalidReceive

if TYPE_CHECKING:
    from broker.client.network.transport import PlainTransport, TlsTransport

_SIZE = struct.Struct(">i")
#: What is larger is no response: somebody else speaks on that port.
_LARGEST_RESPONSE_BYTES = 1 << 28
#: So that one broker's responses do not keep the others waiting.
_MOST_READS = 16


class Channel:
    """The connection to `node_id`."""

    def __init__(
        self, node_id: int, transport: PlainTransport | TlsTransport, access: Access, client_id: str, remote: str
    ) -> None:
        self.node_id = node_id
        #: The socket's descriptor, also when the socket is closed already.
        self.fd = transport.fileno()
        #: Host and port, for messages.
        self.remote = remote
        self.transport = transport
        self.state = ChannelState(ChannelPhase.NOT_CONNECTED, remote)
        self.is_connected = False
        #: Whether requests can be sent.
        self.ready = False
        self._access = access
        self._client_id = client_id
        self._authenticator: SaslAuthenticator | None = None
        self._renew_at_ms: float | None = None
        self._renewal_began_ms: float | None = None
        self._send: NetworkSend | None = None
        self._sasl_send: NetworkSend | None = None
        self._partial: bytearray | None = None
        self.bytes_received = 0

    @property
    def has_send(self) -> bool:
        """Whether a request has not left entirely."""
        return self._send is not None

    @property
    def wants_write(self) -> bool:
        """Whether something waits until the socket can be written."""
        if not self.is_connected or self._sasl_send is not None or self.transport.wants_write:
            return True
        return self._send is not None and self.ready

    def finish_connect(self) -> None:
        """Note that the connection stands. Raises OSError if it does not."""
        self.transport.finish_connect()
        self.is_connected = True
        self.state = ChannelState(ChannelPhase.AUTHENTICATE, self.remote)

    def prepare(self, now_ms: float) -> None:
        """Go on with what comes before the first request: TLS, then SASL.

        Raises OSError, AuthenticationFailed, InvalidReceive.
        """
        if not self.transport.ready:
            self.transport.handshake()
            if not self.transport.ready:
                return
        if not self._access.authenticates:
            self._become_ready(now_ms)
        elif self._authenticator is None:
            self._authenticator = SaslAuthenticator(self._access, self._client_id)
            self._sasl_send = NetworkSend(self.node_id, self._authenticator.begin())

    def renewal_ms(self, now_ms: float) -> float | None:
        """Return how long ago the latest renewal has begun; None if it was authenticated once at most."""
        return None if self._renewal_began_ms is None else now_ms - self._renewal_began_ms

    def begin_send(self, send: NetworkSend) -> None:
        """Take a request, of which `write` sends what it can."""
        self._send = send

    def begin_renewal_if_due(self, now_ms: float) -> None:
        """Authenticate anew before the request that is about to be sent, if the session is about to end."""
        if self._renew_at_ms is None or now_ms < self._renew_at_ms or self._authenticator is None:
            return
        self.ready = False
        self._renew_at_ms, self._renewal_began_ms = None, now_ms
        self._authenticator = SaslAuthenticator(self._access, self._client_id, self._authenticator.versions)
        self._sasl_send = NetworkSend(self.node_id, self._authenticator.begin())

    def write(self) -> NetworkSend | None:
        """Send what can be sent; return the request if it has left entirely. Raises OSError."""
        if self._sasl_send is not None:
            self._sasl_send.write_to(self.transport.write)
            if self._sasl_send.completed:
                self._sasl_send = None
        send = self._send
        if send is None or not self.ready:
            return None
        send.write_to(self.transport.write)
        if not send.completed:
            return None
        self._send = None
        return send

    def read(self, receives: list[NetworkReceive], now_ms: float) -> bool:
        """Add the responses that have come; return whether the broker has ended the connection.

        Raises OSError, AuthenticationFailed, InvalidReceive.
        """
        for _ in range(_MOST_READS):
            data = self.transport.read()
            if data is None:
                return False
            if not data:
                return True
            self.bytes_received += len(data)
            self._frame(data, receives, now_ms)
            if not self.transport.has_bytes_buffered:
                return False
        return False

    def close(self) -> None:
        """Close the socket, and hold no memory any more."""
        self.ready = False
        self.transport.close()
        for send in (self._send, self._sasl_send):
            if send is not None:
                send.buffers = []
        self._send = self._sasl_send = None

    def _frame(self, data: Buffer, receives: list[NetworkReceive], now_ms: float) -> None:
        if self._partial is not None:
            self._partial += data
            data = self._partial
        offset, end = 0, len(data)
        while end - offset >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, offset)
            if not _SIZE.size <= size <= _LARGEST_RESPONSE_BYTES:
                raise InvalidReceive(f"a response of {size} bytes: this port does not speak Kafka's protocol")
            after = offset + _SIZE.size + size
            if after > end:
                break
            self._take(NetworkReceive(self.node_id, data, offset + _SIZE.size, after), receives, now_ms)
            offset = after
        if offset == end:
            self._partial = None
        elif offset or self._partial is None:
            self._partial = bytearray(memoryview(data)[offset:])

    def _take(self, receive: NetworkReceive, receives: list[NetworkReceive], now_ms: float) -> None:
        authenticator = self._authenticator
        if authenticator is None or not authenticator.is_for(receive.buffer, receive.offset):
            receives.append(receive)
            return
        following = authenticator.receive(receive.buffer, receive.offset, receive.end)
        if following:
            self._sasl_send = NetworkSend(self.node_id, following)
        else:
            self._become_ready(now_ms)

    def _become_ready(self, now_ms: float) -> None:
        self.ready = True
        self.state = ChannelState(ChannelPhase.READY, self.remote)
        if self._authenticator is not None and self._authenticator.session_ms:
            # Whether another moment would do as well cannot matter: no seed makes it repeatable.
            self._renew_at_ms = now_ms + renewal_ms(self._authenticator.session_ms, random.SystemRandom())
