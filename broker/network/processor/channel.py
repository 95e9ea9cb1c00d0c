"""One client connection: its socket, requests in flight, unsent responses, and mute causes.

Runs in processor processes and is used by its processor alone. It moves bytes and counts them; the processor interprets
and routes frames.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rotunda.broker.ipc import connection_id
from rotunda.broker.ipc.segment_file_cache import OpenFile
from rotunda.broker.native import compiled
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.session import ANONYMOUS_USER

if TYPE_CHECKING:
    from rotunda.broker.network.accounting.client import Client
    from rotunda.broker.security.sasl.authenticator import Authenticator

#: Read size for connections that send small requests; one read usually gets all bytes that have arrived.
SMALL_READ_BYTES = 64 * 1024

#: Read size after a large request: it reads little of the next payload before that has a block of memory.
LARGE_READ_BYTES = 2048

#: The most bytes written to one socket before others are served: a few milliseconds of TLS.
WRITTEN_AT_ONCE_BYTES = 4 * 1024 * 1024

#: The input dropped before a connection is closed: the most reads, and their size.
_MOST_DISCARDED, _DISCARDED_BYTES = 16, 64 * 1024

#: The first bytes of requests that wait for events outside the broker: for records, or for group members.
_WAITING = tuple(int(key).to_bytes(2, "big") for key in (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))

#: The copy of an unanswered request, except Produce, for resending after its target's death: (received_ns, target, the
#: whole frame). A Produce stays in its ring until its response, and is read again from there. Without room for a copy,
#: only two bytes of the frame are stored (`kept_requests`).
Repeatable = tuple[int, int, bytes]

#: RESPONSE_ENVELOPE: connection id, sequence, inline bytes, file ranges, kind, and facts for the request log.
Envelope = tuple[int, int, int, int, int, bytes]

#: A response until it is written: its facts for the request log, and its time of receipt from the ring, in ns (``D14``,
#: ``D15``).
Completion = tuple[bytes, int]


class ReadBlockedByWriteError(BlockingIOError):
    """A TLS read must wait until the socket accepts TLS output."""


class Transport(Protocol):
    """A channel's view of its connection: a socket, or a TLS transport."""

    def recv(self, most: int, /) -> bytes:
        """Return the bytes received."""

    def recv_into(self, memory: memoryview, /) -> int:
        """Receive into memory."""

    def send(self, data: bytes | memoryview, flags: int, /) -> int:
        """Return the number of bytes sent."""

    def close(self) -> None:
        """Close the descriptor."""


class TlsState(Protocol):
    """The TLS state of a channel: a handshake at first, then a connection."""

    @property
    def has_pending(self) -> bool:
        """Whether it must be read although no event will be reported (`B04`)."""


class FileSend(NamedTuple):
    """A part of a response sent from a file to the socket inside the kernel."""

    file: OpenFile
    position: int
    length: int


Piece = bytes | memoryview | FileSend


class HeldResponse(NamedTuple):
    """A response that arrived before the responses to earlier requests of its connection."""

    kind: int
    size: int
    pieces: list[Piece]
    completion: Completion


class LargeReceive:
    """A request being received from the socket directly into a block of shared memory."""

    __slots__ = ("address", "area", "filled", "size", "view")

    def __init__(self, area: int, address: int, size: int, view: memoryview) -> None:
        self.area = area
        self.address = address
        self.size = size
        self.filled = 0
        self.view = view

    def take(self, data: bytes | memoryview) -> None:
        """Copy in bytes read before the block was allocated; never more than are missing."""
        self.view[self.filled : self.filled + len(data)] = data
        self.filled += len(data)


class ChannelFields:
    """The attributes of a channel that compiled code reads and writes."""

    __slots__ = (
        "authenticator",
        "client",
        "client_prefix",
        "closing",
        "completions",
        "connection_id",
        "fd",
        "former_clients",
        "held",
        "inbox",
        "kept_bytes",
        "listener",
        "muted",
        "next_response",
        "next_sequence",
        "out",
        "read_bytes",
        "recv",
        "repeatable",
        "resend_count",
        "session",
        "tls",
        "unsent",
    )


if not TYPE_CHECKING and compiled is not None:
    ChannelFields = compiled.ChannelFields


