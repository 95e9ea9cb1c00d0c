"""Start after a power loss: intact batches remain, torn ones are removed, indexes are rebuilt."""

import random
from bisect import bisect_right
from pathlib import Path
from unittest import mock

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import Checkpointed, LogDamaged, PartitionLog, PublishedEnd
from rotunda.broker.log.producers import snapshot_schedule
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.records.record_batch import batch_headers
from tests.log.log_writer import NAME, ModelLog, batch, log_bytes, published_end
from tests.support.record_batches import TIMESTAMP_MS
from tests.support.sampling import Sampling

SMALL = LogConfig(internal_segment_bytes=2_000, index_interval_bytes=100)


def filled(directory: Path, config: LogConfig, count: int, size: int = 60) -> ModelLog:
    """Return a log of `count` batches that was not closed."""
    model = ModelLog(directory, config)
    model.open()
    for i in range(count):
        fields = {"producer_id": i % 3, "producer_epoch": 0, "base_sequence": i // 3}
        model.append([batch(1, size=size, timestamp_ms=TIMESTAMP_MS + i, **fields)])
    return model


def start(model: ModelLog, resume: Checkpointed | None = None) -> PartitionLog:
    """Open the log like a start of the broker, and compare it with the model."""
    model.log = PartitionLog.open(model.directory, NAME, model.config, model.clock, resume or Checkpointed())
    content = log_bytes(model.directory)
    stand = [content[at : at + header.size_bytes] for at, header in batch_headers(content)]
    assert stand == model.acknowledged[: len(stand)]
    model.acknowledged = stand
    return model.log


def active_file(model: ModelLog) -> Path:
    return max(model.directory.glob("*.log"))


@pytest.mark.parametrize("quarter", range(4))
def test_cut_at_every_byte(tmp_path: Path, sampling: Sampling, quarter: int) -> None:
    """The last segment is cut at every byte of its final 4 KiB: exactly the whole batches remain (`36`)."""
    config = LogConfig(index_interval_bytes=500)
    model = filled(tmp_path / "t", config, 60)
    content = b"".join(model.acknowledged)
    ends = [0]
    for data in model.acknowledged:
        ends.append(ends[-1] + len(data))
    file = model.directory / "00000000000000000000.log"
    for length in sampling.one_in(4, range(len(content) - quarter, len(content) - 4097, -4)):
        file.write_bytes(content[:length])
        log = PartitionLog.open(model.directory, NAME, config, model.clock, Checkpointed())
        stand = bisect_right(ends, length) - 1
        assert (log.position, log.log_end_offset) == (ends[stand], stand)
        assert file.read_bytes() == content[: ends[stand]]
        assert sum(len(entry.batches) for entry in log.active_producers()) == min(stand, 15)
        log.close(clean=False)


def test_a_corrupt_batch_ends_the_log(tmp_path: Path) -> None:
    """One bit is flipped anywhere but in the base offset and the leader epoch, which no checksum covers."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for run in range(30):
        model = filled(tmp_path / f"{run}", SMALL, 50)
        files = sorted(model.directory.glob("*.log"))
        victim = rng.choice(files)
        data = bytearray(victim.read_bytes())
        position = rng.choice([at for at, _ in batch_headers(data)])
        at = position + rng.choice([*range(8, 12), *range(16, 100)])
        data[at] ^= 1 << rng.randrange(8)
        victim.write_bytes(data)
        start(model)
        model.check()
        model.append([batch(1)])
        model.check()


def test_below_the_recovery_point_nothing_is_checked(tmp_path: Path) -> None:
    """Durable records are trusted, which makes a start fast (`36`)."""
    model = filled(tmp_path / "t", SMALL, 50)
    model.log.close()
    first = model.directory / "00000000000000000000.log"
    data = bytearray(first.read_bytes())
    data[30] ^= 1
    first.write_bytes(data)
    log = PartitionLog.open(model.directory, NAME, SMALL, model.clock, Checkpointed(50))
    assert log.log_end_offset == 50
    log = PartitionLog.open(model.directory, NAME, SMALL, model.clock, Checkpointed(0))
    assert log.log_end_offset == 0


def test_durable_batches_after_a_damaged_one_are_kept_in_another_file(tmp_path: Path) -> None:
    model = filled(tmp_path / "t", LogConfig(), 5)
    path = active_file(model)
    data = bytearray(path.read_bytes())
    third = [at for at, _ in batch_headers(data)][2]
    data[third + 70] ^= 1
    path.write_bytes(data)
    start(model, Checkpointed(5))
    assert path.read_bytes() == data[:third]
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == data[third:]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["removed", "cut", "zeros", "noise"])
@pytest.mark.parametrize("recovery_point", [0, 20, 50])
def test_indexes_and_snapshots_are_rebuilt(tmp_path: Path, suffix: str, damage: str, recovery_point: int) -> None:
    """Indexes and snapshots lost or damaged by a crash beyond the recovery point are rebuilt."""
    model = filled(tmp_path / "t", SMALL, 50)
    for info in model.log.segments():
        if info.base_offset < recovery_point and suffix != ".snapshot":
            continue
        for path in model.directory.glob(f"{info.base_offset:020d}{suffix}"):
            data = path.read_bytes()
            if damage == "removed":
                path.unlink()
            else:
                spoiled = {"cut": data[: len(data) // 2 + 1], "zeros": bytes(len(data)), "noise": data[::-1]}
                path.write_bytes(spoiled[damage])
    start(model, Checkpointed(recovery_point))
    assert len(model.acknowledged) == 50
    model.check()


def test_an_index_that_is_missing_below_the_recovery_point_returns(tmp_path: Path) -> None:
    model = filled(tmp_path / "t", SMALL, 50)
    for path in model.directory.glob("*.index"):
        path.unlink()
    start(model, Checkpointed(50))
    model.check()
    assert all(path.stat().st_size for path in sorted(model.directory.glob("*.index"))[:-1])


def test_stale_bytes_beyond_the_end_are_not_read_as_batches(tmp_path: Path) -> None:
    model = filled(tmp_path / "t", LogConfig(), 5)
    path = active_file(model)
    path.write_bytes(path.read_bytes() + model.acknowledged[2])
    start(model)
    assert len(model.acknowledged) == 5


def test_leftovers_of_other_steps_are_deleted(tmp_path: Path) -> None:
    model = filled(tmp_path / "t", LogConfig(), 5)
    names = ("00000000000000000009.index", "00000000000000000000.log.cleaned", "leader-epoch-checkpoint.tmp")
    for name in names:
        (model.directory / name).write_bytes(b"x")
    start(model)
    assert not any((model.directory / name).exists() for name in names)


def test_a_start_begins_an_epoch_and_a_replacement_does_not(tmp_path: Path) -> None:
    """Empty epoch lines do not accumulate, nor are they written (`39`)."""
    model = filled(tmp_path / "t", LogConfig(), 5)
    path = model.directory / "leader-epoch-checkpoint"
    assert model.open().leader_epoch == 0
    for _ in range(2):
        log = start(model)
        assert log.leader_epoch == 1
        assert path.read_text() == "0\n1\n0 0\n"
    model.published = published_end(log)
    assert model.open().leader_epoch == 1, "although it is not on disk"
    model.append([batch(1)])
    assert path.read_text() == "0\n2\n0 0\n1 5\n"
    log = start(model)
    assert log.leader_epoch == 2
    model.append([batch(1)])
    assert model.open().leader_epoch == 2
    assert [log.epoch_end_offset(epoch) for epoch in (0, 1, 2, 3)] == [(0, 5), (1, 6), (2, 7), (-1, -1)]


def test_epochs_that_the_file_lost_are_read_from_the_batches(tmp_path: Path) -> None:
    model = filled(tmp_path / "t", LogConfig(), 5)
    start(model)
    model.append([batch(1)])
    (model.directory / "leader-epoch-checkpoint").unlink()
    start(model)
    assert (model.directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 5\n2 6\n"


@pytest.mark.parametrize(
    "published", [PublishedEnd(9, 0, 10_000, 0), PublishedEnd(3, 3, 10, 0), PublishedEnd(1, 0, 100, 0)]
)
def test_files_without_acknowledged_records_are_not_changed(tmp_path: Path, published: PublishedEnd) -> None:
    """Beyond the file's end, in a missing segment, in the middle of a batch: the partition stays offline."""
    model = filled(tmp_path / "t", LogConfig(), 5)
    with pytest.raises(LogDamaged):
        PartitionLog.open(model.directory, NAME, LogConfig(), model.clock, published)


def test_owners_that_die_before_a_snapshot_is_due_do_not_walk_ever_further(tmp_path: Path) -> None:
    """The predecessor's walk ends in a snapshot, unless it is short."""
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    longest = snapshot_schedule.LONG_WALK_BYTES // snapshot_schedule.WALK_BYTES_PER_BATCH
    sequence, most = 0, 0
    for _ in range(20):
        with mock.patch.object(ProducerState, "replay", autospec=True, side_effect=ProducerState.replay) as replay:
            model.open()
        most = max(most, replay.call_count)
        for _ in range(5):
            fields = {"producer_id": 7, "producer_epoch": 0}
            model.append([batch(base_sequence=sequence + number, **fields) for number in range(20)])
            sequence += 20
    assert longest <= most < longest + 100
    [entry] = model.expected_producers()
    assert entry.next_sequence == sequence
