"""All logs of a handler: checkpoints shared with other handlers, timers, deletion, orphans."""

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.log_manager import CHECKPOINT_INTERVAL_NS, LogManager, orphan_directories
from rotunda.broker.log.partition_log import LogDamaged, PartitionLog, PartitionName, PublishedEnd
from tests.log.log_writer import batch, published_end, stage
from tests.support.deadline import deadline_s
from tests.support.fakes import FakeClock, failing
from tests.support.record_batches import TIMESTAMP_MS

EXPIRATION_MS = 86_400_000


def name(topic: str, partition: int = 0, generation: int = 0) -> PartitionName:
    return PartitionName(topic, partition, bytes(15) + bytes([generation]))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=TIMESTAMP_MS)


def append(log: PartitionLog, count: int = 1) -> None:
    stage(log, batch(count))
    log.commit()


def test_a_clean_stop_leaves_nothing_to_recover(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    append(manager.open(name("a"), LogConfig(), None), 3)
    manager.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\na 0 0\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\na 0 3\n"
    log = LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None)
    assert (log.recovery_point, log.log_end_offset) == (3, 3)


def test_handlers_share_the_checkpoint_files(tmp_path: Path, clock: FakeClock) -> None:
    one, other = (LogManager(tmp_path, clock, EXPIRATION_MS) for _ in range(2))
    append(one.open(name("a"), LogConfig(), None), 3)
    append(other.open(name("b"), LogConfig(), None), 4)
    one.checkpoint()
    other.checkpoint()
    other.delete(name("b"))
    one.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 3\n"


def test_deleted_records_stay_deleted(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(), None)
    append(log, 3)
    log.delete_records_before(2)
    manager.close()
    assert LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None).log_start_offset == 2


def test_a_new_topic_does_not_inherit_the_checkpoints_of_an_old_one(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(), None)
    append(log, 3)
    log.delete_records_before(2)
    manager.checkpoint()
    checkpoints = {path: path.read_text() for path in tmp_path.glob("*-checkpoint")}
    manager.delete(name("a"))
    assert not (tmp_path / "a-0").exists()
    for path, text in checkpoints.items():
        path.write_text(text)
    again = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = again.open(name("a", generation=1), LogConfig(), None)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (0, 0, 0)


def test_deleting_closed_and_missing_logs(tmp_path: Path, clock: FakeClock) -> None:
    LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None)
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    manager.delete(name("a", generation=1))
    assert (tmp_path / "a-0").exists()
    manager.delete(name("a"))
    manager.delete(name("a"))
    assert not (tmp_path / "a-0").exists()


def test_a_replacement_keeps_the_recovery_point(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(), None)
    append(log, 3)
    log.flush()
    manager.checkpoint()
    append(log, 1)
    published = published_end(log)
    replacement = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = replacement.open(name("a"), LogConfig(), PublishedEnd(*published[:4]))
    assert (log.recovery_point, log.log_end_offset) == (3, 4)
    replacement.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 3\n"


def test_logs_are_flushed_and_checkpointed_when_it_is_time(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(flush_ms=50), None)
    append(log)
    clock.advance_ms(49)
    manager.tick()
    manager.wait_for_flushes()
    assert log.recovery_point == 0
    clock.advance_ms(1)
    manager.tick()
    manager.wait_for_flushes()
    assert log.recovery_point == 1
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    clock.advance_ns(CHECKPOINT_INTERVAL_NS)
    manager.tick()
    manager.wait_for_flushes()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 1\n"


def test_a_tick_looks_only_at_logs_with_a_pending_flush(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    logs = [manager.open(name("a", number), LogConfig(flush_ms=50), None) for number in range(3)]
    seen, due_ns = [], PartitionLog.flush_due_ns

    def looked_at(log: PartitionLog) -> int | None:
        seen.append(log)
        return due_ns(log)

    monkeypatch.setattr(PartitionLog, "flush_due_ns", looked_at)
    for times in range(1, 3):
        append(logs[1])
        for _ in range(3):
            clock.advance_ms(25)
            manager.tick()
            manager.wait_for_flushes()
        assert logs[1].recovery_point == times
        assert seen == [logs[1]] * 2 * times


def test_rolled_segments_become_durable_after_a_while(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(internal_segment_bytes=200), None)
    for _ in range(5):
        append(log)
    assert log.recovery_point == 0
    clock.advance_ms(60_000)
    manager.tick()
    manager.wait_for_flushes()
    assert log.recovery_point == 5


def test_orphans_are_reported(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    for generation in (1, 2):
        manager.open(name("a", generation, generation), LogConfig(), None)
    (tmp_path / "something").mkdir()
    assert orphan_directories(tmp_path, {"a-1": name("a", 1, 1).topic_id}) == [tmp_path / "a-2"]


def test_a_directory_of_another_topic_is_rejected_with_a_remedy(tmp_path: Path, clock: FakeClock) -> None:
    LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None)
    other = PartitionName("a", 0, bytes(range(16)))
    with pytest.raises(LogDamaged, match=r"a-0/partition.metadata has .* remove the file"):
        LogManager(tmp_path, clock, EXPIRATION_MS).open(other, LogConfig(), None)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00garbage", b"version: 0\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", None]
)
def test_a_topic_id_that_cannot_be_read_is_written_again(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(), None)
    append(log, 3)
    log.delete_records_before(2)
    manager.close()
    path = tmp_path / "a-0" / "partition.metadata"
    assert path.read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    path.unlink() if content is None else path.write_bytes(content)
    log = LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (2, 3, 3)
    assert path.read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    assert str(path) in caplog.text


