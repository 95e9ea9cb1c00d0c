"""Files removed by hand after a clean close of the partition: reported, and no other file is deleted."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.checkpoints import CLEANER_FILE, LOG_START_OFFSET_FILE, write_offsets
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import PartitionLog, PartitionName
from rotunda.broker.records.record_batch import batch_headers
from tests.log.log_writer import batch, end_of, log_bytes, read_everything, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS

NAME = PartitionName("t", 0, bytes(range(16)))
SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)
COMPACTED = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100, cleanup_policy=("compact",))
RECORDS = 60


def manager_of(directory: Path, *, is_clean_start: bool = True) -> LogManager:
    manager = LogManager(directory, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    manager.is_clean_start = is_clean_start
    return manager


def append(log: PartitionLog, records: int) -> None:
    for _ in range(records):
        stage(log, batch(1, size=40))
        log.commit()


def fill(directory: Path) -> list[Path]:
    """Write a log of several segments, close it cleanly, and return its log files."""
    manager = manager_of(directory)
    append(manager.open(NAME, SMALL, None), RECORDS)
    manager.close()
    paths = sorted((directory / "t-0").glob("*.log"))
    assert len(paths) > 4
    return paths


def base(path: Path) -> int:
    return int(path.name.partition(".")[0])


def remove_segment(path: Path) -> None:
    for each in path.parent.glob(f"{path.stem}.*"):
        each.unlink()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def offsets_read(log: PartitionLog, start: int) -> list[int]:
    content = read_everything(log.directory, end_of(log), start)
    return [header.base_offset for _, header in batch_headers(content)]


def remove_log_files(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


def remove_contents(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


@pytest.mark.parametrize("remove", [remove_log_files, shutil.rmtree, remove_contents])
def test_a_partition_without_its_log_continues_at_its_end(
    tmp_path: Path, remove: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    remove(tmp_path / "t-0")
    manager = manager_of(tmp_path)
    log = manager.open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset) == (RECORDS, RECORDS)
    [line] = errors(caplog)
    assert "t-0" in line
    assert f"offsets 0 to {RECORDS - 1} are lost" in line
    assert "stop the broker" in line
    append(log, 3)
    assert offsets_read(log, RECORDS) == [RECORDS, RECORDS + 1, RECORDS + 2]
    manager.close()
    caplog.clear()
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset, errors(caplog)) == (RECORDS, RECORDS + 3, [])


@pytest.mark.parametrize("remove", [Path.unlink, remove_segment])
def test_a_log_without_its_first_segment_begins_at_the_second(
    tmp_path: Path, remove: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    paths = fill(tmp_path)
    remove(paths[0])
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset) == (base(paths[1]), RECORDS)
    [line] = errors(caplog)
    assert "t-0" in line
    assert f"offsets 0 to {base(paths[1]) - 1} are lost" in line
    assert all(path.exists() for path in paths[1:])
    assert offsets_read(log, log.log_start_offset) == list(range(log.log_start_offset, RECORDS))


@pytest.mark.parametrize("remove", [Path.unlink, remove_segment])
@pytest.mark.parametrize("number", [1, 2])
def test_a_log_without_a_middle_segment_serves_the_others(
    tmp_path: Path, number: int, remove: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    paths = fill(tmp_path)
    remove(paths[number])
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset) == (0, RECORDS)
    [line] = errors(caplog)
    first, last = base(paths[number]), base(paths[number + 1]) - 1
    assert f"offsets {first} to {last} are lost" in line
    assert "t-0" in line
    expected = [offset for offset in range(RECORDS) if not first <= offset <= last]
    assert offsets_read(log, 0) == expected
    assert offsets_read(log, first + 1) == list(range(last + 1, RECORDS))


def test_a_log_without_its_last_segment_uses_no_offset_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = fill(tmp_path)
    remove_segment(paths[-1])
    manager = manager_of(tmp_path)
    log = manager.open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset) == (0, RECORDS)
    [line] = errors(caplog)
    assert f"offsets {base(paths[-1])} to {RECORDS - 1} are lost" in line
    append(log, 2)
    assert offsets_read(log, 0) == [*range(base(paths[-1])), RECORDS, RECORDS + 1]
    manager.close()
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert offsets_read(log, 0) == [*range(base(paths[-1])), RECORDS, RECORDS + 1]


def test_gaps_of_a_compacted_log_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whether it is compacted now, or was before its policy changed."""
    paths = fill(tmp_path)
    remove_segment(paths[2])
    manager = manager_of(tmp_path)
    manager.open(NAME, COMPACTED, None)
    manager.close()
    write_offsets(tmp_path / CLEANER_FILE, {("t", 0): 30})
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset, errors(caplog)) == (0, RECORDS, [])


