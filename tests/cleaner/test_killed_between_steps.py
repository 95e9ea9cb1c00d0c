"""Owner or cleaner killed between any two system calls of a compaction: the log is whole, the next round does it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import Checkpointed
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from tests.cleaner.keyed_log import KeyedLog, Written
from tests.log.killing import AFTER, BEFORE, PARTLY, killed_at
from tests.log.log_writer import check_indexes
from tests.support.sampling import Sampling

CONFIG = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=700, index_interval_bytes=100)
SEGMENTS = 3


def filled(directory: Path) -> KeyedLog:
    """Return a log of a few segments that compaction makes one of."""
    log = KeyedLog(directory, CONFIG)
    for number in range(9 * SEGMENTS):
        log.append([(b"%d" % (number % 2), b"%d" % number)], producer_id=5)
    log.append([(b"gone", b"x")], producer_id=6, transactional=True)
    log.end_transaction(6, commit=False)
    log.roll()
    log.append([(b"behind", b"y")])
    # The output fits into one.
    log.config = replace(CONFIG, internal_segment_bytes=1 << 20)
    return log


def prepare(log: KeyedLog) -> SegmentSwap:
    """Run the cleaner up to its request; return the request."""
    asked: list[SegmentSwap] = []

    def reject(swap: SegmentSwap) -> bool:
        asked.append(swap)
        return False

    log.clean(swap=reject)
    return asked[0]


@pytest.mark.parametrize("resume", [None, Checkpointed()], ids=["replaced", "restarted"])
@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_owner_killed_while_it_swaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, moment: int, resume: Checkpointed | None
) -> None:
    outcomes = set()
    for step in sampling.one_in(2, range(1, 1000)):
        log = filled(tmp_path / f"{step}" / "t-0")
        before = log.records()
        swap = prepare(log)
        assert swap.segments > 1
        with killed_at(step, moment, monkeypatch) as killer:
            assert log.log.swap_segments(swap)
        log.reopen(resume)
        after = log.records()
        outcomes.add(len(after))
        check_log(log, before)
        # Sent again, as by a request that a replacement finds in its ring.
        again = log.log.swap_segments(swap)
        assert not (again and len(after) < len(before))
        check_log(log, before)
        log.clean()
        log.clean()
        check_log(log, before)
        assert [record.value for record in log.records()] == [b"25", b"26", b"y"]
        if killer.step < step:
            break
    assert step > 8
    assert len(outcomes) == 2, "some kills come before the decision and some after"


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_owner_killed_again_while_it_completes_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, moment: int
) -> None:
    for first in (5, 9, 13):
        for step in sampling.one_in(3, range(1, 1000)):
            log = filled(tmp_path / f"{first}-{step}" / "t-0")
            before = log.records()
            swap = prepare(log)
            with killed_at(first, AFTER, monkeypatch):
                log.log.swap_segments(swap)
            with killed_at(step, moment, monkeypatch) as killer:
                log.reopen()
            log.reopen()
            check_log(log, before)
            if killer.step < step:
                break
        assert step > 5


@pytest.mark.parametrize("moment", [BEFORE, AFTER, PARTLY])
def test_cleaner_killed_while_it_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, moment: int
) -> None:
    for step in sampling.one_in(3, range(1, 1000)):
        log = filled(tmp_path / f"{step}" / "t-0")
        before = log.records()
        with killed_at(step, moment, monkeypatch) as killer:
            log.clean(swap=lambda _: False)
        if killer.step < step:
            break
        # The next cleaner, before and after the owner was replaced too.
        if step % 6 < 3:
            log.reopen()
        check_log(log, before)
        log.clean()
        log.clean()
        check_log(log, before)
        assert [record.value for record in log.records()] == [b"25", b"26", b"y"]
        assert not list(log.directory.glob("*.cleaned"))
        assert not list(log.directory.glob("*.swap"))
    assert step > 10


def check_log(log: KeyedLog, before: list[Written]) -> None:
    """Check that the files hold only records of before, each once, and all that must stay."""
    records = log.records()
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    assert set(records) <= set(before)
    newest = {record.key: record for record in before if record.key != b"gone"}
    assert set(newest.values()) <= set(records)
    assert log.log.log_end_offset == log.written[-1].offset + 1
    assert log.log.size_bytes == sum(path.stat().st_size for path in log.directory.glob("*.log"))
    assert not list(log.directory.glob("*.swap"))
    known = {entry.producer_id: entry.next_sequence for entry in log.log.active_producers()}
    assert known == {5: 9 * SEGMENTS, 6: 1}
    check_indexes(log.directory, log.log)
