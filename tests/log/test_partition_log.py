"""Appends: offsets, limits, producers, rolls, durability, and the state after a failed write."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.log import checkpoints
from rotunda.broker.log.leader_epochs import FILE_NAME, read_epochs
from rotunda.broker.log.partition_log import Checkpointed, LogWriteFailed, PartitionLog
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.records.record_batch import crc_ok, read_header
from tests.log.log_writer import NAME, ModelLog, batch, log_bytes, published_end, stage, stored
from tests.support.fakes import FakeClock, failing
from tests.support.record_batches import TIMESTAMP_MS
from tests.support.results import present

SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def model(tmp_path: Path) -> ModelLog:
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    return model


def opened(tmp_path: Path, config: LogConfig, clock: FakeClock | None = None) -> ModelLog:
    model = ModelLog(tmp_path / "topic-0", config, clock)
    model.open()
    return model


def test_offsets_follow_each_other_within_and_across_commits(model: ModelLog) -> None:
    assert model.append([batch(3), batch(2)]) == [(0, 0, -1), (0, 3, -1)]
    assert model.append([batch(1)]) == [(0, 5, -1)]
    model.check()


def test_staged_is_not_committed(model: ModelLog) -> None:
    log = model.log
    stage(log, batch(3))
    assert (log.next_offset, log.log_end_offset, log.position) == (3, 0, 0)
    log.discard_staged()
    assert log.next_offset == 0
    model.check()


def test_a_staged_batch_has_its_base_offset(model: ModelLog) -> None:
    """Base offset and leader epoch are written into the request's own memory; the checksum does not cover them."""
    data = batch(2)
    expected = stored(data, 1, model.log.leader_epoch)
    model.append([batch(1), data])
    assert bytes(data) == expected
    assert crc_ok(data, present(read_header(data)))


def test_log_append_time(tmp_path: Path) -> None:
    model = opened(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), FakeClock(wall_ms=5_000))
    data = batch(2, timestamp_ms=1, codec=1, producer_id=7, producer_epoch=0, base_sequence=0)
    before = bytes(data)
    log = model.log
    assert stage(log, data) == (0, 0, 5_000)
    assert stage(log, data) == (46, 0, 5_000)
    log.commit()
    content = log_bytes(model.directory)
    header = present(read_header(content))
    assert crc_ok(content, header)
    assert (header.max_timestamp, header.is_log_append_time, header.codec) == (5_000, True, 1)
    assert bytes(data) == before


@pytest.mark.parametrize(
    ("config", "fields", "error"),
    [
        (LogConfig(max_message_bytes=100), {}, 10),
        (LogConfig(internal_segment_bytes=100), {}, 18),
        (LogConfig(message_timestamp_after_max_ms=10), {"timestamp_ms": TIMESTAMP_MS + 11}, 32),
        (LogConfig(message_timestamp_before_max_ms=10), {"timestamp_ms": TIMESTAMP_MS - 11}, 32),
        (LogConfig(cleanup_policy=("compact",)), {}, 87),
        (LogConfig(cleanup_policy=("compact",)), {"codec": 1}, 87),
    ],
)
def test_batches_beyond_the_limits_are_rejected(
    tmp_path: Path, config: LogConfig, fields: dict[str, object], error: int
) -> None:
    model = opened(tmp_path, config)
    assert model.append([batch(2, size=50, **fields)]) == [(error, -1, -1)]
    model.check()


def test_batches_at_the_limits_are_accepted(tmp_path: Path) -> None:
    config = LogConfig(
        message_timestamp_after_max_ms=10,
        message_timestamp_before_max_ms=10,
        cleanup_policy=("compact", "delete"),
        max_message_bytes=len(batch(1)) + 1,
    )
    model = opened(tmp_path, config)
    batches = [batch(1, timestamp_ms=TIMESTAMP_MS + delta, keys=[b"k"]) for delta in (10, -10)]
    no_time = batch(1, timestamp_ms=-1, keys=[b"k"])
    assert [result[0] for result in model.append([*batches, no_time])] == [0, 0, 0]


def test_settings_change_while_the_log_is_open(model: ModelLog) -> None:
    log = model.log
    log.update_config(LogConfig(max_message_bytes=10))
    assert model.append([batch(1)])[0][0] == 10
    log.update_config(LogConfig())
    assert model.append([batch(1)])[0][0] == 0


def idempotent(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7) -> memoryview:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_retry_gets_a_response_with_the_first_offset(model: ModelLog) -> None:
    model.append([idempotent(0, 2), idempotent(2, 3)])
    assert model.append([idempotent(0, 2), idempotent(2, 3)]) == [(46, 0, -1), (46, 2, -1)]
    assert model.append([idempotent(6)]) == [(45, -1, -1)]
    model.check()


def test_a_retry_within_the_same_commit_is_found(model: ModelLog) -> None:
    assert model.append([idempotent(0), idempotent(0), idempotent(1)]) == [(0, 0, -1), (46, 0, -1), (0, 1, -1)]