class Channel(ChannelFields):
    """The state of one connection. Responses are ordered by ``next_response``, our own sequence numbers (``D11``)."""

    __slots__ = (
        "ended_at",
        "held_bytes",
        "interest",
        "large",
        "last_active_ns",
        "names",
        "opened_ns",
        "out_bytes",
        "peer",
        "produce_target",
        "reached",
        "send",
        "sendfile",
        "serial",
        "sock",
        "user",
    )

    def __init__(self, sock: socket.socket, connection_id: int, serial: int, listener: int, peer: str) -> None:
        self.sock: Transport = sock
        self.tls: TlsState | None = None
        #: Sends parts of files (descriptor, position, length); None: inside the kernel.
        self.sendfile: Callable[[int, int, int], int] | None = None
        # Bound once: both are called for every request.
        self.recv: Callable[[int], bytes] = sock.recv
        self.send: Callable[..., int] = sock.send
        self.fd = sock.fileno()
        self.connection_id = connection_id
        self.serial = serial
        self.listener = listener
        self.peer = peer
        #: The address of this machine that the client connected to, where known.
        self.reached = ""
        #: The client's user, and the session bytes sent with each request: empty while no component needs them.
        self.user = ANONYMOUS_USER
        self.session = b""
        #: The authenticator while the user is unknown or the session can expire; None: no authentication.
        self.authenticator: Authenticator | None = None
        self.inbox = b""
        self.large: LargeReceive | None = None
        self.read_bytes = SMALL_READ_BYTES
        self.next_sequence = 0
        self.next_response = 0
        #: The target of every Produce once one has named several partitions; -1 until then: each is sent to its owner.
        self.produce_target = -1
        self.repeatable: dict[int, Repeatable] = {}
        #: Bytes of the frames in ``repeatable``.
        self.kept_bytes = 0
        self.held: dict[int, HeldResponse] = {}
        self.held_bytes = 0
        self.out: list[Piece] = []
        #: Responses attached before ``next_response`` and not yet written completely.
        self.completions: list[Completion] = []
        #: Consecutive responses that could not be sent and were requested again.
        self.resend_count = 0
        #: The bytes after the correlation id in a request of this connection, unless its client id has changed.
        self.client_prefix = b""
        #: Client id, software name, software version.
        self.names = ("", "", "")
        self.client: Client | None = None
        #: (first sequence that it no longer applied to, client).
        self.former_clients: list[tuple[int, Client]] = []
        self.opened_ns = 0
        self.unsent: list[Piece] = []
        self.out_bytes = 0
        self.muted = MuteCause.NONE
        self.interest = 0
        self.last_active_ns = 0
        self.closing = False
        #: The value of ``next_response`` when the connection began to close.
        self.ended_at = 0

    @property
    def name(self) -> str:
        """The connection's name in log lines."""
        return f"{connection_id.text(self.connection_id)} of {self.peer}"

    @property
    def in_flight(self) -> int:
        """Number of requests sent to a target, without an attached response yet."""
        return self.next_sequence - self.next_response

    @property
    def first_unfinished(self) -> int:
        """Sequence of the first request without a completely written response."""
        return (self.ended_at if self.closing else self.next_response) - len(self.completions)

    def is_drained(self, *, produce_only: bool) -> bool:
        """Return whether all responses are written, except those of requests that may wait long for others.

        ``produce_only``: consider only responses to Produce, because they acknowledge records.
        """
        if produce_only:
            waiting = len(self.repeatable)
        else:
            waiting = sum(frame.startswith(_WAITING) for _, _, frame in self.repeatable.values())
        return not self.unsent and self.in_flight <= waiting

    def forget_requests(self) -> None:
        """Stop expecting responses: later ones for this channel are dropped. Drop its kept requests before."""
        self.ended_at = self.next_response + len(self.held)
        self.next_response = self.next_sequence
        self._drop_held()

    def send_out(self) -> bool:
        """Write ``out`` as far as the socket accepts it; copy the rest. Return whether all is written.

        ``out`` may hold views of a ring: they are either written or copied here, so that the ring's memory may be
        released as soon as this returns. Raises OSError when the connection is closed.
        """
        unsent = self.unsent
        if unsent:
            unsent += self.out
            self.out.clear()
        else:
            self.unsent, self.out = self.out, unsent
        if self.flush():
            return True
        unsent = self.unsent
        for number, piece in enumerate(unsent):
            if isinstance(piece, memoryview):
                unsent[number] = bytes(piece)
        return False

    def keep_out(self) -> None:
        """Copy ``out`` for a later write, as `send_out` does with unsent bytes."""
        self.unsent += [bytes(piece) if isinstance(piece, memoryview) else piece for piece in self.out]
        self.out.clear()
        self._keep_from(0)

    @property
    def has_ended(self) -> bool:
        """Whether the client has closed its side, with no unprocessed input and no pending response.

        Of a TLS connection the end is not seen before it is read.
        """
        sock = self.sock
        if self.inbox or self.large is not None or self.in_flight or not isinstance(sock, socket.socket):
            return False
        try:
            return not sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def flush(self) -> bool:
        """Continue earlier incomplete writes (``B09``). Return whether all is written; raises OSError.

        The socket may be ready for more when this returns.
        """
        unsent, left_bytes = self.unsent, WRITTEN_AT_ONCE_BYTES
        number, count = 0, len(unsent)
        try:
            while number < count and left_bytes > 0:
                piece = unsent[number]
                if isinstance(piece, FileSend):
                    sent = self._send_file(piece, left_bytes)
                    left_bytes -= sent
                    if sent < piece.length:
                        unsent[number] = FileSend(piece.file, piece.position + sent, piece.length - sent)
                        # The kernel's call ends early on a full socket: another would only find that again.
                        left_bytes = 0 if self.sendfile is None else left_bytes
                        continue
                else:
                    if number + 1 == count:
                        sent = self.send(piece)
                    else:
                        if isinstance(piece, memoryview) and isinstance(unsent[number + 1], memoryview):
                            piece = self._join(number)
                            count = len(unsent)
                        # Headers around records travel with them, in as few segments as possible.
                        sent = self.send(piece, socket.MSG_MORE if number + 1 < count else 0)
                    left_bytes -= sent
                    if sent < len(piece):
                        unsent[number] = piece[sent:]
                        continue
                number += 1
        except OSError as error:
            self._keep_from(number)
            if isinstance(error, BlockingIOError):
                return False
            raise
        if number < count:
            self._keep_from(number)
            return False
        unsent.clear()
        self.out_bytes = 0
        return True

    def read_when_writable(self) -> None:
        """Pause reading until the socket has accepted the waiting bytes, which may all belong to TLS."""
        self.muted |= MuteCause.OUTPUT
        if not self.unsent:
            self.unsent.append(b"")

    def give_up(self) -> None:
        """Drop output and input, from this iteration of the loop on: the connection is faulty."""
        self.discard_output()
        self.muted |= MuteCause.REFUSED

    def discard_input(self) -> None:
        """Drop the input that has arrived: closing with unread bytes resets the connection, and loses responses."""
        with suppress(OSError):
            for _ in range(_MOST_DISCARDED):
                if not os.read(self.fd, _DISCARDED_BYTES):
                    return

    def discard_output(self) -> None:
        """Drop unsent output (``D13``)."""
        self.unsent.clear()
        self.out = []
        self._drop_held()
        self.out_bytes = 0

    def _drop_held(self) -> None:
        """Drop early responses; they count as written (``D21``)."""
        self.completions += [response.completion for response in self.held.values()]
        self.held.clear()
        self.held_bytes = 0

    def _keep_from(self, number: int) -> None:
        """Drop the pieces before ``number``, which have been written."""
        del self.unsent[:number]
        self.out_bytes = sum(each.length if isinstance(each, FileSend) else len(each) for each in self.unsent)

    def _send_file(self, piece: FileSend, most_bytes: int) -> int:
        """Send a part of a file as far as the socket accepts it; return the bytes sent. Raises OSError."""
        file, position, length = piece
        # The kernel would continue as long as the client reads.
        length = min(length, most_bytes)
        if self.sendfile is None:
            sent = os.sendfile(self.fd, file.fd, position, length)
        else:
            sent = self.sendfile(file.fd, position, length)
        if not sent:
            raise ConnectionAbortedError(f"segment file ends {length} bytes before the range")
        return sent

    def _join(self, number: int) -> bytes:
        """Join the consecutive ring views from ``number`` on into one piece, and return it."""
        run: list[memoryview] = []
        for piece in self.unsent[number:]:
            if not isinstance(piece, memoryview):
                break
            run.append(piece)
        joined = b"".join(run)
        self.unsent[number : number + len(run)] = [joined]
        return joined
