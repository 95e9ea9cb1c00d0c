"""Small files of a partition, damaged, truncated, emptied, replaced or missing: intact records stay readable."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import PartitionLog, PartitionName
from rotunda.broker.steps import finished
from tests.log.log_writer import batch, end_of, log_bytes, read_everything, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS
from tests.support.results import present

NAME = PartitionName("t", 0, bytes(range(16)))
SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)
RECORDS = 60


def flip(path: Path) -> None:
    """Change one bit of a random byte."""
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage\n" * 20),
    "missing": Path.unlink,
}

#: In the data directory and in that of the partition.
FILES = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "checkpoint-checksums",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
)
FILES_OF_SEGMENTS = ("t-0/*.snapshot", "t-0/*.index", "t-0/*.timeindex")

CASES = [(pattern, damage) for pattern in (*FILES, *FILES_OF_SEGMENTS) for damage in DAMAGES]
CASES += [(pattern, "a directory") for pattern in (*FILES, *FILES_OF_SEGMENTS)]


@pytest.mark.parametrize(("pattern", "damage"), CASES)
def test_no_record_is_lost_by_a_damaged_small_file(tmp_path: Path, pattern: str, damage: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    random.seed(seed)
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    manager = LogManager(tmp_path, clock, 86_400_000)
    log = manager.open(NAME, SMALL, None)
    for _ in range(RECORDS):
        stage(log, batch(1, size=40))
        log.commit()
    epoch = log.leader_epoch
    manager.close()
    content = log_bytes(tmp_path / "t-0")
    paths = sorted(tmp_path.glob(pattern))
    for path in paths:
        if path.stat().st_size:
            {**DAMAGES, "a directory": replace_by_a_directory}[damage](path)
    again = LogManager(tmp_path, clock, 86_400_000)
    log = again.open(NAME, SMALL, None)
    assert (log.log_start_offset, log.log_end_offset, log.fault) == (0, RECORDS, 0)
    assert log.leader_epoch > epoch, "epochs never go back"
    assert log_bytes(tmp_path / "t-0") == content
    assert read_everything(tmp_path / "t-0", end_of(log)) == content
    for offset in range(RECORDS):
        assert read_everything(tmp_path / "t-0", end_of(log), offset, 100)
    again.close()


def open_and_fill(directory: Path, records: int = RECORDS) -> tuple[LogManager, PartitionLog]:
    manager = LogManager(directory, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    log = manager.open(NAME, SMALL, None)
    for number in range(log.log_end_offset, records):
        stage(log, batch(1, size=40, timestamp_ms=TIMESTAMP_MS - 10_000 + 10 * number))
        log.commit()
    return manager, log


def cut_by_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-12])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


#: An offset index without some entries only costs time, and a missing one is rebuilt without a log line.
NOTICED = [("timeindex", damage) for damage in (*list(DAMAGES.values())[1:], cut_by_an_entry, zero)]
NOTICED += [("index", DAMAGES["truncated"]), ("index", DAMAGES["garbage"]), ("index", zero)]


@pytest.mark.parametrize(("suffix", "damage"), NOTICED)
def test_a_damaged_index_of_a_durable_segment_is_built_again_with_a_warning(
    tmp_path: Path, suffix: str, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    manager, _ = open_and_fill(tmp_path)
    manager.close()
    paths = sorted((tmp_path / "t-0").glob(f"*.{suffix}"))[:-1]
    content = {path: path.read_bytes() for path in paths}
    assert len(content) > 5
    for path in paths:
        damage(path)
    open_and_fill(tmp_path)[0].close()
    assert {path: path.read_bytes() for path in paths} == content
    assert all(f"{path} is damaged" in caplog.text for path in paths)


@pytest.mark.parametrize("damage", [flip, zero, *DAMAGES.values()])
def test_times_are_found_whatever_has_happened_to_time_indexes(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    """Also in the active segment, and for records appended later."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    random.seed(seed)
    manager, _ = open_and_fill(tmp_path)
    manager.close()
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        if path.stat().st_size:
            damage(path)
    manager, log = open_and_fill(tmp_path, 2 * RECORDS)
    reader = LogReader(tmp_path / "t-0")
    for offset in range(2 * RECORDS):
        asked = reader.offset_for_timestamp(TIMESTAMP_MS - 10_000 + 10 * offset, 0, end_of(log))
        assert present(finished(asked)).offset == offset
    assert present(finished(reader.max_timestamp(0, end_of(log)))).offset == 2 * RECORDS - 1
    manager.close()


def test_a_rolled_segment_that_was_emptied_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    manager = LogManager(tmp_path, clock, 86_400_000)
    log = manager.open(NAME, SMALL, None)
    for _ in range(RECORDS):
        stage(log, batch(1, size=40))
        log.commit()
    manager.close()
    first, *others = sorted((tmp_path / "t-0").glob("*.log"))
    rest = b"".join(path.read_bytes() for path in others)
    first.write_bytes(b"")
    log = LogManager(tmp_path, clock, 86_400_000).open(NAME, SMALL, None)
    assert f"{first} is empty" in caplog.text
    assert log.log_end_offset == RECORDS
    assert read_everything(tmp_path / "t-0", end_of(log)) == rest
