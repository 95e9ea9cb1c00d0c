"""Kafka's text files, and leader epochs with the results of Kafka's LeaderEpochFileCache."""

import errno
import os
from pathlib import Path

import pytest

from rotunda.broker.log.checkpoints import CheckpointCorruptError, read_lines, read_offsets, write_offsets
from rotunda.broker.log.leader_epochs import LeaderEpochs, read_epochs, resume_epochs, write_epochs
from rotunda.broker.log.offset_checkpoints import CHECKSUMS_FILE, OffsetCheckpoints
from rotunda.broker.log.partition_metadata import read_topic_id, write_topic_id


def test_an_offset_checkpoint_is_kafkas_file_and_returns(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert read_offsets(path) == {}
    offsets = {("topic.b", 10): 7, ("topic-a", 2): 2**40}
    write_offsets(path, offsets)
    assert path.read_text() == "0\n2\ntopic-a 2 1099511627776\ntopic.b 10 7\n"
    assert read_offsets(path) == offsets
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "text", ["1\n0\n", "0\n2\na 0 1\n", "0\nx\n", "0\n1\na 0\n", "0\n1\na b c\n", "0\n1\na 0 -1\n", "", "0\n"]
)
def test_a_damaged_checkpoint_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointCorruptError):
        read_offsets(path)


def test_bytes_that_are_no_text_and_a_directory_are_no_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n1\n\xff 0 1\n")
    with pytest.raises(CheckpointCorruptError, match=r"checkpoint: .*decode"):
        read_lines(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointCorruptError, match="directory"):
        read_lines(path)
    write_offsets(path, {("a", 0): 1})
    assert read_offsets(path) == {("a", 0): 1}
    assert (tmp_path / "checkpoint.damaged-1").is_dir()


def test_a_partial_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    write_offsets(path, {("a", 0): 1})
    room = [5, 0]

    def write(fd: int, content: bytes) -> int:
        if not (received := min(room.pop(0), len(content))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(fd, content[:received])

    real_write = os.write
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        write_offsets(path, {("a", 0): 2})
    assert read_offsets(path) == {("a", 0): 1}
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_leader_epoch_file(tmp_path: Path) -> None:
    write_epochs(tmp_path, LeaderEpochs([(0, 0), (3, 15)]))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 15\n"
    assert read_epochs(tmp_path).entries == [(0, 0), (3, 15)]


@pytest.mark.parametrize("text", ["0\n1\n", "0\n1\nx y\n", "7\n0\n", "0\n2\n3 5\n2 9\n", "0\n2\n3 5\n4 5\n"])
def test_an_unreadable_leader_epoch_file_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    with pytest.raises(CheckpointCorruptError, match="leader-epoch-checkpoint"):
        read_epochs(tmp_path)


def test_end_offsets_of_epochs() -> None:
    """Return the largest known epoch not above the requested one, and its end (KIP-279)."""
    epochs = LeaderEpochs([(2, 10), (4, 20), (5, 30)])
    asked = {-1: (-1, -1), 0: (0, 10), 1: (1, 10), 2: (2, 20), 3: (2, 20), 4: (4, 30), 5: (5, 99), 6: (-1, -1)}
    assert {epoch: epochs.end_offset_for(epoch, 99) for epoch in asked} == asked
    assert LeaderEpochs().end_offset_for(0, 99) == (-1, -1)


def test_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20)])
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_an_assigned_epoch_removes_contradicting_ones() -> None:
    epochs = LeaderEpochs([(1, 10), (2, 20), (3, 30)])
    assert epochs.assign(3, 35) is False
    assert epochs.assign(4, 20) is True
    assert epochs.entries == [(1, 10), (4, 20)]
    epochs.assign(3, 40)
    assert epochs.entries == [(1, 10), (3, 40)]


def test_epochs_are_cut_with_the_log_at_either_end() -> None:
    epochs = LeaderEpochs([(1, 10), (2, 20), (3, 30)])
    assert epochs.cut_end(30) is True
    assert epochs.cut_end(30) is False
    assert epochs.entries == [(1, 10), (2, 20)]
    assert epochs.cut_start(5) is False
    assert epochs.cut_start(25) is True
    assert epochs.entries == [(2, 25)]
    assert epochs.cut_start(25) is False


def test_a_new_leader_begins_an_epoch_where_the_log_ends(tmp_path: Path) -> None:
    """It is on disk with the first batch; a replacement continues the epoch that its predecessor published."""
    for _ in range(2):
        assert resume_epochs(tmp_path, [], 0, [], least_epoch=None).entries == [(0, 0)]
    assert not (tmp_path / "leader-epoch-checkpoint").exists()
    write_epochs(tmp_path, LeaderEpochs([(0, 0)]))
    for _ in range(2):
        assert resume_epochs(tmp_path, [], 5, [], least_epoch=None).entries == [(0, 0), (1, 5)]
    assert resume_epochs(tmp_path, [], 5, [], least_epoch=2).entries == [(0, 0), (2, 5)]
    assert read_epochs(tmp_path).entries == [(0, 0)]
    assert resume_epochs(tmp_path, [(1, 0), (4, 3)], 5, [], least_epoch=None).entries == [(1, 0), (4, 3), (5, 5)]
    assert read_epochs(tmp_path).entries == [(1, 0), (4, 3), (5, 5)], "what the file lacked is written at once"
    # After truncation below the newest epoch's first record, the epoch starts at the new end.
    assert resume_epochs(tmp_path, [], 4, [], least_epoch=5).entries == [(1, 0), (4, 3), (5, 4)]


def test_the_topic_id_is_in_kafkas_file(tmp_path: Path) -> None:
    assert read_topic_id(tmp_path) is None
    topic_id = bytes(range(100, 116))
    write_topic_id(tmp_path, topic_id)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: ZGVmZ2hpamtsbW5vcHFycw"
    assert read_topic_id(tmp_path) == topic_id
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: short\n")
    assert read_topic_id(tmp_path) is None


@pytest.mark.parametrize("is_ours", [True, False], ids=["as it was written", "without checksums"])
def test_the_lines_of_deleted_partitions_are_removed(tmp_path: Path, *, is_ours: bool) -> None:
    """Only theirs: names and numbers may share a prefix. A file without their lines is not rewritten."""
    checkpoints = OffsetCheckpoints(tmp_path)
    offsets = {("a", 1): 5, ("a", 11): 6, ("a-1", 1): 7, ("b.a", 1): 8, ("a", 10): 1}
    checkpoints.merge({"one": offsets, "other": {("b.a", 1): 8}})
    if not is_ours:
        (tmp_path / CHECKSUMS_FILE).unlink()
    untouched = (tmp_path / "other").stat().st_ino
    checkpoints.merge({"one": {}, "other": {}, "none": {}}, {("a", 1), ("a-1", 1), ("gone", 0)})
    left = {("a", 10): 1, ("a", 11): 6, ("b.a", 1): 8}
    assert (tmp_path / "one").read_text() == "0\n3\na 10 1\na 11 6\nb.a 1 8\n"
    assert (tmp_path / "other").stat().st_ino == untouched
    assert checkpoints.read("one", "other") == [left, {("b.a", 1): 8}]
    # Other damage to a file is still detected.
    (tmp_path / "one").write_text("0\n1\na 11 9\n")
    assert checkpoints.read("one") == [{}]
    checkpoints.merge({"one": {}}, {("a", 11)})
    assert (tmp_path / "one").read_text() == "0\n0\n"
