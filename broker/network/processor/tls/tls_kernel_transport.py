"""A TLS connection whose socket OpenSSL reads and writes itself, so that the kernel can encrypt output.

Runs in processor processes, if Python (3.12), OpenSSL and the kernel (module ``tls``) support it; otherwise a channel
uses `tls_transport`. OpenSSL's waits are raised as by a socket: BlockingIOError. Files are sent as in plain text,
unless the kernel does not support the cipher: then through one buffer.
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

# linux/tls.h: level and option of the kernel's encryption state, of which the first 4 bytes are read.
_SOL_TLS, _TLS_TX, _TLS_INFO_BYTES = 282, 1, 4
#: Exists once the kernel has loaded its module.
_STATISTICS: Final = "/proc/net/tls_stat"

_piece = memoryview(bytearray(PIECE_BYTES))


class AcceptedSocket(ssl.SSLSocket):
    """An accepted socket, even after its client has disconnected.

    The library calls getpeername() to check the connection, and would treat a socket reset meanwhile as unconnected and
    close the descriptor, which the selector still uses.
    """

    #: The host name that the client requested.
    asked_name = ""

    def getpeername(self) -> tuple[str, int]:
        """Return a placeholder."""
        return "", 0


class KernelTlsTransport:
    """A TLS connection, from its handshake on."""

    __slots__ = ("_is_broken", "_kernel_sends", "_read", "_read_into", "_sock", "_write")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        context.sslsocket_class = AcceptedSocket
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._read, self._read_into, self._write = self._sock.recv, self._sock.recv_into, self._sock.send
        self._kernel_sends = self._is_broken = False

    def shake_hands(self) -> None:
        """Advance the handshake; return when it is complete.

        Raises BlockingIOError while more input is needed, OSError if the client has disconnected, ssl.SSLError if it
        failed.
        """
        try:
            self._sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise as_socket_error(error) from None
        except ssl.SSLError:
            with suppress(OSError):
                # Unread input would reset the connection before the client receives its alert.
                socket.socket.recv(self._sock, LEFT_BYTES)
            raise
        self._kernel_sends = kernel_encrypts(self._sock)

    @property
    def asked_name(self) -> str:
        """The host name that the client requested; empty without one."""
        return cast("AcceptedSocket", self._sock).asked_name

    @property
    def own_address(self) -> str:
        """The address of this machine that the client connected to."""
        return str(self._sock.getsockname()[0])

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate in DER, if it has sent one."""
        return self._sock.getpeercert(binary_form=True)

    @property
    def has_pending(self) -> bool:
        """Whether input waits that no event will report: decrypted bytes (`B04`), or an error after them."""
        return self._is_broken or self._sock.pending() > 0

    def recv(self, most: int) -> bytes:
        """Return received bytes, at most ``most``; empty if the client has closed. Raises OSError (`B07`)."""
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
        """Receive into memory and return the bytes received; 0 if the client has closed. Raises OSError."""
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
        """Raise the error that ended a read. After received bytes, the next read raises it again."""
        found = as_socket_error(error)
        if is_first:
            raise found from None
        self._is_broken = found is error

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Encrypt and write; return the bytes sent. Raises OSError."""
        if not data:
            return 0
        try:
            return self._write(data)
        except ssl.SSLError as error:
            raise as_socket_error(error) from None

    def sendfile(self, file: int, position: int, length: int) -> int:
        """Send a part of a file and return the bytes sent; 0 at the end of the file. Raises OSError."""
        if self._kernel_sends:
            return os.sendfile(self._sock.fileno(), file, position, length)
        count = os.preadv(file, (_piece[: min(length, PIECE_BYTES)],), position)
        return self.send(_piece[:count])

    def close(self) -> None:
        """Send the TLS close alert, if possible without waiting, and close the socket."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()


def as_socket_error(error: ssl.SSLError) -> OSError:
    """Return the exception that a plain socket would raise."""
    if isinstance(error, ssl.SSLWantReadError):
        return BlockingIOError()
    return ReadBlockedByWriteError() if isinstance(error, ssl.SSLWantWriteError) else error


def kernel_encrypts(sock: socket.socket) -> bool:
    """Return whether the kernel encrypts this socket's output, so that it can send files as a plain one does.

    OpenSSL enables that if its context has OP_ENABLE_KTLS (Python 3.12), the kernel's module tls is loaded, and the
    kernel supports the cipher. The socket then has send keys, which are checked here.
    """
    try:
        return hasattr(ssl, "OP_ENABLE_KTLS") and bool(sock.getsockopt(_SOL_TLS, _TLS_TX, _TLS_INFO_BYTES))
    except OSError:
        return False


def is_offered() -> bool:
    """Return whether Python and the kernel support it."""
    return hasattr(ssl, "OP_ENABLE_KTLS") and Path(_STATISTICS).exists()
