"""A TLS connection with the interface of a plain socket, for a channel.

Runs in processor processes. OpenSSL works in memory, not on the socket: input is received with one system call however
small the client's records are, and the records of a response are sent with one. Where the kernel encrypts,
`tls_kernel_transport` replaces this module.

Reader and channel need two facts about TLS. After a read, bytes may remain that epoll does not report, because they
have been received already (``has_pending``, `B04`). And unsent data of a write must be passed again unchanged, or with
more after it, which is how a channel keeps its order anyway: its records are made, and wait here until the socket
accepts them.

OpenSSL's input and output pass through two buffers of the process: otherwise the bytes received or encrypted in one
call would be allocated for each connection. So every caller of OpenSSL removes its output at once, and stores its
unread input. OpenSSL itself stores the start of an incomplete record.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from rotunda.broker.network.processor.channel import SMALL_READ_BYTES, ReadBlockedByWriteError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

#: The most bytes in a TLS record.
RECORD_BYTES: Final = 16384

#: The smallest receive size: a whole record with its header and the overhead of encryption.
LEAST_RECEIVE_BYTES: Final = RECORD_BYTES + 512

#: The largest receive size.
RECEIVE_BYTES: Final = 65536

#: The most bytes of one read, so that other connections are served.
MOST_AT_ONCE: Final = 256 * 1024

#: The most bytes encrypted, or read of a file, for one system call.
PIECE_BYTES: Final = 65536

#: The most input discarded from a client after a failure.
LEFT_BYTES: Final = 65536

_received = memoryview(bytearray(RECEIVE_BYTES))
_plain = memoryview(bytearray(SMALL_READ_BYTES))
_piece = memoryview(bytearray(PIECE_BYTES))
#: OpenSSL's input, of any connection: empty except during a call.
_incoming = ssl.MemoryBIO()
#: OpenSSL's output, of any connection: empty except between its call and the removal.
_outgoing = ssl.MemoryBIO()


class AcceptedObject(ssl.SSLObject):
    """An OpenSSL connection."""

    #: The host name that the client requested.
    asked_name = ""


class TlsTransport:
    """A TLS connection, from its handshake on."""

    __slots__ = ("_encrypt", "_left", "_owed", "_read", "_sock", "_tls", "_unsent", "has_pending")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        context.sslobject_class = AcceptedObject
        self._tls = cast("AcceptedObject", context.wrap_bio(_incoming, _outgoing, server_side=True))
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._encrypt = self._tls.write
        #: Whether received input may remain that no event will report (`B04`).
        self.has_pending = False
        #: Received records that OpenSSL has not read; empty unless input is pending.
        self._left = b""
        #: Records that the socket has not accepted, and the bytes in them that the caller will pass again.
        self._unsent = b""
        self._owed = 0

    @property
    def asked_name(self) -> str:
        """The host name that the client requested; empty without one."""
        return self._tls.asked_name

    @property
    def own_address(self) -> str:
        """The address of this machine that the client connected to."""
        return str(self._sock.getsockname()[0])

    def shake_hands(self) -> None:
        """Advance the handshake; return when it is complete.

        Raises BlockingIOError while more input is needed, OSError if the client has disconnected, ssl.SSLError if it
        fails.
        """
        self._send_before_reading()
        self._refill(0)
        try:
            try:
                self._tls.do_handshake()
            finally:
                self._leave_nothing()
        except ssl.SSLWantReadError:
            self.has_pending = False
            self._send_before_reading()
            raise BlockingIOError from None
        except ssl.SSLError:
            with suppress(OSError):
                # The alert. Unread input would reset the connection before the client receives it.
                self._send_unsent()
                self._sock.recv(LEFT_BYTES)
            raise
        self._send_unsent()

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate in DER, if it has sent one."""
        return self._tls.getpeercert(binary_form=True)

    def recv(self, most: int) -> bytes:
        """Return received bytes, at most ``most``; empty if the client has closed. Raises OSError."""
        return bytes(_plain[: self.recv_into(_plain[:most])])

    def recv_into(self, memory: memoryview) -> int:
        """Receive into memory and return the bytes received; 0 if the client has closed. Raises OSError. HOT.

        A request may arrive in many records: librdkafka makes one of each of its buffers. One read gets them all
        (`B07`).
        """
        if self._unsent and not self._owed:
            self._send_before_reading()
        memory = memory[:MOST_AT_ONCE]
        filled, most, is_drained = 0, len(memory), False
        read, incoming = self._read, _incoming
        try:
            while filled < most and not is_drained:
                is_drained = self._refill(most - filled)
                try:
                    while count := read(most, memory[filled:]):
                        filled += count
                        # If the socket has more, the last record is incomplete: no need to look for its end.
                        if is_drained and not incoming.pending:
                            # All records are complete. The last one has more bytes if it did not fit.
                            self.has_pending = filled == most and self._tls.pending() > 0
                            break
                    else:
                        # The memory is full, or the client has closed, which the next read reports again.
                        return filled
                except ssl.SSLWantReadError:
                    self._use_up()
        except OSError:
            # Bytes already read are returned first; the next read raises the same error.
            if not filled:
                raise
        finally:
            self._leave_nothing()
        if not filled:
            raise BlockingIOError
        return filled

    def _use_up(self) -> None:
        """Record that OpenSSL has read all complete records; send its output for them."""
        self.has_pending = False
        if _outgoing.pending:
            self._send_before_reading()

    def _refill(self, most: int) -> bool:
        """Pass unread records to OpenSSL, or receive ones for ``most`` bytes from the socket. Raises OSError. HOT.

        Return whether the socket is empty: if not, epoll reports the rest.
        """
        if self.has_pending:
            if self._left:
                _incoming.write(self._left)
                self._left = b""
            return False
        wanted = most + (most >> 4)
        if wanted < LEAST_RECEIVE_BYTES:
            wanted = LEAST_RECEIVE_BYTES
        elif wanted > RECEIVE_BYTES:
            wanted = RECEIVE_BYTES
        count = self._sock.recv_into(_received, wanted)
        if not count:
            # TLS would have sent a close alert.
            raise ConnectionResetError
        _incoming.write(_received[:count])
        self.has_pending = True
        return count < wanted

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Encrypt and write; return the bytes accepted. Raises OSError. HOT."""
        if (self._owed or self._unsent) and (settled := self._settle()):
            return settled
        if not data:
            return 0
        try:
            count = self._encrypt(data if len(data) <= PIECE_BYTES else memoryview(data)[:PIECE_BYTES])
        finally:
            records = _outgoing.read()
        try:
            sent = self._sock.send(records, flags)
        except BlockingIOError:
            sent = 0
        if sent < len(records):
            self._unsent, self._owed = records[sent:], count
            raise BlockingIOError
        return count

    def sendfile(self, file: int, position: int, length: int) -> int:
        """Send a part of a file and return the bytes sent; 0 at the end of the file. Raises OSError."""
        if (self._owed or self._unsent) and (settled := self._settle()):
            return settled
        return self.send(_piece[: os.preadv(file, (_piece[: min(length, PIECE_BYTES)],), position)])

    def close(self) -> None:
        """Send the TLS close alert, if possible without waiting, and close the socket."""
        with suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            finally:
                self._send_unsent()
        self._sock.close()

    def _leave_nothing(self) -> None:
        """Store OpenSSL's output and unread input: other connections use the same buffers."""
        if _incoming.pending:
            self._left = _incoming.read()
        if _outgoing.pending:
            self._unsent += _outgoing.read()

    def _settle(self) -> int:
        """Send waiting records; return the bytes in them that the caller passes again. BlockingIOError if any stay."""
        if not self._send_unsent():
            raise BlockingIOError
        owed, self._owed = self._owed, 0
        return owed

    def _send_before_reading(self) -> None:
        """Send TLS's own output, or do not read: each record read may produce more of it."""
        if not self._send_unsent():
            raise ReadBlockedByWriteError

    def _send_unsent(self) -> bool:
        """Send waiting records, in order; return whether all are sent."""
        if _outgoing.pending:
            self._unsent += _outgoing.read()
        if self._unsent:
            with suppress(BlockingIOError):
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        return not self._unsent
