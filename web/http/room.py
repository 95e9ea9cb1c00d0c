"""The room: which connections the status page holds, and which of them go so that there is always one more.

Runs in the web process, in its event loop. A connection that takes too long to send a request or to read an answer is
dropped; when all places are taken, the one that has waited longest is. One whose request is being served keeps its
place, so a probe, which sends its request at once, is never refused on account of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsWriter

#: Bytes of answers that wait for slow readers, all together.
MOST_UNREAD_BYTES = 32 * 1024 * 1024

#: A reader that has not taken so much within the time limit is too slow.
LEAST_READ_BYTES = 64 * 1024

#: What a connection without a request is allowed, in multiples of the time limit for sending one.
_KEEP_ALIVE_FACTOR = 3

SLOW_REQUEST, SLOW_READER, NO_ROOM = "slow_request", "slow_reader", "no_room"


class Warn(Protocol):
    """Logs a warning, at most one of a kind in some seconds."""

    def __call__(self, key: str, message: str, *values: object) -> bool:
        """Return whether the line was logged rather than counted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients of the page may have at a time, and how long they have for a request or an answer."""

    connections: int
    streams: int
    timeout_s: float


class Occupant(Protocol):
    """A connection, as the room sees it."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that wait to be read."""
        ...

    def drop(self) -> None:
        """End at once, without sending what waits."""
        ...


class _Unread(NamedTuple):
    since_s: float
    waiting_bytes: int


class Room:
    """The places that connections take. Dictionaries keep the order of arrival: the oldest comes first."""

    def __init__(
        self, limits: Limits, metrics: MetricsWriter, warn: Warn, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._metrics = metrics
        self._warn = warn
        self._now_s = now_s
        #: Deadlines of those from which a request is awaited.
        self._waiting: dict[Occupant, float] = {}
        self._unread: dict[Occupant, _Unread] = {}
        self._present: set[Occupant] = set()
        self._streams = 0
        self._streams_metric = metrics.index("streams")
        self._connections_metric = metrics.index("connections")
        # A predecessor's connections went with it.
        metrics.set(self._streams_metric, 0)
        metrics.set(self._connections_metric, 0)

    def enter(self, occupant: Occupant) -> None:
        """Give a new connection a place, taking it from another if there is none."""
        if len(self._present) >= self.limits.connections:
            # What is being served is short or a stream, and streams are fewer than places.
            self._drop(next(iter(self._waiting or self._unread or self._present)), NO_ROOM)
        self._present.add(occupant)
        self._metrics.set(self._connections_metric, len(self._present))
        self._waiting[occupant] = self._now_s() + self.limits.timeout_s

    def leave(self, occupant: Occupant) -> None:
        """Forget a connection that has ended."""
        self._present.discard(occupant)
        self._waiting.pop(occupant, None)
        self._unread.pop(occupant, None)
        self._metrics.set(self._connections_metric, len(self._present))

    def serve(self, occupant: Occupant) -> None:
        """Note that a whole request has come."""
        self._waiting.pop(occupant, None)

    def await_request(self, occupant: Occupant) -> None:
        """Note that an answer is complete: the next request may come."""
        if occupant in self._present:
            self._waiting[occupant] = self._now_s() + _KEEP_ALIVE_FACTOR * self.limits.timeout_s

    def block(self, occupant: Occupant) -> None:
        """Note that more of an answer waits than is kept for one reader; the oldest such go when it is too much."""
        self._unread[occupant] = _Unread(self._now_s(), occupant.unread_bytes)
        total_bytes = sum(each.unread_bytes for each in self._unread)
        while total_bytes > MOST_UNREAD_BYTES:
            oldest = next(iter(self._unread))
            total_bytes -= oldest.unread_bytes
            self._drop(oldest, SLOW_READER)

    def unblock(self, occupant: Occupant) -> None:
        """Note that a reader has caught up."""
        self._unread.pop(occupant, None)

    def sweep(self) -> None:
        """Drop those that have taken too long. Called about once a second."""
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
        """Return whether another stream of events may begin; `close_stream` ends one that did."""
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
        """Count bytes that are no HTTP request."""
        self._metrics.add(self._metrics.index("invalid_requests"), 1)
        self._warn("invalid", "status page: invalid HTTP request from %s", whose)

    def note_exhausted(self, failure: object) -> None:
        """Note that a connection or a request was lost because a descriptor or memory was missing."""
        advice = "raise the limit of open files (ulimit -n, LimitNOFILE in systemd) if it stays so"
        self._warn("exhausted", "status page: cannot serve a connection or request: %s; %s", failure, advice)

    def note_stranger(self, whose: str) -> None:
        """Note that somebody gave a token or a password that is not right."""
        why = "neither the token (status.token) nor the password of a user with DESCRIBE on the cluster"
        self._warn("stranger", "status page: rejected %s: %s", whose, why)

    def count_no_handshake(self, whose: str, failure: str) -> None:
        """Count bytes that are no TLS handshake, or one that failed."""
        self._metrics.add(self._metrics.index("invalid_requests"), 1)
        self._warn("handshake", "status page: no TLS handshake from %s (%s); use https", whose, failure)

    def _drop(self, occupant: Occupant, cause: str) -> None:
        self.leave(occupant)
        occupant.drop()
        self._metrics.add(self._metrics.index("connections_dropped", cause), 1)
        if cause == NO_ROOM:
            most = self.limits.connections
            self._warn("room", "the status page holds %d connections (status.max.connections); the oldest go", most)
