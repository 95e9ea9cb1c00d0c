"""Shared words: aligned and within the segment, or rejected."""

import pytest

from rotunda.shm.words import words_of


def test_words_alias_the_view() -> None:
    view = memoryview(bytearray(64))
    words = words_of(view, 16, 16)
    words[1] = -2
    assert view[24:32] == (-2).to_bytes(8, "little", signed=True)
    assert len(words) == 2


@pytest.mark.parametrize(("base", "size"), [(4, 8), (0, 12), (-8, 8), (64, 8), (0, 72)])
def test_unaligned_or_outside_is_rejected(base: int, size: int) -> None:
    with pytest.raises(ValueError, match="words at"):
        words_of(memoryview(bytearray(64)), base, size)
