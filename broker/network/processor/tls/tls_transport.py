"""A TLS connection as a channel uses it: what it asks of a plain socket, in a socket's own way.

Runs in processor processes. OpenSSL works in memory, not on the socket: what has come is received with one call of the
system however small the records are that a client cuts, and the records of an answer leave with one. Where the kernel
encrypts, `tls_kernel_transport` stands here.

Two facts are all that reader and channel know of TLS. After a read, bytes may be left of which epoll does not know,
because they have been received already (``has_pending``, `B04`). And what a write did not take has to come again as it
was, or with more behind it, which is how a channel keeps its order anyway: its records are made, and wait here until
the socket takes them.

A range of a file is read into one buffer of the process and encrypted from there, into another: what is encrypted at a
time would otherwise be kept for each connection. So whoever has called OpenSSL takes at once what it has made.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from broker.network.processor.channel import SMALL_READ_BYTES, ReadBlockedByWriteError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

#: The most that a TLS record holds.
RECORD_BYTES: Final = 16384

#: What is received at a time: a whole record with its head and what encryption adds. A connection keeps a third more
#: than it has ever received at a time, so this is little.
RECEIVE_BYTES: Final = RECORD_BYTES + 512

#: What one read takes at most, that others get their turn.
MOST_AT_ONCE: Final = 256 * 1024

#: What is encrypted, and read of a file, for one call of the system.
PIECE_BYTES: Final = 65536

#: What is taken of a client behind a failure.
LEFT_BYTES: Final = 65536

_received = memoryview(bytearray(RECEIVE_BYTES))
_plain = memoryview(bytearray(SMALL_READ_BYTES))
_piece = memoryview(bytearray(PIECE_BYTES))
#: The records that OpenSSL makes, of any connection: empty but between its call and what takes them.
_outgoing = ssl.MemoryBIO()


class AcceptedObject(ssl.SSLObject):
    """A connection of OpenSSL's."""

    #: The host name that the client has asked for.
    asked_name = ""


class TlsTransport:
    """A connection, from its handshake on."""

    __slots__ = ("_encrypt", "_incoming", "_owed", "_read", "_sock", "_tls", "_unsent", "has_pending")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        context.sslobject_class = AcceptedObject
        self._tls = context.wrap_bio(self._incoming, _outgoing, server_side=True)
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._encrypt = self._tls.write
        #: Whether something has been received that may not be used up, of which no event will tell (`B04`).
        self.has_pending = False
        #: Records that the socket has not taken, and how much of the data in them its sender brings again.
        self._unsent = b""
        self._owed = 0

    @property
    def asked_name(self) -> str:
        """The host name that the client has asked for; empty if it has not."""
        return cast("AcceptedObject", self._tls).asked_name

    @property
    def own_address(self) -> str:
        """The address of this machine by which the client has come."""
        return str(self._sock.getsockname()[0])

    def shake_hands(self) -> None:
        """Take a step with what has come; return when it was the last one.

        Raises BlockingIOError while more has to come, OSError when the client left, ssl.SSLError when it fails.
        """
        self._send_before_reading()
        self._receive()
        try:
            try:
                self._tls.do_handshake()
            finally:
                self._take_records()
        except ssl.SSLWantReadError:
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
        filled, most, is_drained = 0, min(len(memory), MOST_AT_ONCE), False
        read, incoming = self._read, self._incoming
        try:
            while filled < most and (self.has_pending or not is_drained):
                if not self.has_pending:
                    is_drained = self._receive()
                try:
                    count = read(most - filled, memory[filled:])
                except ssl.SSLWantReadError:
                    self._use_up()
                    continue
                if not count:
                    return filled
                filled += count
                if not incoming.pending:
                    # All records are whole. Of the last one there is more when it did not fit.
                    self.has_pending = filled == most and self._tls.pending() > 0
        except OSError:
            # What has been read comes first; the next read meets the same again.
            if not filled:
                raise
        finally:
            self._take_records()
        if not filled:
            raise BlockingIOError
        return filled

    def _use_up(self) -> None:
        """Note that all records are read but one that has not come whole; send what TLS says to them."""
        self.has_pending = False
        if _outgoing.pending:
            self._send_before_reading()

    def _receive(self) -> bool:
        """Receive more records; return whether the socket has no more: if it has then, epoll tells. Raises OSError."""
        count = self._sock.recv_into(_received)
        if not count:
            # TLS would have said so.
            raise ConnectionResetError
        self._incoming.write(_received[:count])
        self.has_pending = True
        return count < RECEIVE_BYTES

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
        sent = self._try_send(records, flags)
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

    def _take_records(self) -> None:
        """Take what OpenSSL has made: those of the next connection come into the same place."""
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
        self._take_records()
        if self._unsent:
            self._unsent = self._unsent[self._try_send(self._unsent, 0) :]
        return not self._unsent

    def _try_send(self, records: bytes, flags: int) -> int:
        try:
            return self._sock.send(records, flags)
        except BlockingIOError:
            return 0
