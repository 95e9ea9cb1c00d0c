"""A cache of parsed requests, so that a similar request need not be parsed.

Runs in handler processes. A client repeats the same bytes before the varying part of its requests: its client id, the
API's parameters, a topic, a partition. Two requests with equal bytes there have the same meaning on any connection, as
long as the topics do not change and they have the same user and address: authorization can differ between users. The
cached entry (`Remembered`, one class for each API) locates the varying part and has the meaning of the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.recently_used import RecentlyUsed
from rotunda.broker.security.session import Session

#: A request stays cached at least this long after the last similar one, and at most twice as long.
REMEMBERED_NS: Final = 30_000_000_000

#: API key, version and correlation id are checked elsewhere or differ in every request.
PREFIX_START: Final = 8


class Remembered(Protocol):
    """A cached request; ``prefix`` is its bytes from `PREFIX_START` up to the first varying one."""

    @property
    def version(self) -> int:
        """The API version."""

    @property
    def session(self) -> Session:
        """The session of its client."""

    @property
    def prefix(self) -> bytes:
        """The constant bytes at its start."""

    def varying(self, view: memoryview, start: int, end: int) -> Any:
        """Return the varying part of a request that equals this one in all else, or None. HOT."""


R = TypeVar("R", bound=Remembered)


def _is_free(_connection: int, _remembered: Remembered) -> bool:
    """Return True: a request that changes nothing overtakes no other."""
    return True


class RequestMemo(Generic[R]):
    """Caches the last request of each connection, and each request by version, session and prefix."""

    __slots__ = ("_alike", "_is_free", "last")

    def __init__(self, most: int, is_free: Callable[[int, R], bool] = _is_free) -> None:
        """Cache at most this many connections and requests; ``is_free``: whether a connection may use an entry now."""
        #: By connection. A connection has no entry before it is authenticated.
        self.last: RecentlyUsed[int, R] = RecentlyUsed(most, REMEMBERED_NS)
        self._alike: RecentlyUsed[tuple[int, Session, bytes], R] = RecentlyUsed(most, REMEMBERED_NS)
        self._is_free = is_free

    def __len__(self) -> int:
        """Return the number of connections with a cached request."""
        return len(self.last)

    def find(self, request: Request) -> tuple[R, Any] | None:
        """Return the cached request that this one matches, and the varying part; None if there is none. HOT.

        It may match the last one of its connection, or another with a prefix of the same length.
        """
        connection, session = request.connection_id, request.session
        remembered = self.last.recent.get(connection) or self.last.recall(connection)
        if remembered is None or remembered.version != request.api_version or remembered.session is not session:
            return None
        view, start, end = request.view, request.start, request.end
        varying = remembered.varying(view, start, end)
        if varying is not None:
            return remembered, varying
        at = start + PREFIX_START
        key = remembered.version, session, bytes(view[at : at + len(remembered.prefix)])
        other = self._alike.recent.get(key) or self._alike.recall(key)
        if other is None or not self._is_free(connection, other):
            return None
        varying = other.varying(view, start, end)
        if varying is None:
            return None
        self.last.put(connection, other)
        return other, varying

    def keep(self, connection: int, remembered: R) -> R | None:
        """Cache the last request of a connection; return the similar request that it replaces, if any."""
        key = remembered.version, remembered.session, remembered.prefix
        before = self._alike.recent.get(key)
        self.last.put(connection, remembered)
        self._alike.put(key, remembered)
        return before

    def forget(self, connection: int) -> None:
        """Drop the last request of a connection: its next one is parsed."""
        self.last.forget(connection)

    def clear(self) -> None:
        """Drop all entries: topics have changed."""
        self.last.clear()
        self._alike.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Drop entries not used for a while: connections may have closed. Called periodically."""
        self.last.forget_unused(now_ns)
        self._alike.forget_unused(now_ns)
