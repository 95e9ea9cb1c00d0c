"""The cache of decoded requests: a request like an earlier one is not decoded again. HOT.

Runs in handler processes and the controller, once for each API that caches. Clients repeat their requests in the same
bytes, except for the correlation id and the fields that *vary*: offsets, a session's epoch, records. Two requests with
the same bytes in all else have the same meaning on any connection of the same user and listener, until the metadata
change. Each API has its own subclass of `CachedRequest` for that meaning, and decides which requests it caches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import RESPONSE_TO_KIND, SEND
from rotunda.broker.ipc.request_facts import NO_RECORDS, Records
from rotunda.broker.native import compiled
from rotunda.broker.partitions import intern_pool
from rotunda.broker.security.session import ANONYMOUS, pack_session

#: Memory for the cached requests of an API, approximately and twice as much at most; constant bytes of each.
MOST_CACHE_BYTES: Final = 8 << 20
MOST_REQUEST_BYTES: Final = 8192

#: A request stays cached at least this long after the last similar one, and at most twice as long.
CACHED_NS: Final = 30_000_000_000

#: API key, version and correlation id are checked elsewhere or differ in every request.
PREFIX_START: Final = 8

#: By `struct` format of a varying field.
_SIZES: Final = {"i": 4, "q": 8}


class Versioned(Protocol):
    """The metadata, as far as the cache depends on them."""

    version: int


class CachedRequest(ABC):
    """A cached request; ``prefix``: its bytes from `PREFIX_START` up to the first varying one."""

    __slots__ = ("known", "listener", "prefix", "session", "version")

    #: Memory of an entry besides its bytes, as measured, with its places in both dictionaries.
    entry_bytes: ClassVar[int] = 768

    def __init__(self, request: Request, prefix: bytes) -> None:
        self.version, self.session, self.listener = request.api_version, request.session, request.listener
        self.prefix = prefix
        #: The same for compiled code; None: it does not handle these requests.
        self.known: Any = None

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return self.entry_bytes + len(self.prefix)

    def known_request(self, wire: bytes, records: Records, tail: bytes) -> Any:
        """Return this request and its response for compiled code, which is in use; arguments as in `try_put`."""
        known, session, size = compiled.KnownRequest(), self.session, len(wire)  # type: ignore[union-attr]
        record_count, record_bytes, codec = records
        known.version, known.prefix = self.version, self.prefix
        known.session = b"" if session is ANONYMOUS else pack_session(session.user, session.host, session.reached)
        facts = 0, 0, 0, 0, 0, 0, size, 0, record_count, codec, 0, record_bytes, 0
        known.response = RESPONSE_TO_KIND.pack(0, 0, size, 0, SEND, *facts, tail) + wire
        known.owned = known.log = known.appends = known.row = known.is_flexible = known.offset_at = known.again = None
        return known

    @abstractmethod
    def varying(self, view: memoryview, start: int, end: int) -> Any:
        """Return the varying part of a request that equals this one in all else, or None. HOT."""


class CachedFields(CachedRequest):
    """A cached request of which only numbers vary, or nothing."""

    __slots__ = ("_is_whole", "_literals", "_size", "_unpack")

    def __init__(self, request: Request, places: Iterable[tuple[int, str]] = ()) -> None:
        """``places``: offset in the request's memory and `struct` format of each varying field, in order."""
        start = at = request.start + PREFIX_START
        formats = []
        for place, form in places:
            formats.append(f"{place - at}s{form}")
            at = place + _SIZES[form]
        layout = intern_pool.layout(f">{''.join(formats)}{request.end - at}s")
        self._unpack, self._size = layout.unpack_from, layout.size
        self._literals = layout.unpack_from(request.view, start)[::2]
        self._is_whole = len(self._literals) == 1
        super().__init__(request, self._literals[0])

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return self.entry_bytes + self._size

    def repeat(self, wire: bytes, tail: bytes, again: Callable[[bytes], bytes | None] | None = None) -> None:
        """Have compiled code, if there is any, repeat a response to requests without varying fields.

        ``again`` gets the response with its envelope, and returns it as it is now; None if the twin is to make it.
        """
        if compiled is not None and self.known is None:
            self.known = self.known_request(wire, NO_RECORDS, tail)
            self.known.again = again

    def varying(self, view: memoryview, start: int, end: int) -> tuple[int, ...] | None:
        """Return the varying numbers of a request that equals this one in all else, or None. HOT."""
        at = start + PREFIX_START
        if end - at != self._size:
            return None
        values = self._unpack(view, at)
        if self._is_whole:
            return () if values == self._literals else None
        return values[1::2] if values[::2] == self._literals else None


R = TypeVar("R", bound=CachedRequest)
K = TypeVar("K")


