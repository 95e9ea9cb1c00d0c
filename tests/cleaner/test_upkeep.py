"""Which partition has its turn, and what becomes of one with which something is wrong."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.cleaner import compaction
from broker.cleaner.cleaned_segment import CleanedSegment
from broker.cleaner.upkeep import Upkeep
from broker.log.segment_swap import SegmentSwap
from broker.log.upkeep_tasks import ROW
from broker.topic_config import LogConfig
from shm.partitions import STATE_OPEN, PartitionTable
from tests.cleaner.keyed_log import KeyedLog
from tests.support.fakes import FakeClock

CONFIG = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=700, min_cleanable_dirty_ratio=0)


class Partitions:
    """The partitions of one topic, the first of them the dirtiest, and their cleaner's work."""

    def __init__(self, data_dir: Path, count: int) -> None:
        self.clock = FakeClock()
        self.logs = [KeyedLog(data_dir / f"t-{index}", CONFIG, self.clock) for index in range(count)]
        table = PartitionTable(memoryview(bytearray(PartitionTable.bytes_needed(8, 1))), 0, 8, 1)
        for row, keyed in enumerate(self.logs):
            for number in range(40 - 10 * row):
                keyed.append([(b"%d" % (number % 2), b"%d" % number)])
            log = keyed.log
            ends = (log.log_end_offset, log.segment_base, log.position)
            table.row_writer(row).publish(*ends, log.log_start_offset, log.last_stable_offset, log.size_bytes)
            table.set_state(row, STATE_OPEN)
        rows = [SimpleNamespace(index=row, row=row, owner=0) for row in range(count)]
        settings = SimpleNamespace(
            data_dir=data_dir, log_cleaner_dedupe_buffer_size=1 << 20, producer_id_expiration_ms=1000
        )
        metadata = SimpleNamespace(
            broker_config=settings,
            topics=lambda: [SimpleNamespace(name="t", partitions=rows)],
            log_config=lambda _: CONFIG,
        )
        self.upkeep = Upkeep(metadata, table, self.clock, self._ask, lambda _: None)  # type: ignore[arg-type]

    def _ask(self, owner: int, task: str, payload: bytes) -> tuple[int, bytes]:
        assert (owner, task) == (0, "swap_segments")
        (row,) = ROW.unpack_from(payload)
        return int(not self.logs[row].log.swap_segments(SegmentSwap.unpack(payload[ROW.size :]))), b""

    def is_compacted(self, index: int) -> bool:
        """Whether a round has been over a partition."""
        return ("t", index) in self.upkeep._checkpoints


def test_a_full_disk_keeps_nobody_else_from_being_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the partition has its turn again once all others have had theirs."""
    partitions = Partitions(tmp_path, 2)

    class FullDisk(CleanedSegment):
        def finish(self, aborted: object, modified_ns: int) -> None:
            if self._directory.name == "t-0":
                raise OSError(errno.ENOSPC, "injected")
            super().finish(aborted, modified_ns)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "CleanedSegment", FullDisk)
        assert not partitions.upkeep.compact_dirtiest()
        assert partitions.upkeep.compact_dirtiest()
        assert not partitions.upkeep.compact_dirtiest()
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    assert partitions.upkeep.compact_dirtiest()
    assert partitions.is_compacted(0)


def test_an_owner_that_cannot_follow_keeps_nobody_else_from_being_compacted(tmp_path: Path) -> None:
    """Its log may be offline."""
    partitions = Partitions(tmp_path, 2)
    partitions.logs[0].log._refuse_batches()
    assert not partitions.upkeep.compact_dirtiest()
    assert partitions.upkeep.compact_dirtiest()
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]


def test_a_damaged_partition_is_left_alone(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, 2)
    file = min((tmp_path / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    assert not partitions.upkeep.compact_dirtiest()
    assert partitions.upkeep.compact_dirtiest()
    assert not partitions.upkeep.compact_dirtiest()
    assert not partitions.upkeep.compact_dirtiest()
    assert partitions.upkeep.uncleanable == {("t", 0)}
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]
