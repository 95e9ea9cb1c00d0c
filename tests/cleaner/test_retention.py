"""The start of a partition's retained range: by age, by size, by its log start; and the fate of the files."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rotunda.broker.cleaner.deleted_files import LEAST_DELAY_MS, remove_doomed
from rotunda.broker.cleaner.retention import retained_from
from rotunda.broker.cleaner.segments import Segment, SegmentedLog
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.ipc.segment_file_cache import SegmentFiles
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.records.record_batch import BatchHeader
from tests.cleaner.keyed_log import KeyedLog
from tests.support.results import present

CONFIG = LogConfig(internal_segment_bytes=1 << 20, retention_ms=10_000, file_delete_delay_ms=2000)


def filled(directory: Path, config: LogConfig = CONFIG, segments: int = 4, *, step_ms: int = 1000) -> KeyedLog:
    """Return a log of segments of one batch, the last of which is appended to; each `step_ms` younger."""
    log = KeyedLog(directory, config)
    for number in range(segments):
        if number:
            log.roll()
        log.append([(b"k", b"v")])
        log.clock.advance_ms(step_ms)
    return log


def kept(log: KeyedLog) -> int:
    return retained_from(log.look(), log.config, log.clock.wall_ms())


def test_segments_go_when_their_largest_timestamp_is_too_old(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert kept(log) == 0
    log.clock.advance_ms(6000)
    assert kept(log) == 0
    log.clock.advance_ms(1)
    assert kept(log) == 1
    log.clock.advance_ms(2000)
    assert kept(log) == 3


def test_the_last_segment_goes_too_when_all_have_expired(tmp_path: Path) -> None:
    """Its owner starts a new one at the end, unless there was an append since the cleaner's check."""
    log = filled(tmp_path / "t-0")
    log.clock.advance_ms(20_000)
    assert kept(log) == 4
    assert log.log.roll()
    log.log.delete_records_before(4)
    assert log.log.log_start_offset == log.log.log_end_offset == 4
    assert [info.base_offset for info in log.log.segments()] == [4]
    assert kept(log) == 4
    assert not log.log.roll(), "it is empty"
    log.append([(b"k", b"v")])
    log.reopen()
    assert (log.log.log_start_offset, log.log.log_end_offset) == (4, 5)
    assert [record.offset for record in log.records()] == [4]


