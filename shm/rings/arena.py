"""The allocator of a processor's arena. Private to one processor: shared memory needs no words for it.

A large request is received straight into a block; the block is free again when the request's frame is released, which
the processor sees by the ring's head. Blocks are multiples of 4 KiB, allocated first-fit from low addresses, so that a
quiet arena touches the same pages again.
"""

from __future__ import annotations

from bisect import bisect_left

BLOCK_BYTES = 4096


class ArenaAllocator:
    """First-fit allocator over `size` bytes (rounded down to whole blocks)."""

    __slots__ = ("_lengths", "_starts", "_used", "free_bytes", "size")

    def __init__(self, size: int) -> None:
        self.size = size // BLOCK_BYTES * BLOCK_BYTES
        self.free_bytes = self.size
        self._starts = [0] if self.size else []  # free extents by address, never adjacent
        self._lengths = [self.size] if self.size else []
        self._used: dict[int, int] = {}

    def allocate(self, n_bytes: int) -> int:
        """Return the offset of a block of at least `n_bytes`, or -1 when no free extent is large enough."""
        needed = _whole_blocks(n_bytes)
        for index, length in enumerate(self._lengths):
            if length >= needed:
                start = self._starts[index]
                self._allocate(index, needed)
                return start
        return -1

    def _allocate(self, index: int, needed: int) -> None:
        """Allocate the first `needed` bytes of a free extent."""
        start, length = self._starts[index], self._lengths[index]
        if length > needed:
            self._starts[index] = start + needed
            self._lengths[index] = length - needed
        else:
            del self._starts[index], self._lengths[index]
        self._used[start] = needed
        self.free_bytes -= needed

    def free(self, offset: int) -> None:
        """Free the block that starts at `offset`; ValueError when no allocated block starts there."""
        length = self._used.pop(offset, 0)
        if not length:
            raise ValueError(f"arena block at {offset}: not taken")
        self.free_bytes += length
        index = bisect_left(self._starts, offset)
        if index < len(self._starts) and self._starts[index] == offset + length:
            length += self._lengths[index]
            del self._starts[index], self._lengths[index]
        if index and self._starts[index - 1] + self._lengths[index - 1] == offset:
            self._lengths[index - 1] += length
            return
        self._starts.insert(index, offset)
        self._lengths.insert(index, length)


def _whole_blocks(n_bytes: int) -> int:
    """Return `n_bytes` rounded up to blocks, at least one, so that offsets stay unique."""
    return max(1, -(-n_bytes // BLOCK_BYTES)) * BLOCK_BYTES
