"""The answers that are held back, and until when each of them is: of clients that fail again and again, and by a test.

Runs in processor processes. They wait with their channel, as answers do that have come before an earlier one, and so go
with it; all later ones of the channel wait behind them. When a test ends its delays (`broker.faults`), those that wait
are due, and so they are when the broker stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rotunda.shm.faults import FaultWords

_NS_PER_MS: Final = 1_000_000

#: So many at most are held back on their own account, for all connections of a processor.
MOST: Final = 100_000

#: While answers are held back for a test, the loop looks at least so often whether the test has ended its delays.
LOOK_AGAIN_MS: Final = 20


class DelayedAnswers:
    """The held back answers of one processor, by when they are due."""

    __slots__ = ("_words", "is_ending", "waiting")

    def __init__(self) -> None:
        #: (when it is due, since when it waits, connection id, sequence), by when they are due. HOT: empty, usually.
        self.waiting: list[tuple[int, int, int, int]] = []
        self._words: FaultWords | None = None
        #: Whether the processor ends, and holds nothing back any more.
        self.is_ending = False

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def has_room(self) -> bool:
        """Whether one more may be held back."""
        return len(self.waiting) < MOST and not self.is_ending

    def follow(self, words: FaultWords | None) -> None:
        """Look there for the end of delays."""
        self._words = words

    def add(self, connection: int, sequence: int, now_ns: int, due_ns: int) -> None:
        """Hold an answer back, which has come now, until it is due."""
        heappush(self.waiting, (due_ns, now_ns, connection, sequence))

    def wait_ms(self, now_ns: Callable[[], int], most_ms: int) -> int:
        """Return for how long the loop may sleep: until the next answer is due, and at most so long. HOT."""
        if not self.waiting:
            return most_ms
        if self._words is not None:
            most_ms = min(most_ms, LOOK_AGAIN_MS)
        return max(0, min(most_ms, -((now_ns() - self.waiting[0][0]) // _NS_PER_MS)))

    def due(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Yield (connection id, sequence) of the answers that are held back no longer."""
        if self.is_ending or self._words is not None:
            over_ns = now_ns + 1 if self.is_ending or self._words is None else self._words.delays_over_ns
            if any(since_ns < over_ns for _, since_ns, _, _ in self.waiting):
                ended = sorted(each for each in self.waiting if each[1] < over_ns)
                self.waiting = sorted(each for each in self.waiting if each[1] >= over_ns)
                yield from (each[2:] for each in ended)
        while self.waiting and self.waiting[0][0] <= now_ns:
            yield heappop(self.waiting)[2:]
