"""One socket that does not block, plain or with TLS: connect, shake hands, read, write.

Runs on the I/O thread. It knows bytes, and nothing of requests.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator, Sequence

from broker.client.errors import AuthenticationFailed
from broker.client.network.requests import Buffer
from broker.client.network.selectable import Endpoint

_READ_BYTES = 65536
#: The system takes no more buffers at once.
_MOST_BUFFERS = min(os.sysconf("SC_IOV_MAX"), 1024)
#: TLS copies what it encrypts anyway: small buffers go into one record.
_TLS_WRITE_BYTES = 65536


class PlainTransport:
    """Without TLS."""

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
        #: Whether the connection stood at once; no event tells of it then.
        self.is_connected = code == 0

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def finish_connect(self) -> None:
        """Note that the connection stands. Raises OSError if it does not."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self.is_connected = self.ready = True

    def handshake(self) -> None:
        """There is none."""

    def read(self) -> bytes | None:
        """Return bytes, none at the end, None when there are none now. Raises OSError."""
        try:
            return self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Return how many bytes of these were sent. Raises OSError."""
        try:
            return self._socket.sendmsg(buffers if len(buffers) <= _MOST_BUFFERS else buffers[:_MOST_BUFFERS])
        except BlockingIOError:
            return 0

    def encrypted(self, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
        """Return the socket with TLS on it, which takes its place. Raises OSError, AuthenticationFailed."""
        try:
            # A name that cannot be one is found before the socket is handed over.
            name = host.encode("idna").decode("ascii")
            return context.wrap_socket(self._socket, server_hostname=name, do_handshake_on_connect=False)
        except ValueError as failure:
            raise AuthenticationFailed(f"TLS with {host!r} failed: {failure}") from failure

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class TlsTransport:
    """With TLS, whose handshake begins when the connection stands."""

    def __init__(self, plain: PlainTransport, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None
        self.ready = False
        self.wants_write = False

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands, the handshake not counted."""
        return self._plain.is_connected

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._plain.fileno() if self._tls is None else self._tls.fileno()

    def finish_connect(self) -> None:
        """Note that the connection stands. Raises OSError if it does not."""
        self._plain.finish_connect()
        self._tls = self._plain.encrypted(self._context, self._host)

    def handshake(self) -> None:
        """Go on with the handshake. Raises OSError, AuthenticationFailed."""
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
        """Return bytes, none at the end, None when there are none now. Raises OSError, AuthenticationFailed."""
        try:
            return self._socket.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as failure:
            # With TLS 1.3 the broker's refusal of a certificate comes after the handshake.
            raise _failed(failure) from failure

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a record was read of which not everything was asked for yet."""
        return self._tls is not None and self._tls.pending() > 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Return how many bytes of these were sent. Raises OSError."""
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
        """Close the socket, without the good-bye of TLS."""
        (self._tls or self._plain).close()

    @property
    def _socket(self) -> ssl.SSLSocket:
        if self._tls is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._tls


def _joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Give the buffers, small ones joined."""
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
    """Return the error that a failure of TLS is: not to be mended by trying again, or the end of the connection."""
    if isinstance(failure, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
        return ConnectionResetError(errno.ECONNRESET, str(failure))
    return AuthenticationFailed(f"TLS failed: {failure}")
