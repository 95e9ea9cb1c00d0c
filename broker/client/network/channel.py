"""One connection to a broker: socket, TLS, SASL, the request being sent, and framing of responses.

Runs on the I/O thread, driven by the selector. A response is copied only if it arrived in several reads, and then once.
`Selectable` is the network client's interface to all connections: sockets, or a simulated network. Kafka's KafkaChannel
and TransportLayer.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from rotunda.broker.client.access import Access
from rotunda.broker.client.errors import AuthenticationFailed
from rotunda.broker.client.network.addresses import Address
from rotunda.broker.client.network.requests import Buffer, NetworkReceive, NetworkSend
from rotunda.broker.client.network.sasl_authenticator import SaslAuthenticator, renewal_ms
from rotunda.broker.errors import InvalidReceive

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
    """The end of a connection and its cause; without a cause the broker closed it."""

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


_READ_BYTES = 65536
#: Limit of the system for one call.
_MOST_BUFFERS = min(os.sysconf("SC_IOV_MAX"), 1024)
#: TLS copies the data it encrypts anyway: small buffers are joined into one record.
_TLS_WRITE_BYTES = 65536
_SIZE = struct.Struct(">i")
#: A larger size is not a Kafka response: the port serves another protocol.
_LARGEST_RESPONSE_BYTES = 1 << 28
#: Bounds the reads per poll, so that one broker's responses do not delay the others.
_MOST_READS = 16


class PlainTransport:
    """A connection without TLS."""

    wants_write = False
    has_bytes_buffered = False

    def __init__(self, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self.ready = False
        family, host = endpoint.address
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if send_buffer_bytes >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            code = self._socket.connect_ex((host, endpoint.port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError:
            self._socket.close()
            raise
        #: Whether the connection was established at once; epoll reports no event then.
        self.is_connected = code == 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> None:
        """Record that the connection is established. Raises OSError if it failed."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.is_connected = self.ready = True

    def handshake(self) -> None:
        """Do nothing: there is no handshake without TLS."""

    def read(self) -> bytes | None:
        """Return received bytes: empty at the end of the stream, None if nothing is available. Raises OSError."""
        try:
            return self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Send from these buffers; return the number of bytes sent. Raises OSError."""
        try:
            return self._socket.sendmsg(buffers if len(buffers) <= _MOST_BUFFERS else buffers[:_MOST_BUFFERS])
        except BlockingIOError:
            return 0

    def encrypted(self, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
        """Wrap the socket in TLS and return the TLS socket. Raises OSError, AuthenticationFailed."""
        try:
            # Invalid host names must fail before the socket is handed over.
            name = host.encode("idna").decode("ascii")
            return context.wrap_socket(self._socket, server_hostname=name, do_handshake_on_connect=False)
        except ValueError as failure:
            raise AuthenticationFailed(f"TLS with {host!r} failed: {failure}") from failure

    def close(self) -> None:
        self._socket.close()


class TlsTransport:
    """A connection with TLS; the handshake starts when the connection is established."""

    def __init__(self, plain: PlainTransport, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None
        self.ready = False
        self.wants_write = False

    @property
    def is_connected(self) -> bool:
        """Whether the connection is established, regardless of the handshake."""
        return self._plain.is_connected

    def fileno(self) -> int:
        return self._plain.fileno() if self._tls is None else self._tls.fileno()

    def finish_connect(self) -> None:
        """Record that the connection is established and start TLS. Raises OSError if it failed."""
        self._plain.finish_connect()
        self._tls = self._plain.encrypted(self._context, self._host)

    def handshake(self) -> None:
        """Continue the handshake. Raises OSError, AuthenticationFailed."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_write = False
        except ssl.SSLWantWriteError:
            self.wants_write = True
        except ssl.SSLError as failure:
            raise _failed(failure) from failure
        else:
            self.ready, self.wants_write = True, False

    def read(self) -> bytes | None:
        """Return received bytes: empty at the end of the stream, None if nothing is available.

        Raises OSError, AuthenticationFailed.
        """
        try:
            return self._socket.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as failure:
            # With TLS 1.3 the broker rejects a certificate after the handshake.
            raise _failed(failure) from failure

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a decrypted record has unread bytes."""
        return self._tls is not None and self._tls.pending() > 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Send from these buffers; return the number of bytes sent. Raises OSError."""
        sent = 0
        for chunk in _joined(buffers):
            try:
                count = self._socket.send(chunk)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            sent += count
            if count < len(chunk):
                break
        return sent

    def close(self) -> None:
        """Close the socket without a TLS close_notify."""
        (self._tls or self._plain).close()

    @property
    def _socket(self) -> ssl.SSLSocket:
        if self._tls is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._tls