def test_all_five_remembered_batches_survive_a_clean_restart(model: ModelLog) -> None:
    model.append([idempotent(i) for i in range(7)])
    model.log.close()
    model.published = None
    model.open()
    assert model.append([idempotent(i) for i in range(7)]) == [
        (45, -1, -1), (45, -1, -1), (46, 2, -1), (46, 3, -1), (46, 4, -1), (46, 5, -1), (46, 6, -1)
    ]  # fmt: skip


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    model = opened(tmp_path, LogConfig(), clock)
    log = model.log
    model.append([idempotent(0), idempotent(0, producer_id=8)])
    clock.advance_ms(log.producer_id_expiration_ms - 1)
    log.expire_producers()
    assert log.producer_ids == 2
    clock.advance_ms(1)
    log.expire_producers()
    assert log.producer_ids == 0
    assert model.append([idempotent(5)])[0][0] == 0


# ---- rolls ----------------------------------------------------------------------------------------------------


def test_a_segment_is_closed_before_it_grows_too_large(tmp_path: Path) -> None:
    model = opened(tmp_path, SMALL)
    for _ in range(30):
        model.append([batch(1, size=50), batch(2, size=20)])
    log = model.log
    sizes = [info.size_bytes for info in log.segments()]
    assert len(sizes) > 3
    assert max(sizes) <= 1000
    model.check()


def test_one_commit_over_many_segments(tmp_path: Path) -> None:
    model = opened(tmp_path, SMALL)
    model.append([idempotent(i) for i in range(100)])
    log = model.log
    assert len(log.segments()) > 5
    model.check()
    for info in log.segments()[1:]:
        assert (model.directory / f"{info.base_offset:020d}.snapshot").exists()


def test_roll_by_age_of_records(tmp_path: Path) -> None:
    model = opened(tmp_path, LogConfig(segment_ms=1000))
    for delta in (0, 1000, 1001):
        model.append([batch(1, timestamp_ms=TIMESTAMP_MS + delta)])
    assert [info.base_offset for info in model.log.segments()] == [0, 2]
    # The same after a restart: the age counts from the first batch of the segment.
    model.open()
    model.append([batch(1, timestamp_ms=TIMESTAMP_MS + 2002)])
    assert [info.base_offset for info in model.log.segments()] == [0, 2, 3]


def test_roll_by_the_clock_where_records_have_no_time(tmp_path: Path) -> None:
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    model = opened(tmp_path, LogConfig(segment_ms=1000), clock)
    model.append([batch(1, timestamp_ms=-1)])
    clock.advance_ms(1001)
    model.append([batch(1, timestamp_ms=-1)])
    assert [info.base_offset for info in model.log.segments()] == [0, 1]


