"""The owner's tasks for the cleaner: each is atomic, published, and safe to repeat."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.owner_tasks import BYTES, RETAIN, SWAP
from rotunda.broker.log.segments import rolled_segments
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, segment_file
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.partitions.log_maintenance import LogMaintenance
from rotunda.broker.partitions.owned_partition import OwnedPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.peer_tasks import TASK_NAMES, TargetTasks
from rotunda.shm.tables.partitions import PartitionTable
from tests.cleaner.keyed_log import KeyedLog
from tests.log.log_writer import batch, stage
from tests.support.fakes import failing

ROW_NUMBER = 3
KEEPS_ALL = (-1, -1)
CONFIG = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=1 << 20)


class Owner:
    """A handler that owns one partition, with three rolled segments and an active one."""

    def __init__(self, directory: Path) -> None:
        self.keyed = KeyedLog(directory, CONFIG)
        for number in range(4):
            self.keyed.append([(b"k", b"%d" % number)])
            if number < 3:
                self.keyed.roll()
        self.log = self.keyed.log
        self.table = PartitionTable(memoryview(bytearray(PartitionTable.bytes_needed(8, 1))), 0, 8, 1)
        owned = OwnedPartition(self.log, ROW_NUMBER, self.table.row_writer(ROW_NUMBER))
        self.tasks = TargetTasks(0, send=lambda *_, **__: None)
        owned.publish()
        LogMaintenance({ROW_NUMBER: owned}, self.tasks)

    def do(self, task: str, payload: bytes) -> tuple[int, bytes]:
        """Run a task as from a message; return its result."""
        answers: list[tuple[int, bytes]] = []
        self.tasks.do(TASK_NAMES.index(task), payload, lambda error, answer: answers.append((error, answer)))
        (answer,) = answers
        return answer

    def retain(self, offset: int, row: int = ROW_NUMBER, retention: tuple[int, int] = KEEPS_ALL) -> tuple[int, int]:
        """Return (error, deleted bytes)."""
        error, answer = self.do("retain_log", RETAIN.pack(row, offset, *retention))
        return error, BYTES.unpack(answer)[0] if answer else -1


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "t-0")


def test_segments_below_an_offset_are_deleted_and_the_start_is_published(owner: Owner) -> None:
    size = owner.log.size_bytes
    assert owner.retain(2) == (0, size // 2)
    assert owner.table.read_start(ROW_NUMBER) == 2
    assert owner.table.log_bytes(ROW_NUMBER) == size // 2
    assert owner.table.removals(ROW_NUMBER) > 0
    assert owner.retain(2) == (0, 0)


def test_at_the_end_a_new_segment_begins(owner: Owner) -> None:
    size = owner.log.size_bytes
    assert owner.retain(4) == (0, size)
    assert owner.table.read_position(ROW_NUMBER) == (4, 4, 0)
    assert owner.table.read_start(ROW_NUMBER) == 4
    assert owner.retain(4) == (0, 0)
    owner.keyed.append([(b"k", b"on")])
    assert owner.log.log_end_offset == 5


def test_the_segment_of_the_published_end_is_never_removed(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the owner is killed during the deletions, the published end is in a file that its replacement finds."""
    removed = []

    def remove(directory: Path, base_offset: int) -> None:
        end = owner.table.read_position(ROW_NUMBER)
        assert end == (4, 4, 0)
        assert segment_file(directory, end[1], LOG_SUFFIX).exists()
        removed.append(base_offset)

    monkeypatch.setattr(rolled_segments, "doom_segment_files", remove)
    assert owner.retain(4)[0] == 0
    assert removed == [0, 1, 2, 3]


def test_a_segment_that_somebody_appends_to_stays(owner: Owner) -> None:
    """The last segment that the cleaner saw as expired is no longer the only one."""
    assert stage(owner.log, batch(keys=[b"k"]))[0] == 0
    assert owner.retain(4)[0] == 0
    assert owner.log.log_start_offset == 3
    assert owner.log.commit()
    assert owner.log.log_end_offset == 5
    assert owner.retain(4)[0] == 0
    assert owner.table.read_start(ROW_NUMBER) == 4
    assert [info.base_offset for info in owner.log.segments()] == [3]


