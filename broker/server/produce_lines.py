"""The lines of Produce requests that take longer than their share of a turn, by connection.

Runs in handler processes. A request may have very many parts, or such as are unpacked and looked into. What it does not
get done at once is done in slices, and what its connection sends meanwhile waits in line behind it: records of one
connection are appended in the order in which they came. The requests keep their memory until they are answered, so a
replacement of this process finds all of them. Knows nothing of records: a request is a work and who is told of a fault.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.server.deferred import Deferred
from broker.server.frame import Frame
from broker.server.slices import SlicedWork, Slices, Work

#: What one request gets of the turn that it comes in.
AT_ONCE_NS = 5_000_000


class ProduceLines:
    """The requests that are under way, and those that wait for them."""

    def __init__(self, slices: Slices, forget: Callable[[int], None], now_ns: Callable[[], int]) -> None:
        """``forget`` lets go of a connection's last request: until its line is done, none may go another way."""
        self._slices = slices
        self._forget = forget
        self._now_ns = now_ns
        self._lines: dict[int, deque[SlicedWork]] = {}

    def has(self, connection: int) -> bool:
        """Whether a request of a connection is under way."""
        return connection in self._lines

    def take(self, frame: Frame, client_id: str, work: Work, failed: Callable[[], None]) -> None:
        """Do a request's work, now as far as it goes, then in slices. Raises what it raises now, ``failed`` later."""
        connection = frame.to[1]
        line = self._lines.get(connection)
        if line is not None:
            line.append(self._in_slices(frame, client_id, work, failed))
            return
        end_ns = self._now_ns() + AT_ONCE_NS
        for waits_for in work:
            if waits_for is not None or self._now_ns() >= end_ns:
                rest = self._in_slices(frame, client_id, _rest(waits_for, work), failed)
                self._lines[connection] = deque((rest,))
                self._forget(connection)
                self._slices.add_now(rest)
                return

    def _in_slices(self, frame: Frame, client_id: str, work: Work, failed: Callable[[], None]) -> SlicedWork:
        connection, sequence = frame.to[1], frame.to[2]

        def ended(_: object = None) -> None:
            self._next(connection)

        def ended_badly() -> None:
            try:
                failed()
            finally:
                self._next(connection)

        doing = ("PRODUCE", client_id)
        return SlicedWork(work, connection, ended, ended_badly, doing, identity=(connection, sequence))

    def _next(self, connection: int) -> None:
        line = self._lines[connection]
        line.popleft()
        if line:
            self._slices.add_now(line[0])
        else:
            del self._lines[connection]


def _rest(waits_for: Deferred | None, work: Work) -> Work:
    yield waits_for
    yield from work
