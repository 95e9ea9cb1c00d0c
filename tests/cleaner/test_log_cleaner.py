"""The order of partitions in the log cleaner, and its handling of faulty ones."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rotunda.broker.cleaner import compaction
from rotunda.broker.cleaner.clean_offsets import CleanOffsets
from rotunda.broker.cleaner.cleaned_segment import CleanedSegment
from rotunda.broker.cleaner.log_cleaner import LogCleaner
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log import checkpoints
from rotunda.broker.log.owner_tasks import SWAP
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.partitions import STATE_OPEN, PartitionTable
from tests.cleaner.keyed_log import KeyedLog
from tests.support.fakes import FakeClock

INVALID_CONFIG = int(ErrorCode.INVALID_CONFIG)
FIRST, LATER = b"1" * 16, b"2" * 16
CONFIG = LogConfig(cleanup_policy=("compact",), internal_segment_bytes=700, min_cleanable_dirty_ratio=0)


class Partitions:
    """The partitions of one topic, the first of them the dirtiest, and their cleaner's work."""

    def __init__(self, data_dir: Path, count: int, topic_id: bytes = FIRST) -> None:
        self.topic_id = topic_id
        self.deleted: list[tuple[SimpleNamespace, SimpleNamespace]] = []
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
            data_dir=data_dir,
            log_cleaner_dedupe_buffer_size=1 << 20,
            producer_id_expiration_ms=1000,
            log_cleaner_enable=True,
        )
        self.config = CONFIG
        #: Called with the bytes that were read or written.
        self.pause: Callable[[int], None] = lambda _: None
        topic = SimpleNamespace(name="t", topic_id=topic_id, partitions=rows)
        self.settings = settings
        metadata = SimpleNamespace(
            broker_config=settings,
            topics=lambda: [topic],
            topic_by_id=lambda _: topic,
            refresh=lambda: SimpleNamespace(deleted=self.deleted),
            log_config=lambda _: self.config,
        )
        self.ask = self._ask
        self.log_cleaner = LogCleaner(
            metadata,  # type: ignore[arg-type]
            table,
            self.clock,
            lambda *task: self.ask(*task),  # noqa: PLW0108 - tests replace both
            lambda size: self.pause(size),  # noqa: PLW0108
        )

    def _ask(self, owner: int, task: str, payload: bytes) -> tuple[int, bytes]:
        assert (owner, task) == (0, "swap_segments")
        row, *rules = SWAP.unpack_from(payload)
        if tuple(rules) != self.config.compaction:
            return INVALID_CONFIG, b""
        return int(not self.logs[row].log.swap_segments(SegmentSwap.unpack(payload[SWAP.size :]))), b""

    def is_compacted(self, index: int) -> bool:
        """Whether a round has been over a partition."""
        return bool(self.log_cleaner._clean_offsets.of(("t", index), self.topic_id))


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
        assert not partitions.log_cleaner.compact_dirtiest()
        assert partitions.log_cleaner.compact_dirtiest()
        assert not partitions.log_cleaner.compact_dirtiest()
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    assert partitions.log_cleaner.compact_dirtiest()
    assert partitions.is_compacted(0)


def test_an_owner_that_cannot_follow_keeps_nobody_else_from_being_compacted(tmp_path: Path) -> None:
    """Its log may be offline."""
    partitions = Partitions(tmp_path, 2)
    partitions.logs[0].log.reject_everything()
    assert not partitions.log_cleaner.compact_dirtiest()
    assert partitions.log_cleaner.compact_dirtiest()
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_a_partition_without_batches_is_left_alone(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, 2)
    flip(min((tmp_path / "t-0").glob("*.log")), 16)  # the magic of the first batch
    assert not partitions.log_cleaner.compact_dirtiest()
    assert partitions.log_cleaner.compact_dirtiest()
    assert not partitions.log_cleaner.compact_dirtiest()
    assert not partitions.log_cleaner.compact_dirtiest()
    assert partitions.log_cleaner.uncleanable == {("t", 0)}
    assert [partitions.is_compacted(index) for index in (0, 1)] == [False, True]


def test_a_damaged_batch_is_named_once_and_its_partition_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = Partitions(tmp_path, 1)
    flip(min((tmp_path / "t-0").glob("*.log")), 70)
    assert partitions.log_cleaner.compact_dirtiest()
    assert not partitions.log_cleaner.uncleanable
    assert len(partitions.logs[0].batches()) > 1
    partitions.log_cleaner._clean_offsets.forget([("t", 0)])
    assert partitions.log_cleaner.compact_dirtiest()
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("t-0: compaction left out 1 batch that cannot be read")
    assert line.endswith("the first at offset 0: its checksum is wrong")


