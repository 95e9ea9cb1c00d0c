"""The ring: variable-size frames from one producing process to one consuming process. HOT.

A frame is one header word (layout.FRAME_HEADER) and its payload; a frame never wraps, padding fills the end of the data
instead. Positions are total byte counts. The producer writes frames beyond the shared tail, then stores the tail; the
consumer reads up to the tail and stores the head when it no longer needs the frames. So a producer that dies leaves
only whole published frames, and a consumer's replacement reads every unreleased frame again. Full and empty are return
values: nothing here waits. Ring the consumer's bell after `publish`.
"""

from __future__ import annotations

from rotunda.shm.layout import CACHE_LINE_BYTES, FRAME_HEADER, RING_HEADER
from rotunda.shm.words import words_of

_HEADER_BYTES = FRAME_HEADER.size
_CAPACITY = RING_HEADER.word("capacity")
TAIL = _TAIL = RING_HEADER.word("tail")
GENERATION, GENERATION_AT = RING_HEADER.word("reader_generation"), RING_HEADER.word("generation_at")
HEAD = _HEAD = RING_HEADER.word("head")
_DATA = RING_HEADER.size
_DATA_WORD = RING_HEADER.size // 8


class RingCorrupt(Exception):  # noqa: N818  named for what is the case
    """Invalid length in the ring: some process wrote out of bounds. The text has the position and the value."""


def ring_bytes(capacity: int) -> int:
    """Return the bytes of shared memory for a ring with `capacity` bytes of data; a multiple of 64."""
    if capacity < CACHE_LINE_BYTES or capacity % CACHE_LINE_BYTES:
        raise ValueError(f"ring capacity {capacity} is not a positive multiple of {CACHE_LINE_BYTES}")
    return _DATA + capacity


def initialise(view: memoryview, base: int, capacity: int) -> None:
    """Make an empty ring at `base` of `view`. The supervisor does this before it forks either end."""
    words = words_of(view, base, ring_bytes(capacity))
    words[_CAPACITY] = capacity
    words[_TAIL] = words[GENERATION] = words[GENERATION_AT] = 0
    words[_HEAD] = 0


def _open(view: memoryview, base: int) -> tuple[memoryview, int]:
    header = words_of(view, base, RING_HEADER.size)
    capacity = header[_CAPACITY]
    if capacity < CACHE_LINE_BYTES or capacity % CACHE_LINE_BYTES:
        raise RingCorrupt(f"ring at {base}: capacity {capacity}")
    return words_of(view, base, ring_bytes(capacity)), capacity