def test_on_a_full_disk_deletions_precede_rolls(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments are expired, without space for a new one: deleting the others first frees space."""
    with monkeypatch.context() as full:
        full.setattr(LogSegment, "create", failing(OSError(errno.ENOSPC, "No space left on device")))
        error, removed_bytes = owner.retain(4)
        assert (error, removed_bytes > 0) == (0, True)
        assert owner.table.read_start(ROW_NUMBER) == 3
        assert [info.base_offset for info in owner.log.segments()] == [3]
        assert owner.log.fault == 0
        assert owner.retain(4)[0] == ErrorCode.KAFKA_STORAGE_ERROR, "nothing else can go"
    assert owner.retain(4)[0] == 0
    assert owner.table.read_start(ROW_NUMBER) == 4
    owner.keyed.append([(b"k", b"on")])
    assert owner.log.log_end_offset == 5


def test_a_swap_is_done_once(owner: Owner) -> None:
    asked: list[SegmentSwap] = []

    def ask(swap: SegmentSwap) -> bool:
        asked.append(swap)
        return not owner.do("swap_segments", SWAP.pack(ROW_NUMBER, *CONFIG.compaction) + swap.pack())[0]

    owner.keyed.clean(swap=ask)
    (swap,) = asked
    assert (swap.first_base, swap.last_base, swap.segments) == (0, 2, 3)
    assert [info.base_offset for info in owner.log.segments()] == [0, 3]
    assert owner.table.log_bytes(ROW_NUMBER) == owner.log.size_bytes
    removals = owner.table.removals(ROW_NUMBER)
    assert removals > 0
    again = owner.do("swap_segments", SWAP.pack(ROW_NUMBER, *CONFIG.compaction) + swap.pack())
    assert again == (ErrorCode.INVALID_REQUEST, b"")
    assert [record.value for record in owner.keyed.records()] == [b"2", b"3"]


def test_a_swap_of_other_segments_than_there_are_is_rejected(owner: Owner) -> None:
    """Records were deleted during the cleaner's run."""
    rejected: list[bool] = []

    def ask(swap: SegmentSwap) -> bool:
        owner.log.delete_records_before(1)
        rejected.append(owner.do("swap_segments", SWAP.pack(ROW_NUMBER, *CONFIG.compaction) + swap.pack())[0] != 0)
        return False

    owner.keyed.clean(swap=ask)
    assert rejected == [True]
    assert [info.base_offset for info in owner.log.segments()] == [1, 2, 3]


def test_a_partition_of_somebody_else(owner: Owner) -> None:
    assert owner.retain(1, row=5) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    payload = SWAP.pack(5, *CONFIG.compaction) + SegmentSwap(0, 0, 1, 1, 1).pack()
    assert owner.do("swap_segments", payload) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@pytest.mark.parametrize("changed", ["delete_retention_ms", "min_compaction_lag_ms"])
def test_a_segment_that_was_cleaned_by_other_rules_is_not_swapped_in(owner: Owner, changed: str) -> None:
    """It may lack tombstones, or records, that must be retained by now."""
    asked: list[tuple[int, bytes]] = []

    def ask(swap: SegmentSwap) -> bool:
        owner.log.update_config(replace(CONFIG, **{changed: 77}))
        asked.append(owner.do("swap_segments", SWAP.pack(ROW_NUMBER, *CONFIG.compaction) + swap.pack()))
        return False

    owner.keyed.clean(swap=ask)
    assert asked == [(ErrorCode.INVALID_CONFIG, b"")]
    assert [info.base_offset for info in owner.log.segments()] == [0, 1, 2, 3]


def test_maintenance_by_outdated_settings_is_rejected(owner: Owner) -> None:
    """The cleaner may have read the old settings: later acknowledged records are under the new ones."""
    assert owner.retain(2, retention=(1000, -1)) == (ErrorCode.INVALID_CONFIG, -1)
    asked: list[tuple[int, bytes]] = []

    def ask(swap: SegmentSwap) -> bool:
        owner.log.update_config(LogConfig(cleanup_policy=("delete",), retention_bytes=1000, retention_ms=-1))
        asked.append(owner.do("swap_segments", SWAP.pack(ROW_NUMBER, *CONFIG.compaction) + swap.pack()))
        return False

    owner.keyed.clean(swap=ask)
    assert asked == [(ErrorCode.INVALID_CONFIG, b"")]
    assert [info.base_offset for info in owner.log.segments()] == [0, 1, 2, 3]
    assert owner.retain(2) == (ErrorCode.INVALID_CONFIG, -1)
    assert owner.retain(2, retention=(1000, -1))[0] == 0
    assert [info.base_offset for info in owner.log.segments()] == [2, 3]
