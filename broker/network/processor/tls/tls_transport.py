"""A TLS connection as a channel uses it: what it asks of a plain socket, in a socket's own way.

Runs in processor processes. OpenSSL works in memory, not on the socket: what has come is received with one call of the
system however small the records are that a client cuts, and the records of an answer leave with one. Where the kernel
encrypts, `tls_kernel_transport` stands here.

Two facts are all that reader and channel know of TLS. After a read, bytes may be left of which epoll does not know,
because they have been received already (``has_pending``, `B04`). And what a write did not take has to come again as it
was, or with more behind it, which is how a channel keeps its order anyway: its records are made, and wait here until
the socket takes them.

What OpenSSL is given to read, and what it makes, passes through one buffer each of the process: what is received or
encrypted at a time would otherwise be kept for each connection. So whoever has called OpenSSL takes at once what it has
made, and keeps what it has not read. Of a record that has not come whole OpenSSL itself keeps the beginning.
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

#: The most that a TLS record holds.
RECORD_BYTES: Final = 16384

#: The least that is asked of a socket: a whole record with its head and what encryption adds.
LEAST_RECEIVE_BYTES: Final = RECORD_BYTES + 512

#: The most that is received at a time.
RECEIVE_BYTES: Final = 65536

#: What one read takes at most, that others get their turn.
MOST_AT_ONCE: Final = 256 * 1024

#: What is encrypted, and read of a file, for one call of the system.
PIECE_BYTES: Final = 65536

#: What is taken of a client behind a failure.
LEFT_BYTES: Final = 65536

_received = memoryview(bytearray(RECEIVE_BYTES))
_plain = memoryview(bytearray(SMALL_READ_BYTES))
_piece = memoryview(bytearray(PIECE_BYTES))
#: The records that OpenSSL is to read, of any connection: empty but while it does.
_incoming = ssl.MemoryBIO()
#: The records that OpenSSL makes, of any connection: empty but between its call and what takes them.
_outgoing = ssl.MemoryBIO()


class AcceptedObject(ssl.SSLObject):
    """A connection of OpenSSL's."""

    #: The host name that the client has asked for.
    asked_name = ""


class TlsTransport:
    """A connection, from its handshake on."""

    __slots__ = ("_encrypt", "_left", "_owed", "_read", "_sock", "_tls", "_unsent", "has_pending")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        context.sslobject_class = AcceptedObject
        self._tls = cast("AcceptedObject", context.wrap_bio(_incoming, _outgoing, server_side=True))
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._encrypt = self._tls.write
        #: Whether something has been received that may not be used up, of which no event will tell (`B04`).
        self.has_pending = False
        #: Records that have been received and that OpenSSL has not read; there are none unless something is pending.
        self._left = b""
        #: Records that the socket has not taken, and how much of the data in them its sender brings again.
        self._unsent = b""
        self._owed = 0

    @property
    def asked_name(self) -> str:
        """The host name that the client has asked for; empty if it has not."""
        return self._tls.asked_name

    @property
    def own_address(self) -> str:
        """The address of this machine by which the client has come."""
        return str(self._sock.getsockname()[0])

    def shake_hands(self) -> None:
        """Take a step with what has come; return when it was the last one.

        Raises BlockingIOError while more has to come, OSError when the client left, ssl.SSLError when it fails.
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
                # The alert. What is left unread would reset the connection before the client has it.
                self._send_unsent()
                self._sock.recv(LEFT_BYTES)
            raise
        self._send_unsent()

    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the client has shown, in DER."""
        return self._tls.getpeercert(binary_form=True)

    def recv(self, most: int) -> bytes:
        """Return what has come, at most so much; nothing if the client has closed. Raises OSError."""
        return bytes(_plain[: self.recv_into(_plain[:most])])

    def recv_into(self, memory: memoryview) -> int:
        """Receive into memory and return how much; 0 if the client has closed. Raises OSError. HOT.

        A request may come in many records: librdkafka makes one of each piece of it. One read takes them all (`B07`).
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
                        # Where the socket has more, the last record is cut off, and not worth looking for.
                        if is_drained and not incoming.pending:
                            # All records are whole. Of the last one there is more when it did not fit.
                            self.has_pending = filled == most and self._tls.pending() > 0
                            break
                    else:
                        # The memory is full, or the client has ended, which the next read meets again.
                        return filled
                except ssl.SSLWantReadError:
                    self._use_up()
        except OSError:
            # What has been read comes first; the next read meets the same again.
            if not filled:
                raise
        finally:
            self._leave_nothing()
        if not filled:
            raise BlockingIOError
        return filled

    def _use_up(self) -> None:
        """Note that all records are read but one that has not come whole; send what TLS says to them."""
        self.has_pending = False
        if _outgoing.pending:
            self._send_before_reading()

    def _refill(self, most: int) -> bool:
        """Give OpenSSL what is left, or else the records of so many bytes from the socket. Raises OSError. HOT.

        Return whether the socket has no more: if it has then, epoll tells.
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
            # TLS would have said so.
            raise ConnectionResetError
        _incoming.write(_received[:count])
        self.has_pending = True
        return count < wanted

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Encrypt and write, and return how much was taken. Raises OSError. HOT."""
        if (self._owed or self._unsent) and (taken := self._settle()):
            return taken
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
        """Send a piece of a file and return how much; 0 if the file has ended. Raises OSError."""
        if (self._owed or self._unsent) and (taken := self._settle()):
            return taken
        return self.send(_piece[: os.preadv(file, (_piece[: min(length, PIECE_BYTES)],), position)])

    def close(self) -> None:
        """Say that nothing more comes, if that can be said at once, and close the socket."""
        with suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            finally:
                self._send_unsent()
        self._sock.close()

    def _leave_nothing(self) -> None:
        """Take what OpenSSL has made, and what it has not read: the next connection's come to the same places."""
        if _incoming.pending:
            self._left = _incoming.read()
        if _outgoing.pending:
            self._unsent += _outgoing.read()

    def _settle(self) -> int:
        """Send what waits, and return how much of what its sender brings again that was. BlockingIOError if not all."""
        if not self._send_unsent():
            raise BlockingIOError
        owed, self._owed = self._owed, 0
        return owed

    def _send_before_reading(self) -> None:
        """Send what TLS itself has to say, or do not read: each thing read may make it say more."""
        if not self._send_unsent():
            raise ReadBlockedByWriteError

    def _send_unsent(self) -> bool:
        """Send records that wait, in their order; return whether none is left."""
        if _outgoing.pending:
            self._unsent += _outgoing.read()
        if self._unsent:
            with suppress(BlockingIOError):
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        return not self._unsent
