"""The request memo: what requests look like, so that the next one like them need not be parsed.

Runs in handler processes. A client sends the same bytes again and again in front of what varies: its client id, what it
asks for, a topic, a partition. Two requests with equal bytes there mean the same, as long as the topics do not change,
whichever connection they come from, if the same user sends them from the same address: what was allowed to one need not
be allowed to another. What varies, and what the rest means, is known to what is remembered
(`Remembered`), of which each API has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.recently_used import RecentlyUsed
from rotunda.broker.security.session import Session

#: A request is remembered at least so long after the last one like it, and at most twice as long.
REMEMBERED_NS: Final = 30_000_000_000

#: Api key, version and correlation id are looked at elsewhere or differ in every request.
PREFIX_START: Final = 8


class Remembered(Protocol):
    """What a request looked like; ``prefix`` is what stood from `PREFIX_START` up to the first that varies."""

    @property
    def version(self) -> int:
        """Return its API version."""

    @property
    def session(self) -> Session:
        """Return whose it was."""

    @property
    def prefix(self) -> bytes:
        """Return what it begins with."""

    def varying(self, view: memoryview, start: int, end: int) -> Any:
        """Return what varies in a request that is like this one in all else, or None. HOT."""


R = TypeVar("R", bound=Remembered)


def _is_free(_connection: int, _remembered: Remembered) -> bool:
    """Return whether a request overtakes no other, as none does of those that change nothing."""
    return True


class RequestMemo(Generic[R]):
    """The last request of each connection, and each request by its version and what stands before all that varies."""

    __slots__ = ("_alike", "_is_free", "last")

    def __init__(self, most: int, is_free: Callable[[int, R], bool] = _is_free) -> None:
        """Remember so many connections and requests; ``is_free``: a connection may go on with that one now."""
        #: By connection. None comes before the client is authenticated, so its session is also that of the next one.
        self.last: RecentlyUsed[int, R] = RecentlyUsed(most, REMEMBERED_NS)
        self._alike: RecentlyUsed[tuple[int, Session, bytes], R] = RecentlyUsed(most, REMEMBERED_NS)
        self._is_free = is_free

    def __len__(self) -> int:
        """Return of how many connections the last request is remembered."""
        return len(self.last)

    def find(self, request: Request) -> tuple[R, Any] | None:
        """Return what a request is like, and what varies in it; None if that is not known. HOT.

        It may be like the last one of its connection, or like another with as many bytes before what varies.
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
        """Remember the last request of a connection; return what its place was taken from, if there was one like it."""
        key = remembered.version, remembered.session, remembered.prefix
        before = self._alike.recent.get(key)
        self.last.put(connection, remembered)
        self._alike.put(key, remembered)
        return before

    def forget(self, connection: int) -> None:
        """Forget the last request of a connection: its next one is parsed."""
        self.last.forget(connection)

    def clear(self) -> None:
        """Forget everything: topics have changed."""
        self.last.clear()
        self._alike.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Forget what was not used for a while: connections may have closed. Called now and then."""
        self.last.forget_unused(now_ns)
        self._alike.forget_unused(now_ns)
