"""The room: the open connections of the status page, and the choice of those dropped to make room for one more.

Runs in the web process, in its event loop. A connection that is too slow to send a request or to read a response is
dropped; when the room is full, so is the one that has waited longest. Connections whose request is being served are the
last to be dropped, so a probe, which sends its request at once, is never rejected because of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsWriter

#: Most bytes of responses that wait for slow readers, in total.
MOST_UNREAD_BYTES = 32 * 1024 * 1024

#: A reader that has not read this much within the time limit is too slow.
LEAST_READ_BYTES = 64 * 1024

#: Time limit of an idle connection after a response, in multiples of the time limit for sending a request.
_KEEP_ALIVE_FACTOR = 3

SLOW_REQUEST, SLOW_READER, NO_ROOM = "slow_request", "slow_reader", "no_room"


class Warn(Protocol):
    """Logs a warning, at most one of a kind in some seconds."""

    def __call__(self, key: str, message: str, *values: object) -> bool:
        """Return whether the line was logged rather than counted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for clients of the page: their number, and the time for a request or a response."""

    connections: int
    streams: int
    timeout_s: float


class Occupant(Protocol):
    """The room's interface to a connection."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses not yet read by the client."""
        ...

    def drop(self) -> None:
        """Abort the connection, without sending buffered bytes."""
        ...


class _Unread(NamedTuple):
    since_s: float
    waiting_bytes: int


class Room:
    """The open connections. Dictionaries preserve the order of arrival: the oldest is first."""

    def __init__(
        self, limits: Limits, metrics: MetricsWriter, warn: Warn, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._metrics = metrics
        self._warn = warn
        self._now_s = now_s
        #: Deadlines of connections without a request.
        self._waiting: dict[Occupant, float] = {}
        self._unread: dict[Occupant, _Unread] = {}
        self._present: set[Occupant] = set()
        self._streams = 0
        self._streams_metric = metrics.index("streams")
        self._connections_metric = metrics.index("connections")
        # Its predecessor's connections ended with it.
        metrics.set(self._streams_metric, 0)
        metrics.set(self._connections_metric, 0)

    def enter(self, occupant: Occupant) -> None:
        """Add a new connection, dropping another if the room is full."""
        if len(self._present) >= self.limits.connections:
            # A request being served is short or a stream, and there are fewer streams than connections.
            self._drop(next(iter(self._waiting or self._unread or self._present)), NO_ROOM)
        self._present.add(occupant)
        self._metrics.set(self._connections_metric, len(self._present))
        self._waiting[occupant] = self._now_s() + self.limits.timeout_s

    def leave(self, occupant: Occupant) -> None:
        """Remove a connection that has ended."""
        self._present.discard(occupant)
        self._waiting.pop(occupant, None)
        self._unread.pop(occupant, None)
        self._metrics.set(self._connections_metric, len(self._present))

    def serve(self, occupant: Occupant) -> None:
        """Record that a whole request has arrived."""
        self._waiting.pop(occupant, None)

    def await_request(self, occupant: Occupant) -> None:
        """Record that a response is complete: the next request may follow."""
        if occupant in self._present:
            self._waiting[occupant] = self._now_s() + _KEEP_ALIVE_FACTOR * self.limits.timeout_s

    def block(self, occupant: Occupant) -> None:
        """Record a reader whose buffer is full; drop the oldest such readers when their total is too large."""
        self._unread[occupant] = _Unread(self._now_s(), occupant.unread_bytes)
        total_bytes = sum(each.unread_bytes for each in self._unread)
        while total_bytes > MOST_UNREAD_BYTES:
            oldest = next(iter(self._unread))
            total_bytes -= oldest.unread_bytes
            self._drop(oldest, SLOW_READER)

    def unblock(self, occupant: Occupant) -> None:
        """Record that a reader has caught up."""
        self._unread.pop(occupant, None)

    def sweep(self) -> None:
        """Drop connections over their time limits. Called about once a second."""
        now_s = self._now_s()
        for occupant in [each for each, deadline_s in self._waiting.items() if now_s >= deadline_s]:
            self._drop(occupant, SLOW_READER if occupant.unread_bytes else SLOW_REQUEST)
        for occupant, (since_s, waiting_bytes) in list(self._unread.items()):
            if now_s - since_s < self.limits.timeout_s:
                continue
            left_bytes = occupant.unread_bytes
            if waiting_bytes - left_bytes >= LEAST_READ_BYTES:
                self._unread[occupant] = _Unread(now_s, left_bytes)
            else:
                self._drop(occupant, SLOW_READER)

    def open_stream(self) -> bool:
        """Return whether another stream of events may begin; `close_stream` ends it."""
        if self._streams >= self.limits.streams:
            self._metrics.add(self._metrics.index("streams_refused"), 1)
            self._warn(
                "streams", "the status page serves %d streams already (status.max.streams); others poll", self._streams
            )
            return False
        self._streams += 1
        self._metrics.set(self._streams_metric, self._streams)
        return True

    def close_stream(self) -> None:
        """End a stream of events."""
        self._streams -= 1
        self._metrics.set(self._streams_metric, self._streams)

    def count_invalid(self, whose: str) -> None:
        """Count bytes that are not an HTTP request."""
        self._metrics.add(self._metrics.index("invalid_requests"), 1)
        self._warn("invalid", "status page: invalid HTTP request from %s", whose)

    def note_exhausted(self, failure: object) -> None:
        """Log that a connection or a request was lost because a descriptor or memory was missing."""
        advice = "raise the limit of open files (ulimit -n, LimitNOFILE in systemd) if it stays so"
        self._warn("exhausted", "status page: cannot serve a connection or request: %s; %s", failure, advice)

    def note_stranger(self, whose: str) -> None:
        """Log a client with an invalid token or password."""
        why = "neither the token (status.token) nor the password of a user with DESCRIBE on the cluster"
        self._warn("stranger", "status page: rejected %s: %s", whose, why)

    def count_no_handshake(self, whose: str, failure: str) -> None:
        """Count bytes that are not a TLS handshake, or a failed handshake."""
        self._metrics.add(self._metrics.index("invalid_requests"), 1)
        self._warn("handshake", "status page: no TLS handshake from %s (%s); use https", whose, failure)

    def _drop(self, occupant: Occupant, cause: str) -> None:
        self.leave(occupant)
        occupant.drop()
        self._metrics.add(self._metrics.index("connections_dropped", cause), 1)
        if cause == NO_ROOM:
            most = self.limits.connections
            self._warn("room", "the status page holds %d connections (status.max.connections); the oldest go", most)
