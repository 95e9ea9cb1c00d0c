"""The two index files: Kafka's bytes, lookups, and truncation."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.log.indexes.offset_index import OffsetIndex
from rotunda.broker.log.indexes.time_index import TimeIndex

BASE = 1000


def offset_index(tmp_path: Path, entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(tmp_path, BASE, writable=True)
    for last_offset, position in entries:
        index.stage(last_offset, position)
    index.file.write_pending()
    return index


def test_bytes_of_the_offset_index(tmp_path: Path) -> None:
    """Relative offset and position, four bytes each, big endian."""
    index = offset_index(tmp_path, [(1005, 4200), (1260, 65536)])
    assert index.file.path.name == "00000000000000001000.index"
    assert index.file.path.read_bytes().hex(" ", 4) == "00000005 00001068 00000104 00010000"


def test_bytes_of_the_time_index(tmp_path: Path) -> None:
    """Timestamp, eight bytes, and relative offset, four bytes, big endian; only larger timestamps enter."""
    index = TimeIndex(tmp_path, BASE, writable=True)
    for timestamp, offset in ((1_700_000_000_000, 1005), (1_700_000_000_000, 1009), (1_600_000_000_000, 1012)):
        index.maybe_stage(timestamp, offset)
    index.maybe_stage(1_700_000_000_001, 1020)
    index.file.write_pending()
    assert index.file.path.read_bytes().hex(" ", 4) == "0000018b cfe56800 00000005 0000018b cfe56801 00000014"


def test_an_empty_or_missing_index_sends_to_the_start(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path, BASE, writable=False)
    assert (index.lookup(1005), index.lookup_position(7), index.last()) == (0, 0, None)
    times = TimeIndex(tmp_path, BASE, writable=False)
    assert (times.floor(5), times.last(), times.last_below(9999)) == (None, (-1, BASE), (-1, BASE))


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40),
    probe=st.integers(0, 2500),
    end_position=st.integers(0, 120_000),
)
def test_lookup_and_cut_against_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], probe: int, end_position: int
) -> None:
    entries, offset, position = [], BASE, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    index = offset_index(tmp_path_factory.mktemp("index"), entries)
    probe += BASE
    assert index.lookup(probe) == max((at for last, at in entries if last <= probe), default=0)
    assert index.lookup_position(end_position) == max((at for _, at in entries if at <= end_position), default=0)
    index.cut(probe, end_position)
    kept = [entry for entry in entries if entry[0] < probe and entry[1] < end_position]
    assert index.file.entries == len(kept)
    assert index.last() == (kept[-1] if kept else None)
    assert index.file.path.stat().st_size == 8 * len(kept)
    index.file.close()


def test_a_torn_entry_is_not_one(tmp_path: Path) -> None:
    index = offset_index(tmp_path, [(1005, 10), (1010, 20)])
    index.file.close()
    with open(index.file.path, "ab") as file:
        file.write(b"\0\0\0")
    again = OffsetIndex(tmp_path, BASE, writable=True)
    assert again.last() == (1010, 20)
    again.stage(1015, 30)
    again.file.write_pending()
    assert OffsetIndex(tmp_path, BASE, writable=False).last() == (1015, 30)


def test_a_reader_survives_a_cut_under_it(tmp_path: Path) -> None:
    index = offset_index(tmp_path, [(1000 + i, 10 * i) for i in range(1, 100)])
    reader = OffsetIndex(tmp_path, BASE, writable=False)
    index.file.truncate(3)
    assert reader.lookup(1002) == 20
    assert reader.lookup(1090) == 30


def test_a_time_is_found_at_or_before_its_offset(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path, BASE, writable=True)
    for timestamp, offset in ((100, 1005), (200, 1010), (300, 1020)):
        index.maybe_stage(timestamp, offset)
    index.file.write_pending()
    assert [index.floor(ts) for ts in (99, 100, 199, 200, 301)] == [
        None,
        (100, 1005),
        (100, 1005),
        (200, 1010),
        (300, 1020),
    ]
    assert index.last_below(1020) == (200, 1010)
    index.cut(1010)
    assert index.last() == (100, 1005)
    index.maybe_stage(150, 1011)
    index.file.write_pending()
    assert index.last() == (150, 1011)
