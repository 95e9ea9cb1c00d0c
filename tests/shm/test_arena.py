"""The arena allocator: first fit, whole blocks, coalescing; random use against a plain set of blocks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rotunda.shm.rings.arena import BLOCK_BYTES, ArenaAllocator


def test_low_addresses_first_and_whole_blocks() -> None:
    arena = ArenaAllocator(10 * BLOCK_BYTES)
    assert arena.allocate(1) == 0
    assert arena.allocate(BLOCK_BYTES + 1) == BLOCK_BYTES
    assert arena.allocate(0) == 3 * BLOCK_BYTES
    arena.free(0)
    assert arena.allocate(BLOCK_BYTES) == 0
    assert arena.free_bytes == 6 * BLOCK_BYTES


def test_no_block_is_a_return_value() -> None:
    arena = ArenaAllocator(2 * BLOCK_BYTES + 100)
    assert arena.size == 2 * BLOCK_BYTES
    assert arena.allocate(2 * BLOCK_BYTES + 1) == -1
    assert arena.allocate(2 * BLOCK_BYTES) == 0
    assert arena.allocate(1) == -1
    assert arena.free_bytes == 0
    assert ArenaAllocator(100).allocate(1) == -1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_freed_neighbours_become_one(order: tuple[int, ...]) -> None:
    arena = ArenaAllocator(3 * BLOCK_BYTES)
    blocks = [arena.allocate(BLOCK_BYTES) for _ in range(3)]
    for index in order:
        arena.free(blocks[index])
    assert arena.allocate(3 * BLOCK_BYTES) == 0


def test_freeing_what_is_not_taken_is_misuse() -> None:
    arena = ArenaAllocator(3 * BLOCK_BYTES)
    arena.allocate(2 * BLOCK_BYTES)
    for offset in (BLOCK_BYTES, 2 * BLOCK_BYTES):
        with pytest.raises(ValueError, match=str(offset)):
            arena.free(offset)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5 * BLOCK_BYTES)), max_size=100))
def test_any_use_keeps_blocks_apart_and_loses_none(steps: list[tuple[bool, int]]) -> None:
    total = 16
    arena = ArenaAllocator(total * BLOCK_BYTES)
    held: dict[int, set[int]] = {}
    for receive, number in steps:
        used = set().union(*held.values())
        if receive:
            blocks = max(1, -(-number // BLOCK_BYTES))
            free = [first for first in range(total - blocks + 1) if not used & set(range(first, first + blocks))]
            offset = arena.allocate(number)
            assert offset == (free[0] * BLOCK_BYTES if free else -1)
            if free:
                held[offset] = set(range(free[0], free[0] + blocks))
        elif held:
            offset = sorted(held)[number % len(held)]
            arena.free(offset)
            del held[offset]
        assert arena.free_bytes == (total - sum(map(len, held.values()))) * BLOCK_BYTES
