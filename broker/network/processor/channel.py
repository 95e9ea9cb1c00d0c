"""One client connection: its socket, the requests it has in flight, what waits to be written, and why it is muted.

Runs in processor processes and is touched by its processor alone. It moves bytes and counts; what a frame means and
where it goes is the processor's business.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rotunda.broker.ipc import connection_id
from rotunda.broker.ipc.segment_file_cache import OpenFile
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.session import ANONYMOUS_USER

if TYPE_CHECKING:
    from rotunda.broker.network.accounting.client import Client
    from rotunda.broker.security.sasl.authenticator import Authenticator

#: Read size for connections that send small requests; one read usually takes in everything that has arrived.
SMALL_READ_BYTES = 64 * 1024

#: Read size after a large request: little of the next one's payload is read before its block of memory is known.
LARGE_READ_BYTES = 2048

#: What is written to one socket before others have their turn, however much it takes: a few milliseconds of TLS.
WRITTEN_AT_ONCE_BYTES = 4 * 1024 * 1024


#: How those requests begin that wait for others than the broker: for records, or for members of a group.
_WAITING = tuple(int(key).to_bytes(2, "big") for key in (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))

#: What is kept of a request until it is answered, for every API but Produce, to send it again should its target die:
#: (received_ns, target, the whole frame). A Produce is in its ring until then and is taken again from there.
#: Where there is no room for it, two bytes are left of the frame (`kept_requests`).
Repeatable = tuple[int, int, bytes]

#: RESPONSE_ENVELOPE: connection id, sequence, inline bytes, file ranges, kind, and facts for the request log.
Envelope = tuple[int, int, int, int, int, bytes]

#: An answer until it is written: its facts for the request log, and when it was taken from the ring, in ns
#: (``D14``, ``D15``).
Answered = tuple[bytes, int]


class ReadBlockedByWriteError(BlockingIOError):
    """A read of TLS cannot go on before the socket takes what TLS has to say."""


class Transport(Protocol):
    """What a channel asks of its connection: a socket, or what stands in its place."""

    def recv(self, most: int, /) -> bytes:
        """Return what has come."""

    def recv_into(self, memory: memoryview, /) -> int:
        """Receive into memory."""

    def send(self, data: bytes | memoryview, flags: int, /) -> int:
        """Return how much was taken."""

    def close(self) -> None:
        """Close the descriptor."""


class TlsState(Protocol):
    """What a channel of TLS has besides: a handshake at first, then a connection."""

    @property
    def has_pending(self) -> bool:
        """Whether it has to be read although no event will tell (`B04`)."""


class FileSend(NamedTuple):
    """A part of an answer that goes from a file to the socket inside the kernel."""

    file: OpenFile
    position: int
    length: int


Piece = bytes | memoryview | FileSend


class HeldAnswer(NamedTuple):
    """An answer that came before the answers to earlier requests of its connection."""

    kind: int
    size: int
    pieces: list[Piece]
    answered: Answered


class LargeReceive:
    """A request on its way from the socket straight into a block of shared memory."""

    __slots__ = ("address", "area", "filled", "size", "view")

    def __init__(self, area: int, address: int, size: int, view: memoryview) -> None:
        self.area = area
        self.address = address
        self.size = size
        self.filled = 0
        self.view = view

    def take(self, data: bytes | memoryview) -> None:
        """Copy in what was read before the block was known; never more than is missing."""
        self.view[self.filled : self.filled + len(data)] = data
        self.filled += len(data)


class Channel:
    """The state of one connection. Response order is by ``next_answer``, our own sequence numbers (``D11``)."""

    __slots__ = (
        "answered",
        "asked_again",
        "authenticator",
        "client",
        "client_prefix",
        "closing",
        "connection_id",
        "ended_at",
        "fd",
        "former_clients",
        "held",
        "held_bytes",
        "inbox",
        "interest",
        "kept_bytes",
        "large",
        "last_active_ns",
        "listener",
        "muted",
        "names",
        "next_answer",
        "next_sequence",
        "opened_ns",
        "out",
        "out_bytes",
        "peer",
        "produce_target",
        "reached",
        "read_bytes",
        "recv",
        "repeatable",
        "send",
        "sendfile",
        "serial",
        "session",
        "sock",
        "tls",
        "unsent",
        "user",
    )

    def __init__(self, sock: socket.socket, connection_id: int, serial: int, listener: int, peer: str) -> None:
        self.sock: Transport = sock
        self.tls: TlsState | None = None
        #: How parts of files are sent (descriptor, position, length); None: inside the kernel.
        self.sendfile: Callable[[int, int, int], int] | None = None
        # Bound once: both are called for every request.
        self.recv: Callable[[int], bytes] = sock.recv
        self.send: Callable[..., int] = sock.send
        self.fd = sock.fileno()
        self.connection_id = connection_id
        self.serial = serial
        self.listener = listener
        self.peer = peer
        #: The address of this machine by which the client has come, where it is told that.
        self.reached = ""
        #: As whom the client is known, and what travels of that with each request: nothing while nobody asks for it.
        self.user = ANONYMOUS_USER
        self.session = b""
        #: Who the client is or says it is, while that is not known or can end; None: nothing is asked.
        self.authenticator: Authenticator | None = None
        self.inbox = b""
        self.large: LargeReceive | None = None
        self.read_bytes = SMALL_READ_BYTES
        self.next_sequence = 0
        self.next_answer = 0
        #: The target of every Produce once one has named several partitions; -1 until then: each goes to its owner.
        self.produce_target = -1
        self.repeatable: dict[int, Repeatable] = {}
        #: Bytes of the frames in ``repeatable``.
        self.kept_bytes = 0
        self.held: dict[int, HeldAnswer] = {}
        self.held_bytes = 0
        self.out: list[Piece] = []
        #: Of the answers attached before ``next_answer``, those that are not written whole yet.
        self.answered: list[Answered] = []
        #: How many answers in a row could not be sent, and have been asked for again.
        self.asked_again = 0
        #: How a request of this connection goes on behind its correlation id unless its client id has changed.
        self.client_prefix = b""
        #: Client id, software name, software version.
        self.names = ("", "", "")
        self.client: Client | None = None
        #: (sequence from which on it no longer spoke for the connection, client).
        self.former_clients: list[tuple[int, Client]] = []
        self.opened_ns = 0
        self.unsent: list[Piece] = []
        self.out_bytes = 0
        self.muted = MuteCause.NONE
        self.interest = 0
        self.last_active_ns = 0
        self.closing = False
        #: What ``next_answer`` was when the connection was asked to end.
        self.ended_at = 0

    @property
    def name(self) -> str:
        """What log lines call the connection."""
        return f"{connection_id.text(self.connection_id)} of {self.peer}"

    @property
    def in_flight(self) -> int:
        """Requests that have been sent to a target and whose answers have not been attached yet."""
        return self.next_sequence - self.next_answer

    @property
    def first_unfinished(self) -> int:
        """Sequence of the first request whose answer has not been written whole."""
        return (self.ended_at if self.closing else self.next_answer) - len(self.answered)

    def is_drained(self, *, produce_only: bool) -> bool:
        """Return whether every answer has been written but those that wait for others, which may be long.

        ``produce_only``: only those to Produce are waited for, because they acknowledge records.
        """
        if produce_only:
            waiting = len(self.repeatable)
        else:
            waiting = sum(frame.startswith(_WAITING) for _, _, frame in self.repeatable.values())
        return not self.unsent and self.in_flight <= waiting

    def forget_requests(self) -> None:
        """Expect no more answers: what comes for this channel from now on has no taker. Nothing of it may be kept."""
        self.ended_at = self.next_answer + len(self.held)
        self.next_answer = self.next_sequence
        self._drop_held()

    def send_out(self) -> bool:
        """Write as much as the socket takes of ``out``; keep copies of the rest. True when nothing is left.

        ``out`` may hold views of a ring: they are either written or copied here, so that the ring's memory may be
        released as soon as this returns. Raises OSError when the connection is gone.
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
        """Keep ``out`` until the socket takes it in another turn: copies, as `send_out` does of what is left."""
        self.unsent += [bytes(piece) if isinstance(piece, memoryview) else piece for piece in self.out]
        self.out.clear()
        self._keep_from(0)

    @property
    def has_ended(self) -> bool:
        """Whether its client has ended its side, nothing that it sent is left to be done and no answer to be given.

        Of TLS the end of what was sent is not seen before it is read.
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
        """Go on with what earlier writes left over (``B09``). True when nothing is left; raises OSError.

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
                        continue
                else:
                    if number + 1 == count:
                        sent = self.send(piece)
                    else:
                        if isinstance(piece, memoryview) and isinstance(unsent[number + 1], memoryview):
                            piece = self._join(number)
                            count = len(unsent)
                        # What stands around records travels with them, in as few segments.
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
        """Read on when the socket has taken what waits, be it nothing of ours."""
        self.muted |= MuteCause.OUTPUT
        if not self.unsent:
            self.unsent.append(b"")

    def give_up(self) -> None:
        """Write nothing more and take nothing more, in this turn of the loop either: the connection is at fault."""
        self.discard_output()
        self.muted |= MuteCause.REFUSED

    def discard_output(self) -> None:
        """Drop what was not written (``D13``)."""
        self.unsent.clear()
        self.out = []
        self._drop_held()
        self.out_bytes = 0

    def _drop_held(self) -> None:
        """Forget answers that came early; they are done with as if they had been written (``D21``)."""
        self.answered += [answer.answered for answer in self.held.values()]
        self.held.clear()
        self.held_bytes = 0

    def _keep_from(self, number: int) -> None:
        """Let go of the pieces before that one, which have been written."""
        del self.unsent[:number]
        self.out_bytes = sum(each.length if isinstance(each, FileSend) else len(each) for each in self.unsent)

    def _send_file(self, piece: FileSend, most_bytes: int) -> int:
        """Send a part of a file, or what the socket takes of it; return how much that was. Raises OSError."""
        file, position, length = piece
        # The kernel would go on for as long as the client takes it.
        length = min(length, most_bytes)
        if self.sendfile is None:
            sent = os.sendfile(self.fd, file.fd, position, length)
        else:
            sent = self.sendfile(file.fd, position, length)
        if not sent:
            raise ConnectionAbortedError(f"segment file ended {length} bytes before its range did")
        return sent

    def _join(self, number: int) -> bytes:
        """Make one piece of the views of a ring that follow each other from that one on, and return it."""
        run: list[memoryview] = []
        for piece in self.unsent[number:]:
            if not isinstance(piece, memoryview):
                break
            run.append(piece)
        joined = b"".join(run)
        self.unsent[number : number + len(run)] = [joined]
        return joined
