"""The current request of a target, and the requests in which its predecessors died: words that outlive it.

A target stores the position of each request before it handles it (layout.CURRENT_REQUEST), so that a replacement knows
in which request its predecessor died. It counts those deaths in a short list (layout.SUSPECT), by an identity of two
numbers that are never reused. Knows nothing of the contents of requests.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.shm.layout import CURRENT_REQUEST, SUSPECT
from rotunda.shm.words import words_of

#: The word that a target stores for each request that it reads from a ring. HOT: one store.
REQUEST_AT = CURRENT_REQUEST.word("request_at")

#: Requests whose deaths are recorded; the oldest are replaced.
SUSPECTS = 64

_CONNECTION_ID = CURRENT_REQUEST.word("connection_id")
_SEQUENCE = CURRENT_REQUEST.word("sequence")
_SUSPECTS_EVER = CURRENT_REQUEST.word("suspects_ever")
_FIRST_SUSPECT = CURRENT_REQUEST.size // 8
_SUSPECT_WORDS = SUSPECT.size // 8
_DEATHS = SUSPECT.word("deaths")
_SIZE = SUSPECT.word("size")
_FINGERPRINT = SUSPECT.word("fingerprint")
_DROPPED_NS = SUSPECT.word("dropped_ns")

#: (connection id, sequence) of a request; of a peer's message (-1 - the peer's index, its position in the ring).
Identity = tuple[int, int]

#: A dropped request: (its size in bytes, its hash, its time in ns).
Dropped = tuple[int, int, int]

#: The identity of no request.
NOBODY: Identity = (0, 0)

_BYTES = CURRENT_REQUEST.size + SUSPECTS * SUSPECT.size


class CurrentRequest:
    """The words of one target, which is their one writer. Zeroed memory is valid."""

    __slots__ = ("words",)

    def __init__(self, view: memoryview, base: int, target: int) -> None:
        self.words = words_of(view, base + target * _BYTES, _BYTES)

    @staticmethod
    def bytes_needed(targets: int) -> int:
        """Return the bytes of shared memory for the words of all targets."""
        return targets * _BYTES

    def enter(self, identity: Identity) -> None:
        """Publish the identity of the current task: a delayed response, a peer's message."""
        # SYNC: clear, the sequence, then the connection; they are read only when this process is dead.
        self.words[_CONNECTION_ID] = 0
        self.words[_SEQUENCE] = identity[1]
        self.words[_CONNECTION_ID] = identity[0]

    def leave(self) -> None:
        """Publish that the task is complete."""
        self.words[_CONNECTION_ID] = 0

    def during(self, identity: Identity, do: Callable[[bool], bool]) -> Callable[[bool], bool]:
        """Return ``do`` wrapped so that ``identity`` is published during the call."""

        def do_so(argument: bool) -> bool:
            self.enter(identity)
            try:
                done = do(argument)
            except Exception:
                self.leave()
                raise
            self.leave()
            return done

        return do_so

    def interrupted(self) -> tuple[int, Identity | None]:
        """Return the predecessor's last task: (offset of a request's envelope or 0, identity or None)."""
        connection_id, sequence = self.words[_CONNECTION_ID], self.words[_SEQUENCE]
        return self.words[REQUEST_AT], (connection_id, sequence) if connection_id else None

    def clear(self) -> None:
        """Publish that there is no current task."""
        self.words[REQUEST_AT] = self.words[_CONNECTION_ID] = 0

    def count_death(self, identity: Identity) -> None:
        """Count a death in the list of suspects."""
        for start in self._suspects():
            if (self.words[start], self.words[start + 1]) == identity:
                self.words[start + _DEATHS] += 1
                return
        ever = self.words[_SUSPECTS_EVER]
        start = _FIRST_SUSPECT + ever % SUSPECTS * _SUSPECT_WORDS
        self.words[start + _DEATHS] = self.words[start + _SIZE] = 0
        self.words[start], self.words[start + 1] = identity
        self.words[start + _DEATHS] = 1
        self.words[_SUSPECTS_EVER] = ever + 1

    def note_dropped(self, identity: Identity, dropped: Dropped) -> None:
        """Record a dropped request's facts, as long as its deaths are recorded."""
        for start in self._suspects():
            if (self.words[start], self.words[start + 1]) == identity:
                # SYNC: the size last; while it is 0 the others are invalid.
                self.words[start + _FINGERPRINT], self.words[start + _DROPPED_NS] = dropped[1:]
                self.words[start + _SIZE] = dropped[0]

    def dropped(self) -> list[Dropped]:
        """Return the facts of dropped requests."""
        return [
            (self.words[start + _SIZE], self.words[start + _FINGERPRINT], self.words[start + _DROPPED_NS])
            for start in self._suspects()
            if self.words[start + _SIZE]
        ]

    def deaths(self) -> dict[Identity, int]:
        """Return the number of deaths by request, for the last requests with deaths."""
        return {
            (self.words[start], self.words[start + 1]): self.words[start + _DEATHS]
            for start in self._suspects()
            if self.words[start + _DEATHS]
        }

    def _suspects(self) -> range:
        return range(_FIRST_SUSPECT, _FIRST_SUSPECT + SUSPECTS * _SUSPECT_WORDS, _SUSPECT_WORDS)
