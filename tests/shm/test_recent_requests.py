"""The two buffers of recent requests: readers get complete contents or nothing, after a death at any point."""

import json

import pytest

from rotunda.shm.layout import RECENT_BUFFER
from rotunda.shm.recorder_layout import REQUEST_ROW
from rotunda.shm.tables.recent_requests import BUFFER_BYTES, BYTES_NEEDED, RecentReader, RecentWriter

ROW = bytes(range(REQUEST_ROW.size))


def names(number: int) -> bytes:
    return json.dumps({"number": number}).encode()


def test_nothing_was_published():
    assert RecentReader(memoryview(bytearray(BYTES_NEEDED))).read() is None


def test_the_last_publication_is_read_through_a_read_only_map():
    view = memoryview(bytearray(BYTES_NEEDED))
    writer, reader = RecentWriter(view), RecentReader(view.toreadonly())
    for number in range(5):
        writer.publish(ROW * number, ROW * 2, names(number), 7, number)
        found = reader.read()
        assert found is not None
        assert (found.newest, found.slowest, found.names) == (ROW * number, ROW * 2, {"number": number})
        assert (found.epoch_ns, found.published_ns) == (7, number)


@pytest.mark.parametrize("published", [0, 1, 2, 3])
def test_a_writer_that_died_halfway_leaves_the_publication_before(published: int):
    """Its successor fills the unfinished buffer."""
    view = memoryview(bytearray(BYTES_NEEDED))
    writer, reader = RecentWriter(view), RecentReader(view)
    for number in range(published):
        writer.publish(ROW, ROW, names(number), 0, 0)
    sequence = RECENT_BUFFER.word("sequence")
    words = [view[at : at + RECENT_BUFFER.size].cast("q") for at in (0, BUFFER_BYTES)]
    unused = min(words, key=lambda each: each[sequence])
    unused[sequence] |= 1
    unused[RECENT_BUFFER.word("newest_rows")] = 10**9
    found = reader.read()
    assert (found.names if found else None) == ({"number": published - 1} if published else None)
    RecentWriter(view).publish(ROW, b"", names(99), 0, 0)
    found = reader.read()
    assert found is not None
    assert found.names == {"number": 99}


def test_what_does_not_fit_is_rejected():
    writer = RecentWriter(memoryview(bytearray(BYTES_NEEDED)))
    with pytest.raises(ValueError, match="do not fit"):
        writer.publish(b"", b"", bytes(BUFFER_BYTES), 0, 0)
