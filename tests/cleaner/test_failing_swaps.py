"""The disk fails at a step of a swap: the owner still has the right files, or accepts no further batch."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.log.recovery import SegmentInfo
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.cleaner.keyed_log import KeyedLog
from tests.cleaner.test_killed_between_steps import check_log, filled, prepare
from tests.log.log_writer import stage
from tests.support.record_batches import record_batch

STEPS = ("replace", "link", "unlink")


class Disk:
    """Fails steps, counted from 1."""

    def __init__(self, rejected: range) -> None:
        self.refused = rejected
        self.step = 0

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.step += 1
            if self.step in self.refused:
                raise OSError(errno.EIO, "injected")
            return real(*args, **kwargs)

        return call


@contextmanager
def failing(rejected: range, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Fail some of the steps that run inside the block."""
    disk = Disk(rejected)
    with monkeypatch.context() as patched:
        for name in STEPS:
            patched.setattr(os, name, disk.wrap(getattr(os, name)))
        yield disk


def keyed(text: bytes) -> memoryview:
    """Return a batch of one record."""
    return memoryview(bytearray(record_batch([text], keys=[text])))


def segment_files(log: KeyedLog) -> list[SegmentInfo]:
    """Return the contents of the directory."""
    return [SegmentInfo(int(path.stem), path.stat().st_size) for path in sorted(log.directory.glob("*.log"))]


def test_a_step_that_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = set()
    for step in range(1, 100):
        log = filled(tmp_path / f"{step}" / "t-0")
        before = log.records()
        swap = prepare(log)
        assert stage(log.log, keyed(b"staged"))[0] == 0
        with failing(range(step, step + 1), monkeypatch) as disk:
            outcomes.add(log.log.swap_segments(swap))
        if disk.step < step:
            break
        assert log.log.segments() == segment_files(log)
        assert log.log.commit(), "what others have staged stands"
        assert log.records()[-1].value == b"staged"
        log.written.append(log.records()[-1])
        check_log(log, [*before, log.records()[-1]])
        log.roll()
        log.clean()
        log.clean()
        assert [record.value for record in log.records()] == [b"25", b"26", b"y", b"staged"]
    assert step > 8
    assert outcomes == {False, True}


def test_a_disk_that_fails_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged files are written, further batches are rejected, and the next opening completes the swap."""
    for step in range(1, 100):
        log = filled(tmp_path / f"{step}" / "t-0")
        before = log.records()
        swap = prepare(log)
        assert stage(log.log, keyed(b"staged"))[0] == 0
        with failing(range(step, 1000), monkeypatch) as disk:
            try:
                done = log.log.swap_segments(swap)
            except OSError:
                done = None
        assert log.log.commit()
        rejected = stage(log.log, keyed(b"more"))
        assert rejected[0] == (ErrorCode.KAFKA_STORAGE_ERROR if done is None else 0)
        log.log.discard_staged()
        log.reopen()
        records = log.records()
        assert records[-1].value == b"staged"
        log.written.append(records[-1])
        check_log(log, [*before, records[-1]])
        if disk.step < step:
            break
    assert step > 8