class RingProducer:
    """The writing end, one at a time. It continues at the shared tail, so it may replace a dead one."""

    __slots__ = ("_index", "_lap", "_payload", "_until", "_words", "capacity", "max_payload")

    def __init__(self, view: memoryview, base: int) -> None:
        self._words, self.capacity = _open(view, base)
        self.max_payload = self.capacity // 2 - _HEADER_BYTES  # so that an empty ring always has room
        tail: int = self._words[_TAIL]
        self._index = tail % self.capacity
        self._lap = tail - self._index  # position of the first byte of the data, on this lap
        self._payload = base + _DATA + _HEADER_BYTES
        self._look()

    @property
    def position(self) -> int:
        """The private tail: ahead of the shared one until `publish`."""
        return self._lap + self._index

    def claim(self, n_bytes: int) -> int:
        """Start a frame of `n_bytes`; return the offset of its payload in the view, or -1 when full.

        The consumer does not see the frame before `publish`. ValueError beyond `max_payload`.
        """
        index = self._index
        end = index + ((n_bytes + 15) & -8)
        if end <= self._until and 0 <= n_bytes <= self.max_payload:
            self._words[_DATA_WORD + (index >> 3)] = n_bytes + 8
            self._index = end
            return self._payload + index
        return self._claim_slowly(n_bytes)

    def _claim_slowly(self, n_bytes: int) -> int:
        """Load the head again, and wrap around if the frame does not fit before the end of the data."""
        if not 0 <= n_bytes <= self.max_payload:
            raise ValueError(f"a frame of {n_bytes} bytes; this ring takes 0 to {self.max_payload}")
        index, frame_bytes = self._index, (n_bytes + _HEADER_BYTES + 7) & -8
        padding = self.capacity - index if index + frame_bytes > self.capacity else 0
        if self.position + padding + frame_bytes > self._look():
            return -1
        if padding:
            self._words[_DATA_WORD + (index >> 3)] = -padding
            self._lap += self.capacity
            index = 0
        self._words[_DATA_WORD + (index >> 3)] = n_bytes + _HEADER_BYTES
        self._index = index + frame_bytes
        if self._index == self.capacity:
            self._lap += self.capacity
            self._index = 0
        self._look()
        return self._payload + index

    def _look(self) -> int:
        """Load the head. Return the position up to which there is room."""
        # SYNC: pairs with the store in RingConsumer.release_to: below the head nothing is read any more.
        free_end: int = self._words[_HEAD] + self.capacity
        #: Frames that end at or before this index need neither another load of the head nor a wrap.
        self._until = min(free_end - self._lap, self.capacity - 8)
        return free_end

    def publish(self) -> None:
        """Make every claimed frame visible to the consumer. Once per batch; the caller then rings the bell."""
        # SYNC: the frames before the tail; pairs with the load of the tail in RingConsumer.read.
        self._words[_TAIL] = self._lap + self._index

    def consumed(self) -> int:
        """Return the shared head: resources of frames that end at or before it are free again."""
        head: int = self._words[_HEAD]
        return head

    def close(self) -> None:
        """Release the shared memory; the object is unusable afterwards."""
        self._words.release()


class RingConsumer:
    """The reading end, one at a time. It starts at the shared head: unreleased frames are read again."""

    __slots__ = ("_index", "_payload", "_words", "capacity", "cursor", "words")

    def __init__(self, view: memoryview, base: int) -> None:
        self._words, self.capacity = _open(view, base)
        #: For readers of many rings: there is something to read while `words[TAIL]` is not `cursor`.
        self.words = self._words
        self.cursor: int = self._words[_HEAD]  # private; everything before it has been read
        self._index = self.cursor % self.capacity
        self._payload = base + _DATA + _HEADER_BYTES

    def read(self, limit: int) -> list[tuple[int, int, int]]:
        """Return up to `limit` newly published frames as (payload offset, payload bytes, end position).

        The offset is one in the view. The payload stays there until `release_to` the end position or beyond.
        RingCorrupt for an invalid length.
        """
        words = self._words
        # SYNC: the tail before the frames; pairs with the store in RingProducer.publish.
        tail = words[_TAIL]
        cursor = self.cursor
        frames: list[tuple[int, int, int]] = []
        if cursor == tail:
            return frames
        index, payload, capacity = self._index, self._payload, self.capacity
        while cursor < tail and limit:
            length = words[_DATA_WORD + (index >> 3)]
            if length >= 8:
                frame_bytes = (length + 7) & -8
                cursor += frame_bytes
                frames.append((payload + index, length - 8, cursor))
                limit -= 1
            else:
                frame_bytes = -length
                cursor += frame_bytes
                if frame_bytes & 7 or index + frame_bytes != capacity or not frame_bytes:
                    break
            index += frame_bytes
            if index >= capacity:
                if index > capacity:
                    break
                index = 0
        else:
            if cursor <= tail:
                self.cursor = cursor
                self._index = index
                return frames
        raise RingCorrupt(f"frame that ends at position {cursor}, tail {tail}, capacity {capacity}: length {length}")

    def release_to(self, position: int) -> None:
        """Return the memory of every frame that ends at or before `position` to the producer."""
        # SYNC: after the last read of those frames; pairs with the load in RingProducer._look.
        self._words[_HEAD] = position

    def release(self) -> None:
        """Release everything read so far."""
        self._words[_HEAD] = self.cursor

    def pending(self) -> int:
        """Return the bytes published and not yet read, headers and padding included."""
        unread: int = self._words[_TAIL] - self.cursor
        return unread

    def close(self) -> None:
        """Release the shared memory; the object is unusable afterwards."""
        self._words.release()
