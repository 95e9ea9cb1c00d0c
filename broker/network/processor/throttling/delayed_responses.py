"""The delayed responses, by due time: to clients that fail repeatedly, or delayed by a test.

Runs in processor processes. They wait with their channel, as early responses do, and end with it; all later responses
of the channel wait for them. When a test ends its delays (`broker.faults`), the responses to requests that a target has
read before are due, including those that arrive later; all are due when the broker stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rotunda.shm.faults import FaultWords

_NS_PER_MS: Final = 1_000_000

#: The most responses delayed for failures, for all connections of a processor.
MOST: Final = 100_000

#: While responses are delayed for a test, the loop checks this often whether the test has ended its delays.
LOOK_AGAIN_MS: Final = 20


class DelayedResponses:
    """The delayed responses of one processor, by due time."""

    __slots__ = ("_words", "is_ending", "waiting")

    def __init__(self) -> None:
        #: (due time, time of the request's reading by its target, connection id, sequence), by due time. HOT: usually
        #: empty.
        self.waiting: list[tuple[int, int, int, int]] = []
        self._words: FaultWords | None = None
        #: Whether the processor is stopping, and delays nothing any more.
        self.is_ending = False

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def has_room(self) -> bool:
        """Whether one more response may be delayed."""
        return len(self.waiting) < MOST and not self.is_ending

    def follow(self, words: FaultWords | None) -> None:
        """Read the end of delays from these words."""
        self._words = words

    def add(self, connection: int, sequence: int, dequeued_ns: int, due_ns: int) -> None:
        """Delay the response to a request that its target read at ``dequeued_ns``, until it is due."""
        heappush(self.waiting, (due_ns, dequeued_ns, connection, sequence))

    def wait_ms(self, now_ns: Callable[[], int], most_ms: int) -> int:
        """Return how long the loop may sleep: until the next response is due, at most ``most_ms``. HOT."""
        if not self.waiting:
            return most_ms
        if self._words is not None:
            most_ms = min(most_ms, LOOK_AGAIN_MS)
        return max(0, min(most_ms, -((now_ns() - self.waiting[0][0]) // _NS_PER_MS)))

    def due(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Yield (connection id, sequence) of the responses now due."""
        if self.is_ending or self._words is not None:
            over_ns = now_ns + 1 if self.is_ending or self._words is None else self._words.delays_over_ns
            if any(since_ns < over_ns for _, since_ns, _, _ in self.waiting):
                ended = sorted(each for each in self.waiting if each[1] < over_ns)
                self.waiting = sorted(each for each in self.waiting if each[1] >= over_ns)
                yield from (each[2:] for each in ended)
        while self.waiting and self.waiting[0][0] <= now_ns:
            yield heappop(self.waiting)[2:]
