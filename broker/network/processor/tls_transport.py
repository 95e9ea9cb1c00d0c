"""A TLS connection as a channel uses it: what it asks of a plain socket, in a socket's own way.

Runs in processor processes. OpenSSL reads and writes the descriptor itself. What it would wait for is told as a socket
tells it, by BlockingIOError, so that neither reader nor channel knows more of TLS than these facts: after a read,
decrypted bytes may be left that epoll does not know of (``has_pending``, `B04`); and what a write did not take has to
come again as it was, or with more behind it, which is how a channel keeps its order anyway.

A range of a file is read into one buffer of the process and encrypted from there: no copy more than TLS itself needs.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.network.processor.channel import ReadBlockedByWriteError

if TYPE_CHECKING:
    import socket

#: The most that a TLS record holds, and so the most that OpenSSL reads at a time.
RECORD_BYTES: Final = 16384

#: What one read takes at most, that others get their turn.
MOST_AT_ONCE: Final = 256 * 1024

#: What is read of a file at a time.
PIECE_BYTES: Final = 65536

# linux/tls.h: level and option of what the kernel encrypts with, of which the first 4 bytes are asked for.
_SOL_TLS, _TLS_TX, _TLS_INFO_BYTES = 282, 1, 4

_piece = memoryview(bytearray(PIECE_BYTES))


class AcceptedSocket(ssl.SSLSocket):
    """A socket that has been accepted, whatever has become of its client since.

    The library asks for its peer to see whether it is connected, and takes one for a socket of another kind that has
    been reset meanwhile; it would close the descriptor, of which the selector still knows.
    """

    def getpeername(self) -> tuple[str, int]:
        """Return some name."""
        return "", 0


class TlsTransport:
    """The connection behind a handshake that is done."""

    __slots__ = ("_kernel_sends", "_read", "_read_into", "_sock", "_write")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._read, self._read_into, self._write = sock.recv, sock.recv_into, sock.send
        self._kernel_sends = kernel_encrypts(sock)

    @property
    def has_pending(self) -> bool:
        """Whether decrypted bytes wait of which no event will tell (`B04`)."""
        return self._sock.pending() > 0

    def recv(self, most: int) -> bytes:
        """Return what has come, at most so much; nothing if the client has closed. Raises OSError.

        A request may come in many records: librdkafka makes one of each piece of it. One read takes them all (`B07`).
        """
        parts: list[bytes] = []
        try:
            while most > 0:
                data = self._read(min(most, RECORD_BYTES))
                if not data:
                    break
                parts.append(data)
                most -= len(data)
        except ssl.SSLError as error:
            # What has been read comes first; the next read meets the same again.
            if not parts:
                raise as_socket_error(error) from None
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
            if not filled:
                raise as_socket_error(error) from None
        return filled

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
