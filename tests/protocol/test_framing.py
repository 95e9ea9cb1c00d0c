"""Framing: any cut of the stream gives the same frames, and no size is believed before it is judged."""

import pytest

from broker.errors import InvalidReceive
from broker.protocol.framing import NEED_SIZE, Framer, frame_end
from tests.support.feeds import feeds, random_seed

FRAMES = [b"a", b"", b"hello there", b"\x00" * 300, b"z"]
STREAM = b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)


def test_c01_frames_come_out_the_same_however_the_stream_is_cut() -> None:
    for name, chunks in feeds(STREAM, random_seed()):
        framer = Framer(1000)
        seen = [frame for chunk in chunks for frame in framer.feed(chunk)]
        assert seen == FRAMES, name
        assert framer.pending_bytes == 0, name


def test_c05_what_is_left_of_a_cut_stream_is_known() -> None:
    framer = Framer(1000)
    assert framer.feed(STREAM[:-1]) == FRAMES[:-1]
    assert framer.pending_bytes == 4


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_c02_size_out_of_range_is_refused(size: int) -> None:
    data = size.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidReceive, match=str(size)):
        Framer(1000).feed(data)
    with pytest.raises(InvalidReceive):
        frame_end(data, 0, 4, 1000)


def test_c02_size_at_the_limit_is_accepted() -> None:
    assert Framer(1000).feed((1000).to_bytes(4, "big") + bytes(1000)) == [bytes(1000)]


def test_c04_declared_size_sets_nothing_aside() -> None:
    framer = Framer(2**30)
    assert framer.feed((2**30).to_bytes(4, "big") + b"x") == []
    assert framer.pending_bytes == 5


def test_frame_end_says_where_a_frame_ends_before_it_is_all_there() -> None:
    buffer = b"??\x00\x00\x00\x05ab"
    assert frame_end(buffer, 2, 5, 100) == NEED_SIZE
    assert frame_end(buffer, 2, 6, 100) == 11
    assert frame_end(buffer, 2, 8, 100) == 11
