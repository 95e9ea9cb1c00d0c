"""The fill of a ring, read without disturbing either end. For the status page and the command line.

Counted frames are between head and tail: published and not released. Both ends move meanwhile; data below the head may
be overwritten at any moment, so frames are counted in a copy and only from the head loaded after the copy was made.
"""

from __future__ import annotations

from typing import NamedTuple

from rotunda.shm.layout import CACHE_LINE_BYTES, RING_HEADER
from rotunda.shm.rings.ring import ring_bytes
from rotunda.shm.words import words_of

_CAPACITY = RING_HEADER.word("capacity")
_TAIL = RING_HEADER.word("tail")
_HEAD = RING_HEADER.word("head")
_DATA = RING_HEADER.size


class RingFill(NamedTuple):
    """A ring's fill: bytes and frames between head and tail, and its capacity in bytes."""

    used_bytes: int
    frames: int
    capacity_bytes: int


def read_fill(view: memoryview, base: int) -> RingFill:
    """Return the fill of the ring at `base` of `view`, which may be read-only. An unmade ring has no capacity."""
    header = words_of(view, base, RING_HEADER.size)
    capacity = header[_CAPACITY]
    if capacity < CACHE_LINE_BYTES or capacity % CACHE_LINE_BYTES:
        return RingFill(0, 0, 0)
    # SYNC: the tail before the frames, the head after them; pairs with the stores of RingProducer and RingConsumer.
    tail, first = header[_TAIL], header[_HEAD]
    data = words_of(view, base + _DATA, ring_bytes(capacity) - _DATA)
    copy = _copy(data, first, tail, capacity)
    head = header[_HEAD]
    if head >= tail:
        return RingFill(0, 0, capacity)
    return RingFill(tail - head, _frames(copy, first, head, tail, capacity), capacity)


def _copy(data: memoryview, first: int, tail: int, capacity: int) -> memoryview:
    """Return a copy of the words of positions `first` to `tail`."""
    start, end = first % capacity // 8, tail % capacity // 8
    if tail <= first:
        return memoryview(b"").cast("q")
    if start < end:
        return memoryview(data[start:end].tobytes()).cast("q")
    return memoryview(data[start:].tobytes() + data[:end].tobytes()).cast("q")


def _frames(copy: memoryview, first: int, head: int, tail: int, capacity: int) -> int:
    """Return the number of frames between `head` and `tail`; `copy` begins with position `first`."""
    frames = 0
    position = head
    while position < tail:
        length = copy[(position - first) // 8]
        if length > 0:
            frames += 1
            position += (length + 7) & -8
        elif length < 0 and (position - length) % capacity == 0:
            position -= length
        else:
            # No frame begins like this: the copy is older than it seems.
            break
    return frames


class RingShare:
    """The fill of one ring as a share, at the cost of two loads."""

    __slots__ = ("_capacity", "_header")

    def __init__(self, view: memoryview, base: int) -> None:
        self._header = words_of(view, base, RING_HEADER.size)
        self._capacity: int = self._header[_CAPACITY]

    def read(self) -> float:
        """Return the share of the ring that is published and not released, 0 to 1."""
        # SYNC: the head before the tail, so that the difference is too large rather than negative.
        head = self._header[_HEAD]
        return min(1.0, (self._header[_TAIL] - head) / self._capacity)


class RingGrid:
    """The positions of the rings in their segment: requests, then responses, by processor and target; then peers.

    Targets are the handlers and the controller; peers are the targets and the cleaner.
    """

    def __init__(self, view: memoryview, processors: int, handlers: int) -> None:
        self._view = view
        self._processors = processors
        self._targets = handlers + 1
        self._ring_bytes = ring_bytes(words_of(view, 0, RING_HEADER.size)[_CAPACITY])

    def request(self, processor: int, target: int) -> RingFill:
        """Return the fill of the ring with a processor's requests to a target."""
        return self._data_ring(processor * self._targets + target)

    def response(self, processor: int, target: int) -> RingFill:
        """Return the fill of the ring with a target's responses to a processor."""
        return self._data_ring((self._processors + processor) * self._targets + target)

    def share_of_requests(self, processor: int, target: int) -> RingShare:
        """Return a RingShare of the ring with a processor's requests to a target."""
        return RingShare(self._view, (processor * self._targets + target) * self._ring_bytes)

    def share_of_responses(self, processor: int, target: int) -> RingShare:
        """Return a RingShare of the ring with a target's responses to a processor."""
        return RingShare(self._view, ((self._processors + processor) * self._targets + target) * self._ring_bytes)

    def peer(self, source: int, destination: int) -> RingFill:
        """Return the fill of the ring between two peers."""
        start = 2 * self._processors * self._targets * self._ring_bytes
        size = ring_bytes(words_of(self._view, start, RING_HEADER.size)[_CAPACITY])
        return read_fill(self._view, start + (source * (self._targets + 1) + destination) * size)

    def _data_ring(self, index: int) -> RingFill:
        return read_fill(self._view, index * self._ring_bytes)
