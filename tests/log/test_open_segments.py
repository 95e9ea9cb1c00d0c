"""Fewer descriptors than segments: idle ones are closed, written data is not lost, and the log continues."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.disk_room import LEAST_DESCRIPTORS, has_room
from rotunda.broker.log.flusher import FlushJob
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.partition_log import LogWriteFailed, PartitionName
from rotunda.broker.log.segments.open_segments import (
    FILES_A_SEGMENT,
    LEAST_SEGMENTS,
    OTHERS,
    OpenSegments,
    most_segments,
)
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.log.log_writer import ModelLog, batch, published_end, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS

SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)
MOST = 3


class Segment:
    """A segment with an open flag and an end position."""

    def __init__(self) -> None:
        self.position = 0
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> OpenSegments:
    """Return the pool that closes all segments created from here on."""
    pool = OpenSegments(MOST)
    for module in ("log.segments.log_segment", "log.indexes.index_file", "log.committed_log", "log.flush_state"):
        monkeypatch.setattr(f"rotunda.broker.{module}.OPEN_SEGMENTS", pool)
    return pool


def logs_in(directory: Path, count: int, config: LogConfig = SMALL) -> list[ModelLog]:
    models = [ModelLog(directory / f"topic-{number}", config) for number in range(count)]
    for model in models:
        model.open()
    return models


@contextmanager
def no_descriptors(monkeypatch: pytest.MonkeyPatch, left: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Fail to open or list any file unless `left` returns True."""

    def exhausted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if not left():
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return function(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "listdir", "scandir"):
            patch.setattr(os, name, exhausted(getattr(os, name)))
        yield


def test_the_limit_leaves_room_for_other_descriptors() -> None:
    assert most_segments(20_000) == (20_000 - OTHERS) // FILES_A_SEGMENT
    assert most_segments(700) == 350 // FILES_A_SEGMENT
    assert most_segments(10) == LEAST_SEGMENTS
    assert most_segments(-1) > 1_000_000


def test_recently_written_segments_stay_open() -> None:
    pool = OpenSegments(MOST)
    idle, busy, other, fourth, fifth = (Segment() for _ in range(5))
    for segment in (busy, idle, other):
        pool.admit(segment)
    busy.position = other.position = 100
    pool.admit(fourth)
    assert not idle.is_open
    assert busy.is_open
    assert other.is_open
    # No segment is idle: the least recently used one is closed.
    busy.position = other.position = fourth.position = 200
    pool.admit(fifth)
    assert [each.is_open for each in (busy, other, fourth, fifth)].count(False) == 1
    assert fifth.is_open
    assert (len(pool), pool.closed) == (MOST, 2)


@pytest.mark.parametrize("seed", range(3))
def test_more_partitions_than_descriptors_are_written_and_read(tmp_path: Path, pool: OpenSegments, seed: int) -> None:
    chance = Random(seed)
    models = logs_in(tmp_path, 4 * MOST)
    for _ in range(300):
        model = chance.choice(models)
        model.append([batch(chance.randint(1, 3), 40) for _ in range(chance.randint(1, 4))])
        assert len(pool) <= MOST, seed
        if chance.random() < 0.1:
            model.open()
    assert pool.closed > MOST
    for model in models:
        model.check()


def test_idle_segments_give_their_descriptors_up_when_there_are_none(
    tmp_path: Path, pool: OpenSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, model = logs_in(tmp_path, 2)
    idle.append([batch()])
    with no_descriptors(monkeypatch, left=lambda: pool.closed > 0):
        model.append([batch()])
    assert pool.closed == 1
    for each in (idle, model):
        each.append([batch()])
        each.check()


@pytest.mark.parametrize("batches", [1, 40], ids=["a write", "a roll"])
def test_without_descriptors_a_log_rejects_records_until_there_are_some(
    tmp_path: Path, pool: OpenSegments, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """A failed restore for the same reason takes it offline only until descriptors are available."""
    [model] = logs_in(tmp_path, 1)
    model.append([batch(), batch()])
    log = model.log
    before = log.segments()
    log._segment.close()
    with no_descriptors(monkeypatch):
        for _ in range(batches):
            stage(log, batch(1, 40))
        with pytest.raises(LogWriteFailed) as failure:
            log.commit()
        assert failure.value.errno == log.fault == errno.EMFILE
        assert stage(log, batch())[0] == ErrorCode.KAFKA_STORAGE_ERROR
        log.catch_up()
        assert log.fault == errno.EMFILE
    assert log.segments() == before
    log.catch_up()
    assert log.fault == 0
    assert published_end(log) == model.published
    model.append([batch(1, 40) for _ in range(30)])
    model.check()
    assert len(pool) == 1


def test_a_log_that_is_offline_for_good_is_not_tried_again(tmp_path: Path) -> None:
    """Data that the system failed to write to disk is not written again, for any cause."""
    [model] = logs_in(tmp_path, 1)
    model.append([batch()])
    model.log.end_flush(model.log.begin_flush(), OSError(errno.ENOSPC, "full"))
    assert model.log.fault == errno.EIO
    model.log.catch_up()
    assert model.log.fault == errno.EIO


def test_a_flush_without_descriptors_is_done_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    manager = LogManager(tmp_path, clock, 86_400_000)
    log = manager.open(PartitionName("a", 0, bytes(16)), LogConfig(flush_ms=1), None)
    stage(log, batch(4))
    log.commit()
    clock.advance_ms(2)

    def exhausted(job: FlushJob) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(job.directory))

    with monkeypatch.context() as patch:
        patch.setattr(FlushJob, "run", exhausted)
        manager.tick()
        manager.wait_for_flushes()
    assert (log.fault, log.recovery_point) == (0, 0)
    assert log.flush_due_ns() is not None
    clock.advance_ms(2000)
    manager.tick()
    manager.wait_for_flushes()
    assert log.recovery_point == 4


def test_a_file_that_replaced_the_segment_is_not_written_to(tmp_path: Path) -> None:
    [model] = logs_in(tmp_path, 1)
    model.append([batch()])
    log = model.log
    path = log._segment.path
    log._segment.close()
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)
    stage(log, batch())
    with pytest.raises(LogWriteFailed, match="replaced"):
        log.commit()
    assert log.fault == errno.ENOENT
    assert path.stat().st_size == log.position


def test_there_is_no_room_without_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_room(tmp_path)
    made: list[int] = []

    def few(fd: int) -> int:
        if len(made) > LEAST_DESCRIPTORS // 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(fd)
        return real(fd)

    real = os.dup
    monkeypatch.setattr(os, "dup", few)
    before = len(os.listdir("/proc/self/fd"))
    assert not has_room(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