def test_the_largest_timestamp_counts_wherever_it_stands(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", CONFIG)
    log.append([(b"k", b"v"), (b"k", b"v")], timestamp_step_ms=5000)
    log.append([(b"k", b"v")])
    log.roll()
    log.append([(b"k", b"v")])
    log.clock.advance_ms(15_000)
    assert kept(log) == 0, "an older segment protects those behind it"
    log.clock.advance_ms(1)
    assert kept(log) == 4


def test_a_segment_without_timestamps_is_as_old_as_its_file(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", CONFIG)
    log.clock.wall_ms = lambda: -1  # type: ignore[method-assign]
    log.append([(b"k", b"v")], timestamp_step_ms=0)
    log.roll()
    log.append([(b"k", b"v")], timestamp_step_ms=0)
    now_ms = 1_800_000_000_000
    for base in (0, 1):
        os.utime(log.directory / f"{base:020d}.log", ns=((now_ms - 9000) * 10**6,) * 2)
    assert retained_from(log.look(), CONFIG, now_ms) == 0
    assert retained_from(log.look(), CONFIG, now_ms + 1001) == 2


def test_without_limits_everything_stays(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0", replace(CONFIG, retention_ms=-1, retention_bytes=-1))
    log.clock.advance_ms(10**12)
    assert kept(log) == 0


def test_by_size_only_what_is_not_needed_goes(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0", replace(CONFIG, retention_ms=-1))
    size = log.log.size_bytes // 4
    for allowed, expected in ((4 * size, 0), (3 * size + 1, 0), (3 * size, 1), (2 * size, 2), (size, 3), (0, 4)):
        log.config = replace(log.config, retention_bytes=allowed)
        assert kept(log) == expected, allowed


def test_a_compacted_topic_loses_only_what_is_below_its_start(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0", replace(CONFIG, cleanup_policy=("compact",), retention_bytes=1))
    log.clock.advance_ms(10**6)
    assert kept(log) == 0
    log.log.log_start_offset = 2
    assert kept(log) == 2
    assert log.log.remove_segments_below_start() > 0
    assert [info.base_offset for info in log.log.segments()] == [2, 3]
    log.config = replace(log.config, cleanup_policy=("compact", "delete"))
    assert kept(log) == 4


def test_a_reader_finishes_with_a_removed_segment(tmp_path: Path) -> None:
    """The file stays under another name until its time is over; then its room is free."""
    log = filled(tmp_path / "t-0")
    reader, files = LogReader(log.directory), SegmentFiles()
    found = present(reader.locate(1, log.end(), 1000))
    log.log.delete_records_before(3)
    reader.forget_missing()
    assert reader.locate(1, log.end(), 1000) is None
    opened = files.open(os.fsdecode(found.path), found.inode)
    assert len(os.pread(opened.fd, found.length, found.position)) == found.length > 0
    assert present(reader.locate(3, log.end(), 1000)).length
    now_ms = (log.directory / f"{1:020d}.log.deleted").stat().st_ctime_ns // 10**6
    assert 0 < present(remove_doomed(log.directory, 2000, now_ms)) <= 2000
    assert len(list(log.directory.glob("*.log.deleted"))) == 3
    assert remove_doomed(log.directory, 0, now_ms) == remove_doomed(log.directory, LEAST_DELAY_MS, now_ms)
    assert remove_doomed(log.directory, 2000, now_ms + 2100) is None
    assert not list(log.directory.glob("*.deleted"))
    files.forget_removed()


def test_doomed_files_outlive_the_owner(tmp_path: Path) -> None:
    """A replacement leaves them to the cleaner: a reader may have them open."""
    log = filled(tmp_path / "t-0")
    log.log.delete_records_before(2)
    doomed = sorted(path.name for path in log.directory.glob("*.deleted"))
    log.reopen()
    assert sorted(path.name for path in log.directory.glob("*.deleted")) == doomed != []
    assert remove_doomed(tmp_path / "nowhere-0", 1, 1) is None


def test_a_segment_that_is_young_by_its_index_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is appended to may be a gigabyte of small batches."""
    log = KeyedLog(tmp_path / "t-0", replace(CONFIG, index_interval_bytes=1))
    for _ in range(5):
        log.append([(b"k", b"v")])
        log.clock.advance_ms(1000)
    read: list[Segment] = []
    headers = SegmentedLog._headers

    def noted(self: SegmentedLog, segment: Segment, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        read.append(segment)
        return headers(self, segment, from_offset)

    monkeypatch.setattr(SegmentedLog, "_headers", noted)
    log.clock.advance_ms(5000)
    assert (kept(log), read) == (0, [])
    log.clock.advance_ms(10_000)
    assert kept(log) == 5
    assert len(read) == 1


@pytest.mark.parametrize("damage", ["a bad byte", "emptied", "missing", "another offset"])
def test_a_damaged_time_index_lets_no_segment_go_before_its_time(tmp_path: Path, damage: str) -> None:
    log = KeyedLog(tmp_path / "t-0", CONFIG)
    for _ in range(3):
        for _ in range(3):
            log.append([(b"k", b"v")])
            log.clock.advance_ms(1000)
        log.roll()
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        data = bytearray(path.read_bytes())
        if damage == "emptied":
            data.clear()
        elif data:
            data[2 if damage == "a bad byte" else -1] = 0
            data[-9] = 0
        path.unlink() if damage == "missing" else path.write_bytes(data)
    for path in (tmp_path / "t-0").glob("*.log"):
        os.utime(path, (1, 1))
    log.clock.advance_ms(3000)
    assert kept(log) == 0
    log.clock.advance_ms(1)
    assert kept(log) == 3
    log.clock.advance_ms(6000)
    assert kept(log) == 9