def test_a_wrong_digit_in_a_checkpoint_hides_no_records(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    append(manager.open(name("a"), LogConfig(), None), 3)
    manager.close()
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_text(path.read_text().replace("a 0 0", "a 0 9"))
    again = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = again.open(name("a"), LogConfig(), None)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert str(path) in caplog.text
    append(log)
    again.close()
    caplog.clear()
    LogManager(tmp_path, clock, EXPIRATION_MS).open(name("a"), LogConfig(), None)
    assert not caplog.text


def test_a_full_disk_keeps_no_log_from_being_removed(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    append(manager.open(name("a"), LogConfig(), None), 3)
    manager.checkpoint()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        manager.delete(name("a"))
    assert not (tmp_path / "a-0").exists()
    assert "a 0 3" in (tmp_path / "replication-offset-checkpoint").read_text()
    manager.checkpoint()
    assert "a 0 3" not in (tmp_path / "replication-offset-checkpoint").read_text()


def test_the_loop_does_not_wait_for_the_disk(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick starts a flush; appends, rolls and further ticks continue during the disk write."""
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(flush_ms=50, internal_segment_bytes=200), None)
    append(log)
    release, sync = threading.Event(), os.fsync

    def slow(fd: int) -> None:
        assert release.wait(deadline_s())
        sync(fd)

    monkeypatch.setattr(os, "fsync", slow)
    clock.advance_ms(50)
    manager.tick()
    for _ in range(4):
        append(log)
    manager.tick()
    assert (log.recovery_point, log.log_end_offset) == (0, 5)
    release.set()
    manager.wait_for_flushes()
    assert log.recovery_point == 1
    clock.advance_ms(50)
    manager.tick()
    manager.wait_for_flushes()
    assert log.recovery_point == 5


def test_the_loop_does_not_wait_for_a_checkpoint(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes it with the state of its tick; only a deletion waits for a checkpoint with its partition."""
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    logs = [manager.open(name(topic), LogConfig(), None) for topic in "ab"]
    append(logs[0])
    begun, release, sync = threading.Event(), threading.Event(), os.fsync

    def slow(fd: int) -> None:
        begun.set()
        assert release.wait(deadline_s())
        sync(fd)

    monkeypatch.setattr(os, "fsync", slow)
    clock.advance_ns(CHECKPOINT_INTERVAL_NS)
    manager.tick()
    assert begun.wait(deadline_s())
    append(logs[0])
    clock.advance_ns(CHECKPOINT_INTERVAL_NS)
    manager.tick()
    assert not (tmp_path / "replication-offset-checkpoint").exists()
    threading.Timer(0, release.set).start()
    manager.delete(name("b"))
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\na 0 1\n"
    manager.tick()
    manager.wait_for_flushes()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\na 0 2\n"


@pytest.mark.parametrize("written_bytes", [0, 3])
def test_on_a_full_disk_every_log_is_closed(
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    written_bytes: int,
) -> None:
    """No snapshot can be written and no partial one remains; the records are made durable nevertheless."""
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    logs = [manager.open(name(topic), LogConfig(), None) for topic in "ab"]
    for log in logs:
        append(log)
    writev = os.writev

    def full(fd: int, pieces: Sequence[bytes]) -> int:
        if not written_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return writev(fd, [b"".join(pieces)[:written_bytes]])

    with monkeypatch.context() as patch:
        # It writes no other files.
        patch.setattr(os, "writev", full)
        manager.close()
    assert [log.recovery_point for log in logs] == [1, 1]
    assert not list(tmp_path.glob("*/*.snapshot"))
    assert "not closed cleanly" not in caplog.text
    assert LogManager(tmp_path, clock, EXPIRATION_MS).open(name("b"), LogConfig(), None).log_end_offset == 1


def test_a_failed_flush_makes_its_log_offline(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    logs = [manager.open(name(topic), LogConfig(flush_ms=50), None) for topic in "ab"]
    for log in logs:
        append(log)
    sync = os.fsync

    def failing(fd: int) -> None:
        if "/a-0/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.EIO, "the disk has failed")
        sync(fd)

    monkeypatch.setattr(os, "fsync", failing)
    clock.advance_ms(50)
    manager.tick()
    manager.wait_for_flushes()
    assert [log.recovery_point for log in logs] == [0, 1]
    assert [log.fault for log in logs] == [errno.EIO, 0]


def test_a_log_can_be_deleted_while_it_is_flushed(tmp_path: Path, clock: FakeClock) -> None:
    manager = LogManager(tmp_path, clock, EXPIRATION_MS)
    log = manager.open(name("a"), LogConfig(flush_ms=50), None)
    append(log)
    job = log.begin_flush()
    manager.delete(name("a"))
    job.run()
    log.end_flush(job, None)
    assert not (tmp_path / "a-0").exists()
