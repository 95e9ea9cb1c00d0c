"""Rolling a log back to its committed end costs the same for a log of any size: its owner does it in one turn.

Reads of files are counted instead of time.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.indexes.transaction_index import TransactionIndex
from rotunda.broker.log.partition_log import LogWriteFailed
from rotunda.broker.log.segments.segment_scan import HEADER_CHUNK_BYTES, scan_headers, scan_markers
from rotunda.broker.records.record_writer import EndTransactionMarker, end_transaction_marker
from tests.log.log_writer import ModelLog, batch, stage
from tests.support.fakes import FakeClock, failing
from tests.support.record_batches import TIMESTAMP_MS

TRANSACTIONAL = 0x10
SMALL = LogConfig(internal_segment_bytes=400)


def opened(directory: Path, config: LogConfig | None = None) -> ModelLog:
    model = ModelLog(directory / "topic-0", config or LogConfig(), FakeClock(wall_ms=TIMESTAMP_MS))
    model.open()
    return model


def commit_fails(model: ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage over several segments, and fail the last write with ENOSPC."""
    log = model.log
    for _ in range(20):
        assert stage(log, batch(1, size=80))[0] == 0
    calls = iter(range(3))
    real = os.pwritev

    def pwritev(fd: int, chunks: Any, position: int) -> int:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, chunks, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        with pytest.raises(LogWriteFailed):
            log.commit()


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[dict[str, int]]:
    """Count the calls of these system functions."""
    counts = dict.fromkeys(names, 0)

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield counts


def test_a_log_of_very_many_segments_is_restored_with_as_few_looks_as_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    for segments in (3, 60):
        model = opened(tmp_path / f"{segments}", SMALL)
        while len(model.log.segments()) < segments:
            model.append([batch(1, size=80)])
        commit_fails(model, monkeypatch)
        with counted(monkeypatch, "stat", "listdir", "scandir", "open", "pread", "unlink") as counts:
            model.log.catch_up()
        model.check()
        looks.append(counts)
        model.append([batch(1, size=80)])
        model.check()
        model.open()
        model.check()
    assert looks[0] == looks[1]


def test_segments_that_could_not_be_removed_are_removed_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(tmp_path, SMALL)
    model.append([batch(1, size=80)])
    commit_fails(model, monkeypatch)
    log = model.log
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", failing(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
        log.catch_up()
    assert log.fault == errno.EMFILE
    assert len(list(model.directory.glob("*.log"))) > 1
    log.catch_up()
    model.check()


def test_an_index_of_very_many_aborted_transactions_is_cut_with_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(tmp_path)
    log = model.log
    for number in range(2000):
        data = batch(1, producer_id=5, producer_epoch=0, base_sequence=number, attributes=TRANSACTIONAL)
        assert stage(log, data)[0] == 0
        assert log.stage_marker(5, 0, 0, commit=False)[0] == 0
    log.commit()
    index = TransactionIndex(model.directory, 0)
    before = index.entries()
    assert len(before) == 2000
    with counted(monkeypatch, "pread") as counts:
        index.cut(log.log_end_offset)
        assert len(before) == index.file.entries
        index.cut(before[1000].last_offset)
    assert counts["pread"] < 30
    assert index.entries() == before[:1000]
    index.file.close()


@pytest.mark.parametrize("shift", range(0, 180, 7))
def test_markers_are_read_across_the_ends_of_reads(tmp_path: Path, shift: int) -> None:
    """Also a marker whose header alone was read together with the batches before it."""
    path = tmp_path / "log"
    marker = bytes(end_transaction_marker(7, 1, 3, False, TIMESTAMP_MS))
    filler = bytes(batch(1, size=HEADER_CHUNK_BYTES - 3 * len(marker) + shift))
    data = filler + marker + marker
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(scan_markers(fd, 0, len(data)))
        assert [header for header, _ in found] == [header for _, header in scan_headers(fd, 0, len(data))]
    finally:
        os.close(fd)
    assert [stated for _, stated in found] == [None, *[EndTransactionMarker(commit=False, coordinator_epoch=3)] * 2]