@pytest.mark.parametrize("is_clean_start", [False, True])
def test_a_log_that_ends_below_its_start_is_set_aside(
    tmp_path: Path, is_clean_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted records do not reappear, and the next offset has never been used."""
    paths = fill(tmp_path)
    content = log_bytes(tmp_path / "t-0")
    (tmp_path / "checkpoint-checksums").unlink()
    write_offsets(tmp_path / LOG_START_OFFSET_FILE, {("t", 0): 1000})
    log = manager_of(tmp_path, is_clean_start=is_clean_start).open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert b"".join(path.with_name(path.name + ".damaged-1").read_bytes() for path in paths) == content
    [line] = errors(caplog)
    assert "t-0" in line
    assert f"ends at offset {RECORDS}" in line
    assert "1000" in line
    append(log, 1)
    assert offsets_read(log, 1000) == [1000]


def test_leftovers_of_a_crash_are_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Retention may have removed segments after the last checkpoint."""
    paths = fill(tmp_path)
    remove_segment(paths[0])
    log = manager_of(tmp_path, is_clean_start=False).open(NAME, SMALL, None)
    assert (log.log_start_offset, errors(caplog)) == (base(paths[1]), [])


SWAPPED = ((".log.swap", ".log.cleaned"), (".log.swap", ".index.cleaned"), (".log.swap", ".timeindex.cleaned"))


@pytest.mark.parametrize(("swap", "cleaned"), SWAPPED)
@pytest.mark.parametrize("cleaned_number", [0, 1])
def test_a_swap_next_to_a_cleaned_file_is_dropped(tmp_path: Path, swap: str, cleaned: str, cleaned_number: int) -> None:
    """As in Kafka: its base offset is that of the cleaned file, or larger."""
    paths = fill(tmp_path)
    content = log_bytes(tmp_path / "t-0")
    directory = tmp_path / "t-0"
    (directory / f"{paths[1].stem}{swap}").write_bytes(paths[1].read_bytes()[:200])
    (directory / f"{paths[1].stem}.index.swap").write_bytes(b"")
    (directory / f"{paths[cleaned_number].stem}{cleaned}").write_bytes(paths[1].read_bytes()[:100])
    log = manager_of(tmp_path).open(NAME, SMALL, None)
    assert log_bytes(directory) == content
    assert offsets_read(log, 0) == list(range(RECORDS))
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned")]


def test_a_swap_below_a_cleaned_file_is_completed(tmp_path: Path) -> None:
    paths = fill(tmp_path)
    first = paths[0].read_bytes()
    size = next(header.size_bytes for _, header in batch_headers(first))
    paths[0].with_suffix(".log.swap").write_bytes(first[:size])
    paths[1].with_suffix(".log.cleaned").write_bytes(b"")
    log = manager_of(tmp_path, is_clean_start=False).open(NAME, SMALL, None)
    assert offsets_read(log, 0)[:2] == [0, 1 if len(first) == size else base(paths[1])]
    assert LogReader(log.directory).locate(0, end_of(log), 1) is not None