class RecentlyUsed(Generic[K, R]):
    """Requests used within the last one or two periods.

    A handler gets no message when a connection closes, so its cached requests have to expire. There are two
    generations: using a request of the older one moves it to the newer one, and the older generation is dropped when a
    period ends or when the newer one is full.
    """

    __slots__ = ("_before", "_bytes", "_most_bytes", "_until_ns", "recent")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = self._until_ns = 0
        #: Callers look here first, directly: a single dictionary lookup. Always the same object.
        self.recent: dict[K, R] = {}
        self._before: dict[K, R] = {}

    def __len__(self) -> int:
        return len(self.recent) + len(self._before)

    def recall(self, key: K) -> R | None:
        """Return an entry of the older generation, or None; moves it to the newer one."""
        value = self._before.pop(key, None)
        if value is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: R) -> None:
        """Add an entry, or replace the one of that key; not one that is larger than all together may be."""
        size, replaced = value.size_bytes, self.recent.get(key)
        if size > self._most_bytes:
            self.forget(key)
            return
        if replaced is not None:
            self._bytes -= replaced.size_bytes
        if self._bytes + size > self._most_bytes:
            self._age()
        self._before.pop(key, None)
        self.recent[key] = value
        self._bytes += size

    def forget(self, key: K) -> None:
        """Remove an entry, if present."""
        removed = self.recent.pop(key, None)
        if removed is not None:
            self._bytes -= removed.size_bytes
        self._before.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self.recent.clear()
        self._before.clear()
        self._bytes = 0

    def forget_unused(self, now_ns: int) -> None:
        """Drop the entries not used in the last period, if it is over. Called periodically."""
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + CACHED_NS
            self._age()

    def _age(self) -> None:
        self._before, self._bytes = self.recent.copy(), 0
        self.recent.clear()


def _is_free(_connection: int, _cached: CachedRequest) -> bool:
    """Return True: a request that changes nothing overtakes no other."""
    return True


class RequestCache(Generic[R]):
    """The cached requests of one API: the last one of each connection, and each by version, user, listener, prefix."""

    __slots__ = ("_alike", "_is_free", "_is_whole", "_metadata", "_version", "last")

    def __init__(
        self,
        metadata: Versioned,
        most_bytes: int = MOST_CACHE_BYTES,
        *,
        is_whole: bool = False,
        is_free: Callable[[int, R], bool] = _is_free,
    ) -> None:
        """``is_whole``: nothing varies; ``is_free``: whether a connection may use an entry now."""
        #: By connection. A connection has no entry before it is authenticated.
        self.last: RecentlyUsed[int, R] = RecentlyUsed(most_bytes)
        self._alike: RecentlyUsed[tuple[Any, ...], R] = RecentlyUsed(most_bytes)
        self._is_whole, self._is_free = is_whole, is_free
        self._metadata, self._version = metadata, metadata.version

    def __len__(self) -> int:
        """Return the number of connections with a cached request."""
        return len(self.last)

    def find(self, request: Request) -> tuple[R, Any] | None:
        """Return the cached request that this one matches, and the varying part; None if there is none. HOT.

        It may match the last one of its connection, or another with a prefix of the same length.
        """
        if self._version != self._metadata.version:
            self.clear()
            return None
        last, connection = self.last, request.connection_id
        cached = last.recent.get(connection) or last.recall(connection)
        if cached is not None and cached.version == request.api_version and cached.session is request.session:
            varying = cached.varying(request.view, request.start, request.end)
            if varying is not None:
                return cached, varying
        elif not self._is_whole:
            return None
        return self._find_other(request, None if self._is_whole else cached)

    def _find_other(self, request: Request, last: R | None) -> tuple[R, Any] | None:
        """Return a cached request that is not the ``last`` one of the connection, with its prefix's length."""
        start = request.start + PREFIX_START
        end = request.end if last is None else start + len(last.prefix)
        if end - start > MOST_REQUEST_BYTES:
            return None
        key = request.api_version, request.session, request.listener, bytes(request.view[start:end])
        other = self._alike.recent.get(key) or self._alike.recall(key)
        if other is None or not self._is_free(request.connection_id, other):
            return None
        varying = other.varying(request.view, request.start, request.end)
        if varying is None:
            return None
        self.last.put(request.connection_id, other)
        return other, varying

    def keep(self, connection: int, cached: R) -> None:
        """Cache the last request of a connection."""
        if len(cached.prefix) <= MOST_REQUEST_BYTES:
            self.last.put(connection, cached)
            self._alike.put((cached.version, cached.session, cached.listener, cached.prefix), cached)

    def forget(self, connection: int) -> None:
        """Drop the last request of a connection: its next one is decoded."""
        self.last.forget(connection)

    def clear(self) -> None:
        """Drop all entries."""
        self._version = self._metadata.version
        self.last.clear()
        self._alike.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Drop entries not used for a while: connections may have closed. Called periodically."""
        self.last.forget_unused(now_ns)
        self._alike.forget_unused(now_ns)


class RequestCaches:
    """The caches of one target."""

    def __init__(self, metadata: Versioned, most_bytes: int = MOST_CACHE_BYTES) -> None:
        """``most_bytes``: for each API; 0: nothing is cached."""
        self._metadata, self._most_bytes = metadata, most_bytes
        self._opened: list[RequestCache[Any]] = []

    def clear(self) -> None:
        """Drop all entries."""
        for cache in self._opened:
            cache.clear()

    def open(self, *, is_whole: bool = False, is_free: Callable[[int, R], bool] = _is_free) -> RequestCache[R]:
        """Return a new cache for an API."""
        cache = RequestCache(self._metadata, self._most_bytes, is_whole=is_whole, is_free=is_free)
        self._opened.append(cache)
        return cache

    def forget_unused(self, now_ns: int) -> None:
        """Drop entries not used for a while. Called periodically."""
        for cache in self._opened:
            cache.forget_unused(now_ns)