def test_roll_when_an_index_is_full(tmp_path: Path) -> None:
    model = opened(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for _ in range(20):
        model.append([batch(1)])
    assert len(model.log.segments()) == 4  # four entries fit besides the reserved one, and so five batches
    model.check()


def test_preallocated_files_are_cut_when_closed(tmp_path: Path) -> None:
    model = opened(tmp_path, LogConfig(internal_segment_bytes=1000, preallocate=True))
    model.append([batch(1, size=100) for _ in range(20)])
    log = model.log
    active = model.directory / f"{log.segment_base:020d}.log"
    assert active.stat().st_size == 1000
    model.open()
    model.check()


# ---- durability -----------------------------------------------------------------------------------------------


def test_closing_an_idle_log_costs_nothing(model: ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with many partitions must stop quickly; only logs with new records are made durable."""
    model.append([batch(1)])
    log = model.log
    log.close()
    assert log.recovery_point == 1
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, failing(AssertionError("made durable again")))
    again = PartitionLog.open(model.directory, NAME, model.config, model.clock, Checkpointed(1))
    again.close()


@pytest.mark.parametrize("how", ["at once", "by the flusher"])
def test_the_recovery_point_moves_after_the_leader_epochs_are_durable(
    model: ModelLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Below it no epoch is searched for in batches, and an export relies on all of them."""
    model.append([batch(1)])
    log, synced, sync = model.log, [], os.fsync

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        assert log.recovery_point == 0
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    if how == "at once":
        log.flush()
    else:
        job = log.begin_flush()
        job.run()
        log.end_flush(job, None)
    assert FILE_NAME in synced
    assert log.recovery_point == 1


def test_a_log_that_cannot_be_made_durable_is_offline(model: ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = model.log
    model.append([batch(1)])
    monkeypatch.setattr(os, "fdatasync", failing(OSError(errno.EIO, "injected")))
    with pytest.raises(LogWriteFailed):
        log.flush()
    assert stage(log, batch(1)) == (56, -1, -1)
    assert log.commit() is False
    assert log.recovery_point == 0


# ---- failed writes ---------------------------------------------------------------------------------------------


def test_short_writes_are_continued(model: ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, buffers: Sequence[memoryview], position: int) -> int:
        joined = b"".join(bytes(buffer) for buffer in buffers)
        return real(fd, [joined[: max(1, len(joined) // 3)]], position)

    monkeypatch.setattr(os, "pwritev", short)
    model.append([idempotent(i, 2) for i in range(0, 10, 2)])
    model.check()


def test_more_batches_than_one_system_call_writes(model: ModelLog) -> None:
    model.append([batch(1) for _ in range(1500)])
    model.check()


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "across rolls"])
def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: LogConfig) -> None:
    model = opened(tmp_path, config)
    model.append([idempotent(i) for i in range(3)])
    real = os.pwritev
    room = 250

    def full_disk(fd: int, buffers: Sequence[memoryview], position: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "injected")
        joined = b"".join(bytes(buffer) for buffer in buffers)[:room]
        room -= len(joined)
        return real(fd, [joined], position)

    monkeypatch.setattr(os, "pwritev", full_disk)
    log = model.log
    for i in range(3, 30):
        assert stage(log, idempotent(i))[0] == 0
    with pytest.raises(LogWriteFailed):
        log.commit()
    refuses_all_until_it_has_caught_up(log)
    model.check()
    monkeypatch.undo()
    assert model.append([idempotent(2), idempotent(3)]) == [(46, 2, -1), (0, 3, -1)]
    model.check()


def test_no_batch_is_published_before_its_epoch_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the files would take the batch for one of an earlier epoch."""
    model = opened(tmp_path, LogConfig())
    log = model.log

    def full_disk(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "injected", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "replace_file", full_disk)
        assert stage(log, idempotent(0))[0] == 0
        with pytest.raises(LogWriteFailed):
            log.commit()
    assert read_epochs(model.directory).entries == []
    refuses_all_until_it_has_caught_up(log)
    assert model.append([idempotent(0)]) == [(0, 0, -1)]
    assert read_epochs(model.directory).entries == [(log.leader_epoch, 0)]
    model.check()


def refuses_all_until_it_has_caught_up(log: PartitionLog) -> None:
    """Check the log's own state meanwhile: same end, no flush due, no further commit."""
    end, segments = log.log_end_offset, log.segments()
    assert log.needs_catch_up
    assert log.flush_due_ns() is None
    assert not log.roll()
    assert stage(log, idempotent(9)) == (56, -1, -1)
    assert log.stage_marker(1, 0, 0, commit=True) == (56, -1, -1)
    assert log.commit() is False
    assert (log.log_end_offset, log.next_offset) == (end, end)
    log.catch_up()
    assert not log.needs_catch_up
    assert (log.log_end_offset, log.segments()) == (end, segments)


@pytest.mark.parametrize("config", [LogConfig(), SMALL], ids=["one segment", "across rolls"])
def test_the_rest_of_a_failed_write_is_removed_by_a_clean_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: LogConfig
) -> None:
    """A start of the broker would treat whole batches as acknowledged."""
    model = opened(tmp_path, config)
    model.append([idempotent(i) for i in range(3)])
    log = model.log
    for i in range(3, 30):
        stage(log, idempotent(i))
    real, last = LogSegment.write, log._segment

    def written_but_for_the_last_word(segment: LogSegment) -> int:
        count = real(segment)
        if segment is last:
            raise OSError(errno.ENOSPC, "injected")
        return count

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "write", written_but_for_the_last_word)
        with pytest.raises(LogWriteFailed):
            log.commit()
    assert len(log_bytes(model.directory)) > len(b"".join(model.acknowledged))
    log.close()
    model.published = None
    model.open()
    model.check()


def test_a_log_that_cannot_be_restored_is_offline(model: ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = failing(OSError(errno.EIO, "injected"))
    log = model.log
    model.append([batch(1)])
    stage(log, batch(1))
    monkeypatch.setattr(os, "pwritev", fail)
    monkeypatch.setattr(os, "open", fail)
    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(LogWriteFailed):
        log.commit()
    assert stage(log, batch(1)) == (56, -1, -1)
    assert log.commit() is False
    assert log.log_end_offset == 1


# ---- the rest --------------------------------------------------------------------------------------------------


def test_deleted_records_are_removed_with_whole_segments(tmp_path: Path) -> None:
    model = opened(tmp_path, SMALL)
    model.append([batch(1, size=50) for _ in range(40)])
    log = model.log
    second = log.segments()[1].base_offset
    assert log.delete_records_before(second - 1) == second - 1
    assert log.segments()[0].base_offset == 0
    assert log.delete_records_before(second) == second
    assert log.segments()[0].base_offset == second
    assert log.delete_records_before(3) == second
    assert log.size_bytes == len(log_bytes(model.directory))
    for offset in (41, -2):
        with pytest.raises(ApiError) as rejected:
            log.delete_records_before(offset)
        assert rejected.value.code == 1
    assert log.delete_records_before(-1) == 40
    assert len(log.segments()) == 1
    model.published = published_end(log)
    assert model.open().log_start_offset == 40


def test_the_files_are_named_as_kafkas(model: ModelLog) -> None:
    model.append([batch(1)])
    model.log.close()
    assert sorted(path.name for path in model.directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert (model.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
