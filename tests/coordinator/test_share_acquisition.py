"""Records that a share group acquires from a file that cannot be read to its end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rotunda.broker.coordinator.share_state.acquisition import Readable, ShareReader
from rotunda.broker.log.log_reader import FileSlice
from rotunda.broker.partitions.share.share_window import AcquireTerms, DeliveryTerms, ShareWindow
from tests.support.record_batches import record_batch

TERMS = DeliveryTerms(lock_ns=1000, count_limit=5, most_in_flight=200)
BATCHES = 100


@pytest.mark.parametrize("readable", [0, 1])
def test_batches_before_an_unreadable_one_are_acquired_and_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: int
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"".join(record_batch([b"value"], base_offset=at) for at in range(BATCHES)))
    window = ShareWindow(0)
    found = FileSlice(os.fsencode(path), path.stat().st_ino, 0, path.stat().st_size, BATCHES)
    reads = 0

    def pread(fd: int, size: int, position: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads > readable:
            raise OSError(errno.EIO, "no such sector")
        return real(fd, size, position)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)
    reader = ShareReader(SimpleNamespace(table=None))  # type: ignore[arg-type]
    limits = AcquireTerms("a", BATCHES, 0)
    if not readable:
        with pytest.raises(OSError, match="sector"):
            reader.acquire(Readable(window, found, ()), limits, TERMS, 0)
        assert window.in_flight == 0
        return
    acquired = reader.acquire(Readable(window, found, ()), limits, TERMS, 0)
    assert acquired is not None
    assert 0 < window.in_flight < BATCHES
    assert window.expire(TERMS.lock_ns, TERMS) == window.in_flight
