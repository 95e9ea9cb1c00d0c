"""A large batch is written after the end of the log before it is staged; concurrent appends are not delayed.

Sizes are reduced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import AppendHold, Checkpointed, LogWriteFailed, PartitionLog
from rotunda.broker.log.segments import log_segment
from rotunda.broker.log.validation import append_limits
from rotunda.broker.log.validation.append_limits import STORAGE_ERROR, TO_BE_VALIDATED, Admitted
from rotunda.broker.records.record_batch import unpack_header
from rotunda.broker.steps import Steps
from tests.log.log_writer import NAME, ModelLog, batch, log_bytes, stage, stored
from tests.support.fakes import FakeClock, failing
from tests.support.record_batches import TIMESTAMP_MS

AT_ONCE, PIECE = 1000, 300
LARGE = 2000


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_limits, "WRITTEN_AT_ONCE_BYTES", AT_ONCE)
    monkeypatch.setattr(log_segment, "_AHEAD_PIECE_BYTES", PIECE)


class Written:
    """A log with one batch, and a large batch being written after it."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.model = ModelLog(tmp_path / "topic-0", LogConfig(**settings), FakeClock(wall_ms=TIMESTAMP_MS))
        self.log = self.model.open()
        self.model.append([batch(3)])
        self.rolled: list[int] = []
        self.data = batch(2, LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
        self.header = unpack_header(self.data)
        assert self.log.stage(self.data, self.header) == TO_BE_VALIDATED
        self.admitted = Admitted(self.data, is_copy=False)
        self.log.begin_ahead(self.data)
        self.steps: Steps[None] = self.log.write_ahead(self.data, lambda: self.rolled.append(self.log.segment_base))

    def stage(self) -> tuple[int, int, int]:
        """Stage the large batch if possible, and accept other batches again."""
        result = self.log.stage(self.data, self.header, validated=self.admitted)
        self.log.end_ahead()
        return result

    def commit(self) -> None:
        """Commit it with the other staged batches; it is in the log once, and nothing is lost."""
        base_offset = unpack_header(self.data)[0]
        self.log.commit()
        self.model.acknowledged.append(stored(self.data, base_offset, self.log.leader_epoch))
        self.model.check()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Return a list that collects the bytes written by each later call of a function of `os`."""
    real: Callable[..., int] = getattr(os, name)
    sizes: list[int] = []

    def noted(*args: Any) -> int:
        sizes.append(real(*args))
        return sizes[-1]

    monkeypatch.setattr(os, name, noted)
    return sizes


def test_a_large_batch_is_written_in_pieces_and_then_its_header(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = written.log.log_end_offset, written.log.position
    ahead, committed = calls(monkeypatch, "pwrite"), calls(monkeypatch, "pwritev")
    assert len(list(written.steps)) == len(ahead) - 1 == len(written.data) // PIECE
    assert max(ahead) <= PIECE
    assert (written.log.log_end_offset, written.log.position) == end
    assert written.stage() == (0, 3, -1)
    written.commit()
    assert committed == [61]


def test_batches_staged_after_it_are_written_too(written: Written) -> None:
    list(written.steps)
    written.stage()
    following = batch(1)
    assert stage(written.log, following) == (0, 5, -1)
    base_offset = unpack_header(written.data)[0]
    written.log.commit()
    for data, offset in ((written.data, base_offset), (following, 5)):
        written.model.acknowledged.append(stored(data, offset, written.log.leader_epoch))
    written.model.check()


def test_meanwhile_batches_of_clients_wait_and_are_handled_later(written: Written) -> None:
    next(written.steps)
    small = batch(1)
    assert written.log.stage(small, unpack_header(small)) == TO_BE_VALIDATED
    written.log.update_config(LogConfig(retention_ms=1))
    assert written.log.stage(small, unpack_header(small)) == TO_BE_VALIDATED
    written.steps.close()
    written.log.end_ahead()
    assert written.log.stage(small, unpack_header(small)) == (0, 3, -1)


@pytest.mark.parametrize("steps", range(8))
def test_batches_of_this_process_do_not_wait(written: Written, steps: int) -> None:
    """It is stored at the position of the large one, which is then written again after it."""
    for _ in range(steps):
        next(written.steps)
    own = batch(1)
    assert written.log.stage(own, unpack_header(own), is_own=True) == (0, 3, -1)
    assert written.log.stage_marker(9, 0, 0, commit=True)[0] == 0
    written.log.commit()
    list(written.steps)
    assert written.stage() == (0, 5, -1)
    written.log.commit()
    content = log_bytes(written.model.directory)
    assert content[-len(written.data) :] == stored(written.data, 5, written.log.leader_epoch)
    assert len(content) == written.log.position


def test_the_batch_that_this_process_stages_first_is_stored_first(written: Written) -> None:
    list(written.steps)
    own = batch(1)
    assert written.log.stage(own, unpack_header(own), is_own=True) == (0, 3, -1)
    assert written.stage() == (0, 4, -1)
    written.model.acknowledged.append(stored(own, 3, written.log.leader_epoch))
    written.commit()


def test_one_that_is_first_each_time_does_not_keep_it_for_ever(written: Written) -> None:
    offset = 3
    for _ in written.steps:
        own = batch(1)
        assert written.log.stage(own, unpack_header(own), is_own=True) == (0, offset, -1)
        written.log.commit()
        written.model.acknowledged.append(stored(own, offset, written.log.leader_epoch))
        offset += 1
    assert written.stage() == (0, offset, -1)
    written.commit()


def test_it_is_written_in_a_new_segment_if_it_does_not_fit(tmp_path: Path) -> None:
    written = Written(tmp_path, internal_segment_bytes=4100)
    list(written.steps)
    assert written.rolled == [3]
    assert written.stage() == (0, 3, -1)
    written.commit()


def test_a_roll_that_is_staged_meanwhile(tmp_path: Path) -> None:
    """The next segment does not exist before the commit."""
    written = Written(tmp_path, internal_segment_bytes=4250)
    next(written.steps)
    own = batch(1, 4150)
    assert written.log.stage(own, unpack_header(own), is_own=True) == (0, 3, -1)
    assert not list(written.steps)
    assert written.stage() == (0, 4, -1)
    written.model.acknowledged.append(stored(own, 3, written.log.leader_epoch))
    written.commit()


def test_the_next_one_does_not_overwrite_a_staged_one(written: Written) -> None:
    list(written.steps)
    written.stage()
    other = batch(2, LARGE + 5)
    for _ in written.log.write_ahead(other, lambda: None):
        pass
    written.log.commit()
    written.log.end_ahead()
    written.commit()


def test_a_roll_meanwhile(written: Written) -> None:
    """For example for the cleaner, when a segment is too old."""
    next(written.steps)
    assert written.log.roll()
    list(written.steps)
    assert written.stage() == (0, 3, -1)
    written.commit()


def test_one_that_is_rejected_in_the_end_leaves_nothing(written: Written) -> None:
    list(written.steps)
    header = (*written.header[:11], 5, written.header[12])
    size = (written.model.directory / f"{0:020d}.log").stat().st_size
    again = batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    assert written.log.stage(again, unpack_header(again), is_own=True) == (0, 3, -1)
    written.log.commit()
    written.model.acknowledged.append(stored(again, 3, written.log.leader_epoch))
    assert written.log.stage(written.data, header, validated=written.admitted) == (45, -1, -1)
    written.log.end_ahead()
    assert (written.model.directory / f"{0:020d}.log").stat().st_size < size
    written.model.check()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_ahead_is_rejected(written: Written, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """With a full disk the commit does no further harm; a broken disk is not written again."""
    next(written.steps)
    fails = failing(OSError(number, os.strerror(number)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        patch.setattr(os, "pwritev", fails)
        assert not list(written.steps)
        if number == errno.EIO:
            assert written.stage() == STORAGE_ERROR
            assert not written.log.commit()
        else:
            assert written.stage() == (0, 3, -1)
            with pytest.raises(LogWriteFailed):
                written.log.commit()
            assert written.stage() == STORAGE_ERROR
    written.log.catch_up()
    assert bool(written.log.fault) == (number == errno.EIO)
    if not written.log.fault:
        written.model.check()
        assert stage(written.log, batch(1)) == (0, 3, -1)


def test_a_held_log_rejects_the_batch(written: Written) -> None:
    next(written.steps)
    written.log.hold(AppendHold.CLIENTS)
    assert not list(written.steps)
    assert written.stage() == STORAGE_ERROR
    written.model.check()


@pytest.mark.parametrize("steps", range(9))
def test_a_start_of_the_broker_finds_nothing_of_it_before_its_commit(tmp_path: Path, steps: int) -> None:
    """A batch has no offset while it is written ahead: its note marks a batch that is not appended."""
    written = Written(tmp_path)
    written.data[:8] = b"\xff" * 8
    for _ in range(steps):
        next(written.steps, None)
    log = PartitionLog.open(written.model.directory, NAME, LogConfig(), FakeClock(), Checkpointed())
    assert log.log_end_offset == 3
    assert log_bytes(written.model.directory) == b"".join(written.model.acknowledged)


def test_with_the_brokers_time_its_copy_is_written(tmp_path: Path) -> None:
    model = ModelLog(
        tmp_path / "topic-0", LogConfig(message_timestamp_type="LogAppendTime"), FakeClock(wall_ms=TIMESTAMP_MS + 5)
    )
    log = model.open()
    data = batch(2, LARGE)
    assert stage(log, data) == (0, 0, TIMESTAMP_MS + 5)
    log.commit()
    content = log_bytes(model.directory)
    assert len(content) == len(data) == log.position
    assert unpack_header(content)[8] == TIMESTAMP_MS + 5
    assert content[61:] == bytes(data[61:])


def test_a_log_that_is_closed_meanwhile_ends_where_it_did(written: Written) -> None:
    """The owner of the steps may drop them later, when the files belong to another log."""
    next(written.steps)
    written.log.close()
    content = log_bytes(written.model.directory)
    assert content == b"".join(written.model.acknowledged)
    written.model.open()
    written.model.append([batch(1)])
    written.steps.close()
    written.model.check()
