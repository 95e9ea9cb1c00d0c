"""A TLS connection whose socket OpenSSL reads and writes itself, so that the kernel can encrypt what is sent.

Runs in processor processes, where Python (3.12), OpenSSL and the kernel (its module ``tls``) have it; everywhere else
it is `tls_transport` that a channel has. What OpenSSL would wait for is told as a socket tells it, by BlockingIOError.
Files go out as they do in plain text, unless the kernel does not know the cipher: then through one buffer.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from rotunda.broker.network.processor.channel import ReadBlockedByWriteError
from rotunda.broker.network.processor.tls.tls_transport import LEFT_BYTES, MOST_AT_ONCE, PIECE_BYTES, RECORD_BYTES

# linux/tls.h: level and option of what the kernel encrypts with, of which the first 4 bytes are asked for.
_SOL_TLS, _TLS_TX, _TLS_INFO_BYTES = 282, 1, 4
#: Is there once the kernel has loaded its module.
_STATISTICS: Final = "/proc/net/tls_stat"

_piece = memoryview(bytearray(PIECE_BYTES))


class AcceptedSocket(ssl.SSLSocket):
    """A socket that has been accepted, whatever has become of its client since.

    The library asks for its peer to see whether it is connected, and takes one for a socket of another kind that has
    been reset meanwhile; it would close the descriptor, of which the selector still knows.
    """

    #: The host name that the client has asked for.
    asked_name = ""

    def getpeername(self) -> tuple[str, int]:
        """Return some name."""
        return "", 0


class KernelTlsTransport:
    """A connection, from its handshake on."""

    __slots__ = ("_is_broken", "_kernel_sends", "_read", "_read_into", "_sock", "_write")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        context.sslsocket_class = AcceptedSocket
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._read, self._read_into, self._write = self._sock.recv, self._sock.recv_into, self._sock.send
        self._kernel_sends = self._is_broken = False

    def shake_hands(self) -> None:
        """Take a step with what has come; return when it was the last one.

        Raises BlockingIOError while more has to come, OSError when the client left, ssl.SSLError when it failed.
        """
        try:
            self._sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise as_socket_error(error) from None
        except ssl.SSLError:
            with suppress(OSError):
                # What is left unread would reset the connection before the client has its alert.
                socket.socket.recv(self._sock, LEFT_BYTES)
            raise
        self._kernel_sends = kernel_encrypts(self._sock)

    @property
    def asked_name(self) -> str:
        """The host name that the client has asked for; empty if it has not."""
        return cast("AcceptedSocket", self._sock).asked_name

    @property
    def own_address(self) -> str:
        """The address of this machine by which the client has come."""
        return str(self._sock.getsockname()[0])

    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the client has shown, in DER."""
        return self._sock.getpeercert(binary_form=True)

    @property
    def has_pending(self) -> bool:
        """Whether something waits of which no event will tell: decrypted bytes (`B04`), or what is wrong with them."""
        return self._is_broken or self._sock.pending() > 0

    def recv(self, most: int) -> bytes:
        """Return what has come, at most so much; nothing if the client has closed. Raises OSError (`B07`)."""
        parts: list[bytes] = []
        try:
            while most > 0:
                data = self._read(min(most, RECORD_BYTES))
                if not data:
                    break
                parts.append(data)
                most -= len(data)
        except ssl.SSLError as error:
            self._meet(error, is_first=not parts)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def recv_into(self, memory: memoryview) -> int:
        """Receive into memory and return how much; 0 if the client has closed. Raises OSError."""
        filled, most = 0, min(len(memory), MOST_AT_ONCE)
        try:
            while filled < most:
                count = self._read_into(memory[filled:most])
                if not count:
                    break
                filled += count
        except ssl.SSLError as error:
            self._meet(error, is_first=not filled)
        return filled

    def _meet(self, error: ssl.SSLError, *, is_first: bool) -> None:
        """Raise what has ended a read. Behind what has been read, the next read meets the same again."""
        found = as_socket_error(error)
        if is_first:
            raise found from None
        self._is_broken = found is error

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Encrypt and write, and return how much was taken. Raises OSError."""
        if not data:
            return 0
        try:
            return self._write(data)
        except ssl.SSLError as error:
            raise as_socket_error(error) from None

    def sendfile(self, file: int, position: int, length: int) -> int:
        """Send a piece of a file and return how much; 0 if the file has ended. Raises OSError."""
        if self._kernel_sends:
            return os.sendfile(self._sock.fileno(), file, position, length)
        count = os.preadv(file, (_piece[: min(length, PIECE_BYTES)],), position)
        return self.send(_piece[:count])

    def close(self) -> None:
        """Say that nothing more comes, if that can be said at once, and close the socket."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()


def as_socket_error(error: ssl.SSLError) -> OSError:
    """Return what a plain socket would raise."""
    if isinstance(error, ssl.SSLWantReadError):
        return BlockingIOError()
    return ReadBlockedByWriteError() if isinstance(error, ssl.SSLWantWriteError) else error


def kernel_encrypts(sock: socket.socket) -> bool:
    """Return whether the kernel encrypts what this socket sends, so that it takes files as a plain one does.

    OpenSSL hands that over where its context has OP_ENABLE_KTLS (Python 3.12), the kernel's module tls is loaded, and
    it knows the cipher. The socket then has keys to send with, which is what is asked here.
    """
    try:
        return hasattr(ssl, "OP_ENABLE_KTLS") and bool(sock.getsockopt(_SOL_TLS, _TLS_TX, _TLS_INFO_BYTES))
    except OSError:
        return False


def is_offered() -> bool:
    """Return whether Python and the kernel have what it takes."""
    return hasattr(ssl, "OP_ENABLE_KTLS") and Path(_STATISTICS).exists()
