"""The answer cache: answers that follow from their request, its listener and the metadata alone.

Runs in handler processes and the controller. Which APIs have such answers, and which of them last, is declared with the
API (`Api.is_cacheable`). A request of the same bytes, but for its correlation id, is answered with the same bytes until
the metadata change. Knows nothing of what is asked or answered.
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

#: Answers that are kept, twice as many at most; no request and no answer that is longer.
MOST_ANSWERS: Final = 64
MOST_REQUEST_BYTES: Final = 16 << 10
MOST_ANSWER_BYTES: Final = 32 << 10

#: An answer that is not asked for again in so long is forgotten.
KEPT_NS: Final = 30_000_000_000

#: A request from its api key on: api key and version, correlation id, the rest.
_CORRELATION_ID, _REST = 4, 8
_SIZE_BYTES = _CORRELATION_ID_BYTES = 4


class CachedAnswer(NamedTuple):
    """An answer without its correlation id."""

    size: bytes
    rest: bytes
    facts: AnswerFacts
    doing: Doing

    def payload(self, correlation_id: int) -> bytes:
        """Return the answer to a request of that correlation id, from its size on."""
        return b"".join((self.size, correlation_id.to_bytes(_CORRELATION_ID_BYTES, "big", signed=True), self.rest))


class AnswerCache:
    """The answers that one target gives again."""

    def __init__(self, metadata: MetadataCache, listeners: ListenerTable) -> None:
        self._metadata = metadata
        self._listeners = listeners
        self._version = self._current
        self._answers: RecentlyUsed[CacheKey, CachedAnswer] = RecentlyUsed(MOST_ANSWERS, KEPT_NS)

    def __len__(self) -> int:
        return len(self._answers)

    def key_of(self, request: Request) -> CacheKey | None:
        """Return what a request's answer is found by, or None if it is too long for that."""
        view, start, end = request.view, request.start, request.end
        if end - start > MOST_REQUEST_BYTES:
            return None
        rest = bytes(view[start + _REST : end])
        head = bytes(view[start : start + _CORRELATION_ID])
        return request.session, request.listener, head, rest, self._current

    @property
    def _current(self) -> tuple[int, int]:
        """What all answers hold for: the metadata, and the addresses of listeners."""
        return self._metadata.version, self._listeners.version

    def find(self, key: CacheKey) -> CachedAnswer | None:
        """Return the answer to a request, if there is one that still holds."""
        answers = self._answers
        current = self._current
        if self._version != current:
            self._version = current
            answers.clear()
            return None
        return answers.recent.get(key) or answers.recall(key)

    def keep(self, key: CacheKey, payload: bytes, facts: AnswerFacts, doing: Doing) -> None:
        """Give this answer, of `MOST_ANSWER_BYTES` at most, to later requests of that key."""
        # What changed while the answer was made may have changed it.
        if key[-1] == self._version == self._current:
            rest = payload[_SIZE_BYTES + _CORRELATION_ID_BYTES :]
            self._answers.put(key, CachedAnswer(payload[:_SIZE_BYTES], rest, facts, doing))

    def forget_unused(self, now_ns: int) -> None:
        """Forget what nobody has asked for lately. Called now and then."""
        self._answers.forget_unused(now_ns)