def test_a_cleaner_continues_from_where_the_one_before_it_has_come(tmp_path: Path) -> None:
    before = Partitions(tmp_path, 1)
    assert before.log_cleaner.compact_dirtiest()
    found = CleanOffsets(tmp_path)
    assert found.of(("t", 0), FIRST) == before.log_cleaner._clean_offsets.of(("t", 0), FIRST)
    assert found.of(("t", 0), FIRST) is not None


def test_a_partition_is_in_the_checkpoint_before_its_first_segments_are_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that finds no record for an offset then knows why; without an entry nothing is exchanged."""
    partitions = Partitions(tmp_path, 1)
    ask = partitions.ask
    found: list[dict[tuple[str, int], int]] = []

    def ask_and_read(owner: int, task: str, payload: bytes) -> tuple[int, bytes]:
        found.append(checkpoints.read_offsets(tmp_path / checkpoints.CLEANER_FILE))
        return ask(owner, task, payload)

    def replace_none(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "injected", str(path))

    partitions.ask = ask_and_read
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "replace_file", replace_none)
        assert not partitions.log_cleaner.compact_dirtiest()
    assert found == []
    assert not partitions.log_cleaner.compact_dirtiest(), "the round that failed is postponed"
    assert partitions.log_cleaner.compact_dirtiest()
    assert found[0] == {("t", 0): 0}
    assert partitions.is_compacted(0)


def test_what_was_clean_of_a_deleted_topic_is_dirty_in_its_successor(tmp_path: Path) -> None:
    """Though the deletion was not seen: no log has two records of one key."""
    assert Partitions(tmp_path, 1).log_cleaner.compact_dirtiest()
    shutil.rmtree(tmp_path / "t-0")
    successor = Partitions(tmp_path, 1, LATER)
    assert successor.log_cleaner.compact_dirtiest()
    [log] = successor.logs
    active = log.look().active.base_offset
    keys = [record.key for record in log.records() if record.offset < active]
    assert len(keys) == len(set(keys))


def test_a_deleted_topic_leaves_the_checkpoint_at_once(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, 1)
    assert partitions.log_cleaner.compact_dirtiest()
    partitions.deleted = [(SimpleNamespace(name="t"), SimpleNamespace(index=0))]
    partitions.log_cleaner.refresh()
    assert not partitions.is_compacted(0)
    assert checkpoints.read_offsets(tmp_path / checkpoints.CLEANER_FILE) == {}


@pytest.mark.parametrize("written", [0, 1])
def test_a_later_topic_inherits_nothing_from_a_checkpoint_that_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """One file of the two is new, or none: the process was killed, or the disk full, between them."""
    CleanOffsets(tmp_path).put(("t", 0), FIRST, 30)
    left = written
    replace_file = checkpoints.replace_file

    def replace_some(path: Path, content: str, *, durable: bool = True) -> None:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "injected")
        left -= 1
        replace_file(path, content, durable=durable)

    monkeypatch.setattr(checkpoints, "replace_file", replace_some)
    CleanOffsets(tmp_path).put(("t", 0), LATER, 10)
    assert CleanOffsets(tmp_path).of(("t", 0), LATER) is None


@pytest.mark.parametrize("changed", ["delete_retention_ms", "min_compaction_lag_ms", "cleanup_policy"])
@pytest.mark.parametrize("late", [False, True])
def test_a_round_whose_settings_change_begins_again_by_the_new_ones(tmp_path: Path, changed: str, late: bool) -> None:
    """The next read shows it; or the owner does, which had it first."""
    partitions = Partitions(tmp_path, 1)
    before = [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))]
    new = replace(CONFIG, **{changed: ("delete",) if changed == "cleanup_policy" else 1_000_000_000})
    reads: list[int] = []

    def change(size_bytes: int) -> None:
        reads.append(size_bytes)
        if not late and len(reads) == 5:
            partitions.config = new

    partitions.pause = change
    asked = partitions.ask
    if late:
        partitions.ask = lambda *_: (INVALID_CONFIG, b"")
    assert partitions.log_cleaner.compact_dirtiest()
    assert late or len(reads) == 5
    assert not partitions.is_compacted(0)
    assert [path.name for path in sorted((tmp_path / "t-0").glob("*.log"))] == before
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    if changed == "delete_retention_ms":
        partitions.config, partitions.pause, partitions.ask = new, lambda _: None, asked
        assert partitions.log_cleaner.compact_dirtiest()
        assert partitions.is_compacted(0)


def test_a_cleaner_that_is_switched_off_stops_in_the_middle_of_a_round(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, 1)
    reads: list[int] = []

    def switch_off(size_bytes: int) -> None:
        reads.append(size_bytes)
        partitions.settings.log_cleaner_enable = len(reads) < 3

    partitions.pause = switch_off
    partitions.log_cleaner.compact_dirtiest()
    assert len(reads) == 3
    assert not partitions.is_compacted(0)