def _joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield the buffers, with small ones joined."""
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) > _TLS_WRITE_BYTES and small:
            yield b"".join(small)
            small, size = [], 0
        if len(buffer) >= _TLS_WRITE_BYTES:
            yield buffer
        else:
            small.append(buffer)
            size += len(buffer)
    if small:
        yield b"".join(small)


def _failed(failure: ssl.SSLError) -> Exception:
    """Convert a TLS error: AuthenticationFailed, where a retry is useless, or ConnectionResetError."""
    if isinstance(failure, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
        return ConnectionResetError(errno.ECONNRESET, str(failure))
    return AuthenticationFailed(f"TLS failed: {failure}")


class Channel:
    """The connection to `node_id`."""

    def __init__(
        self, node_id: int, transport: PlainTransport | TlsTransport, access: Access, client_id: str, remote: str
    ) -> None:
        self.node_id = node_id
        #: The socket's descriptor, valid also after the socket is closed.
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
        #: Whether the current authentication is a re-authentication.
        self.is_renewed = False
        self._send: NetworkSend | None = None
        self._sasl_send: NetworkSend | None = None
        self._partial: bytearray | None = None
        self.bytes_received = 0

    @property
    def has_send(self) -> bool:
        return self._send is not None

    @property
    def wants_write(self) -> bool:
        """Whether data waits for the socket to become writable."""
        if not self.is_connected or self._sasl_send is not None or self.transport.wants_write:
            return True
        return self._send is not None and self.ready

    def finish_connect(self) -> None:
        """Record that the connection is established. Raises OSError if it failed."""
        self.transport.finish_connect()
        self.is_connected = True
        self.state = ChannelState(ChannelPhase.AUTHENTICATE, self.remote)

    def prepare(self, now_ms: float) -> None:
        """Continue the preparation for the first request: TLS, then SASL.

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

    def begin_send(self, send: NetworkSend) -> None:
        """Set the request that `write` sends."""
        self._send = send

    def begin_renewal_if_due(self, now_ms: float) -> None:
        """Re-authenticate before the next request if the session is about to expire."""
        if self._renew_at_ms is None or now_ms < self._renew_at_ms or self._authenticator is None:
            return
        self.ready = False
        self._renew_at_ms, self.is_renewed = None, True
        self._authenticator = SaslAuthenticator(self._access, self._client_id, self._authenticator.versions)
        self._sasl_send = NetworkSend(self.node_id, self._authenticator.begin())

    def write(self) -> NetworkSend | None:
        """Send pending data; return the request if it is now sent completely. Raises OSError."""
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
        """Append the received responses; return whether the broker closed the connection.

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
            self._accept(NetworkReceive(self.node_id, data, offset + _SIZE.size, after), receives, now_ms)
            offset = after
        if offset == end:
            self._partial = None
        elif offset or self._partial is None:
            self._partial = bytearray(memoryview(data)[offset:])

    def _accept(self, receive: NetworkReceive, receives: list[NetworkReceive], now_ms: float) -> None:
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
            # The random choice need not be reproducible by a seed.
            self._renew_at_ms = now_ms + renewal_ms(self._authenticator.session_ms, random.SystemRandom())
