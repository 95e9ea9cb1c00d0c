"""The response cache: responses that depend only on the request, its listener and the metadata.

Runs in handler processes and the controller. Each API declares whether it has such responses, and which of them may be
cached (`Api.is_cacheable`). A request with the same bytes, apart from its correlation id, gets the same response until
the metadata change. Knows nothing of the contents of requests and responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.partitions.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerTable
    from rotunda.broker.ipc.request import CacheKey, Request
    from rotunda.broker.ipc.response_writer import AnswerFacts
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.server_log.slow_turns import Doing

#: Cached responses, twice as many at most; longer requests and responses are not cached.
MOST_ANSWERS: Final = 64
MOST_REQUEST_BYTES: Final = 16 << 10
MOST_ANSWER_BYTES: Final = 32 << 10

#: A cached response expires after this long without use.
KEPT_NS: Final = 30_000_000_000

#: Layout of a request from its api key on: api key and version, correlation id, the rest.
_CORRELATION_ID, _REST = 4, 8
_SIZE_BYTES = _CORRELATION_ID_BYTES = 4


class CachedAnswer(NamedTuple):
    """A response without its correlation id."""

    size: bytes
    rest: bytes
    facts: AnswerFacts
    doing: Doing

    def payload(self, correlation_id: int) -> bytes:
        """Return the response for a correlation id, from its size field on."""
        return b"".join((self.size, correlation_id.to_bytes(_CORRELATION_ID_BYTES, "big", signed=True), self.rest))


class AnswerCache:
    """The cached responses of one target."""

    def __init__(self, metadata: MetadataCache, listeners: ListenerTable) -> None:
        self._metadata = metadata
        self._listeners = listeners
        self._version = self._current
        self._answers: RecentlyUsed[CacheKey, CachedAnswer] = RecentlyUsed(MOST_ANSWERS, KEPT_NS)

    def __len__(self) -> int:
        return len(self._answers)

    def key_of(self, request: Request) -> CacheKey | None:
        """Return the cache key of a request, or None if the request is too long."""
        view, start, end = request.view, request.start, request.end
        if end - start > MOST_REQUEST_BYTES:
            return None
        rest = bytes(view[start + _REST : end])
        head = bytes(view[start : start + _CORRELATION_ID])
        return request.session, request.listener, head, rest, self._current

    @property
    def _current(self) -> tuple[int, int]:
        """The versions that all entries depend on: of the metadata, and of the listeners' addresses."""
        return self._metadata.version, self._listeners.version

    def find(self, key: CacheKey) -> CachedAnswer | None:
        """Return the response to a request, if a valid one is cached."""
        answers = self._answers
        current = self._current
        if self._version != current:
            self._version = current
            answers.clear()
            return None
        return answers.recent.get(key) or answers.recall(key)

    def keep(self, key: CacheKey, payload: bytes, facts: AnswerFacts, doing: Doing) -> None:
        """Cache a response, of `MOST_ANSWER_BYTES` at most, for later requests with that key."""
        # A change during the computation may have changed the response.
        if key[-1] == self._version == self._current:
            rest = payload[_SIZE_BYTES + _CORRELATION_ID_BYTES :]
            self._answers.put(key, CachedAnswer(payload[:_SIZE_BYTES], rest, facts, doing))

    def forget_unused(self, now_ns: int) -> None:
        """Expire unused entries. Called periodically."""
        self._answers.forget_unused(now_ns)
