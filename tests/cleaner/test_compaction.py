"""Compaction against a plain list of written records: required ones stay, others are removed, nothing else changes."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from rotunda.broker.cleaner.batch_filter import DELETE_HORIZON_BIT
from rotunda.broker.cleaner.cleanable import cleanable
from rotunda.broker.cleaner.compaction import Limits
from rotunda.broker.cleaner.key_map import ENTRY_BYTES
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import Checkpointed
from rotunda.broker.records.record_batch import batch_headers, unpack_header
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.steps import finished
from tests.cleaner.keyed_log import ROOMY, KeyedLog, Written
from tests.log.log_writer import check_indexes
from tests.log.transaction_model import consume
from tests.support.record_batches import lying_batch, record_batch, records_of
from tests.support.results import present

SMALL = LogConfig(
    cleanup_policy=("compact",),
    internal_segment_bytes=2000,
    index_interval_bytes=200,
    delete_retention_ms=1000,
    max_message_bytes=1 << 20,
)
KEYS = [b"%d" % number for number in range(6)] + [b"a key that is longer than sixteen bytes", b"0123456789abcdef"]


def key_value(key: int, value: int | None) -> tuple[bytes, bytes | None]:
    return b"%d" % key, None if value is None else b"%d" % value


def test_only_the_newest_record_of_a_key_stays(tmp_path: Path) -> None:
    """Offsets, timestamps, headers and the place of the end stay; the checkpoint is where the clean part ends."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    for number in range(30):
        log.append([key_value(number % 3, number), key_value(7, number)])
        log.clock.advance_ms(10)
    log.roll()
    end = log.end()
    log.append([key_value(0, 100)])
    log.clean()
    assert log.checkpoint == end[0]
    records = log.records()
    assert [(record.key, record.value) for record in records] == [
        (b"0", b"27"),
        (b"1", b"28"),
        (b"2", b"29"),
        (b"7", b"29"),
        (b"0", b"100"),
    ]
    assert set(records) <= set(log.written)
    check_indexes(tmp_path / "t-0", log.log)


def test_a_batch_that_keeps_everything_is_copied_byte_for_byte(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1), key_value(2, 2)], codec=4)
    log.append([key_value(3, 3), key_value(3, 4)])
    before = log.batches()
    log.roll()
    log.clean()
    after = log.batches()
    assert after[0] == before[0]
    assert after[1][0].record_count == 1
    assert after[1][0].last_offset == before[1][0].last_offset
    assert after[1][0].base_offset == before[1][0].base_offset


def test_nothing_is_swapped_when_nothing_changes(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1), key_value(2, 2)])
    log.roll()
    inode = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_ino
    log.clean(swap=lambda _: pytest.fail("asked for a swap"))
    assert log.checkpoint == 2
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_ino == inode
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


@pytest.mark.parametrize("codec", range(5))
def test_rewritten_batches_keep_their_codec(tmp_path: Path, codec: int) -> None:
    log = KeyedLog(tmp_path / "t-0", replace(SMALL, internal_segment_bytes=1 << 20))
    log.append([(KEYS[number % 5], b"%d" % number * 200) for number in range(200)], codec=codec)
    log.roll()
    log.clean()
    ((header, data),) = log.batches()
    assert header.codec == codec
    assert header.record_count == 5
    assert crc32c(data[21:]) == header.crc
    assert header.max_timestamp == max(record.timestamp_ms for record in iterate_records(data))
    assert log.records() == log.written[-5:]


def test_a_segment_that_compaction_has_left_without_records_is_no_lost_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1)])
    log.roll()
    log.append([key_value(1, 2)] * 30)
    log.roll()
    log.append([key_value(2, 3)])
    log.log.flush()
    whole = replace(SMALL, internal_segment_bytes=100)
    log.config = whole  # no two segments become one
    log.clean()
    assert log.log.segments()[0].size_bytes == 0
    for resume in (None, Checkpointed(log.log.log_end_offset), Checkpointed()):
        log.reopen(resume)
    assert "is empty" not in caplog.text


def test_a_tombstone_stays_until_its_horizon_has_passed(tmp_path: Path) -> None:
    """The first round sets the horizon in the batch, from then on it counts delete.retention.ms (KIP-534)."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1), key_value(2, 2)])
    log.append([key_value(1, None), key_value(3, 3)])
    tombstone = log.written[2]
    log.roll()
    log.clean()
    assert [record.offset for record in log.records()] == [1, 2, 3]
    assert tombstone in log.records()
    header, _ = log.batches()[1]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == log.clock.wall_ms() + 1000
    log.clock.advance_ms(999)
    log.clean()
    assert [record.offset for record in log.records()] == [1, 2, 3]
    log.clock.advance_ms(1)
    log.clean()
    assert [record.offset for record in log.records()] == [1, 3]
    assert log.records()[1].timestamp_ms == log.written[3].timestamp_ms


def test_records_of_aborted_transactions_go_and_markers_follow(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1)])
    log.append([key_value(1, 2)], producer_id=5, transactional=True)
    log.end_transaction(5, commit=False)
    log.append([key_value(2, 3)], producer_id=6, transactional=True)
    log.end_transaction(6, commit=True)
    # So that neither of those batches is its producer's last.
    log.append([key_value(8, 0)], producer_id=5)
    log.append([key_value(9, 0)], producer_id=6)
    log.roll()

    def visible() -> list[bytes]:
        reader = LogReader(log.directory)
        batches = consume(reader, log.log.last_stable_offset, log.end(), 1 << 20)
        return [record.value or b"" for data in batches for record in iterate_records(data)]

    assert visible() == [b"1", b"3", b"0", b"0"]
    log.clean()
    assert [(header.base_offset, header.is_control) for header, _ in log.batches()] == [
        (0, False),
        (2, True),
        (3, False),
        (4, True),
        (5, False),
        (6, False),
    ]
    assert visible() == [b"1", b"3", b"0", b"0"]
    log.clean()
    horizon = next(header for header, _ in log.batches() if header.base_offset == 2)
    assert horizon.attributes & DELETE_HORIZON_BIT
    log.clock.advance_ms(1000)
    log.clean()
    # The commit marker stays as long as there is a record of its transaction.
    assert [header.base_offset for header, _ in log.batches()] == [0, 3, 4, 5, 6]
    assert visible() == [b"1", b"3", b"0", b"0"]


def test_the_last_batch_of_a_producer_stays_as_a_shell(tmp_path: Path) -> None:
    """Its sequence numbers survive: the next batch is validated as before, also after a restart without snapshots."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1), key_value(1, 2)], producer_id=5)
    log.append([key_value(1, 3)])
    log.roll()
    log.clean()
    shell, _ = log.batches()[0]
    assert (shell.record_count, shell.base_offset, shell.last_offset) == (0, 0, 1)
    assert (shell.producer_id, shell.base_sequence) == (5, 0)
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    log.reopen(Checkpointed())
    (producer,) = log.log.active_producers()
    assert producer.next_sequence == 2
    log.append([key_value(1, 4)], producer_id=5)
    # An expired producer is not preserved.
    log.clock.advance_ms(ROOMY.producer_id_expiration_ms)
    log.roll()
    log.clean()
    assert [header.base_offset for header, _ in log.batches()] == [3]


def test_the_last_batch_of_a_round_stays_as_a_shell(tmp_path: Path) -> None:
    """A consumer sees the end of the log even if no record is left there."""
    log = KeyedLog(tmp_path / "t-0", replace(SMALL, cleanup_policy=("delete",)))
    log.append([key_value(1, 1)])
    log.append([(None, b"from before the topic was compacted")])
    log.roll()
    log.clean()
    assert [(header.last_offset, header.record_count) for header, _ in log.batches()] == [(0, 1), (1, 0)]


def test_segments_are_joined_up_to_the_size_of_one(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    for number in range(200):
        log.append([key_value(number % 4, number)])
    log.roll()
    assert len(log.log.segments()) > 8
    log.clean()
    log.clean()
    sizes = [info.size_bytes for info in log.log.segments()]
    assert len(sizes) <= 3
    assert max(sizes) <= 2000
    check_indexes(log.directory, log.log)


def test_open_transactions_and_young_records_are_left_alone(tmp_path: Path) -> None:
    log = KeyedLog(tmp_path / "t-0", SMALL)
    log.append([key_value(1, 1)])
    log.append([key_value(1, 2)])
    log.roll()
    log.append([key_value(1, 3)], producer_id=5, transactional=True)
    log.roll()
    log.append([key_value(1, 4)])
    log.roll()
    log.clean()
    assert [record.offset for record in log.records()] == [1, 2, 3]
    log.end_transaction(5, commit=True)
    log.roll()
    log.config = replace(SMALL, min_compaction_lag_ms=5000)
    log.clock.advance_ms(4000)
    log.clean()
    assert [record.offset for record in log.records()] == [1, 2, 3]
    log.clock.advance_ms(2000)
    log.clean()
    assert [record.offset for record in log.records()] == [3]


@pytest.mark.parametrize(
    ("configs", "is_due"),
    [
        ({"min_cleanable_dirty_ratio": 0.4}, True),
        ({"min_cleanable_dirty_ratio": 0.6}, False),
        ({"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": 1000}, True),
        ({"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": 9000}, False),
        ({"min_cleanable_dirty_ratio": 0, "min_compaction_lag_ms": 9000}, False),
    ],
)
def test_when_compaction_is_due(tmp_path: Path, configs: dict[str, float], is_due: bool) -> None:
    """By the dirty share of the bytes, here half of them, or by the age of the oldest dirty record."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    for number in range(2):
        log.append([key_value(number, number)])
        log.roll()
        if not number:
            log.clean()
    log.clock.advance_ms(5000)
    config = replace(SMALL, **configs)
    assert cleanable(log.look(), log.checkpoint, config, log.clock.wall_ms()).is_due(config) == is_due


@pytest.mark.parametrize("codec", [0, 3])
def test_compaction_keeps_the_last_value_of_each_key_of_random_logs(tmp_path: Path, codec: int) -> None:
    """For any records, and any order of rounds, rolls, restarts and aborts: the log equals the model of a dict."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for run in range(12):
        log = KeyedLog(tmp_path / f"{run}" / "t-0", SMALL)
        aborted: set[int] = set()
        opened: dict[int, list[int]] = {}
        for _ in range(rng.randrange(10, 120)):
            _write_something(log, rng, codec, opened, aborted)
            log.clock.advance_ms(rng.randrange(300))
            if rng.random() < 0.1:
                log.roll()
            if rng.random() < 0.08:
                log.clean(Limits(rng.choice([3, 10, 1000]) * ENTRY_BYTES, 86_400_000))
                _check(log, aborted, opened)
            if rng.random() < 0.05:
                log.reopen()
        for producer_id in list(opened):
            _end(log, producer_id, opened, aborted, commit=rng.random() < 0.5)
        log.roll()
        for _ in range(3):
            log.clean()
            _check(log, aborted, opened)
        kept = [record for record in log.records() if record.offset not in aborted]
        assert len({record.key for record in kept}) == len(kept), "one record a key"


def _write_something(
    log: KeyedLog, rng: random.Random, codec: int, opened: dict[int, list[int]], aborted: set[int]
) -> None:
    records = [
        (rng.choice(KEYS), None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40)))
        for _ in range(rng.randrange(1, 6))
    ]
    kind = rng.randrange(4)
    producer_id = rng.choice([5, 6])
    if kind == 0:
        log.append(records, codec=codec)
    elif kind == 1:
        log.append(records, producer_id=producer_id + 10, codec=codec)
    elif kind == 2 or producer_id not in opened:
        base = log.append(records, producer_id=producer_id, transactional=True, codec=codec)
        opened.setdefault(producer_id, []).extend(range(base, base + len(records)))
    else:
        _end(log, producer_id, opened, aborted, commit=rng.random() < 0.5)


def _end(log: KeyedLog, producer_id: int, opened: dict[int, list[int]], aborted: set[int], *, commit: bool) -> None:
    log.end_transaction(producer_id, commit=commit)
    offsets = opened.pop(producer_id)
    if not commit:
        aborted |= set(offsets)


def _check(log: KeyedLog, aborted: set[int], opened: dict[int, list[int]]) -> None:
    """Check the view of a committed reader: each key's newest value, and only written records."""
    undecided = {offset for offsets in opened.values() for offset in offsets}
    stable = min(undecided, default=log.log.log_end_offset)
    assert log.log.last_stable_offset == stable
    committed = [record for record in log.written if record.offset < stable and record.offset not in aborted]
    reader = LogReader(log.directory)
    seen = [
        Written(record.offset, record.key, record.value, record.timestamp_ms, -1)
        for data in (consume(reader, stable, log.end(), 700) if stable else [])
        for record in iterate_records(data)
    ]
    assert [record.offset for record in seen] == sorted({record.offset for record in seen})
    assert set(seen) <= {record._replace(producer_id=-1) for record in committed}
    newest = {record.key: record.value for record in committed}
    replayed = {record.key: record.value for record in seen}
    assert {key: value for key, value in newest.items() if value is not None} == {
        key: value for key, value in replayed.items() if value is not None
    }
    # Above the clean part nothing is missing.
    clean_to = log.checkpoint or 0
    expected = {record._replace(producer_id=-1) for record in committed if record.offset >= clean_to}
    assert expected <= set(seen)
    _check_files(log)


def _check_files(log: KeyedLog) -> None:
    position = -1
    for header, data in log.batches():
        assert crc32c(data[21:]) == header.crc
        assert header.base_offset > position
        position = header.last_offset
        assert [at for at, _ in batch_headers(data)] == [0]
    before = _producers(log)
    log.reopen()
    assert _producers(log) == before


def _producers(log: KeyedLog) -> dict[int, object]:
    """Return the state of each producer, but for times: a snapshot has none for batches."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.next_sequence,
            entry.current_txn_first_offset,
            [each[:3] for each in entry.batches],
        )
        for entry in log.log.active_producers()
    }


def test_offsets_are_found_by_time_and_at_vanished_offsets(tmp_path: Path) -> None:
    """ListOffsets and Fetch on a compacted log: the first record at or after a time or offset that is still there."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    for number in range(60):
        log.append([key_value(number % 4, number)])
        log.clock.advance_ms(10)
    log.roll()
    log.clean()
    log.clean()
    reader, end = LogReader(log.directory), log.end()
    kept = [record for record in log.written if record.offset >= 56]
    assert log.records() == kept
    for record in log.written:
        expected = next(each for each in kept if each.timestamp_ms >= record.timestamp_ms)
        found = present(finished(reader.offset_for_timestamp(record.timestamp_ms, 0, end)))
        assert (found.offset, found.timestamp_ms) == (expected.offset, expected.timestamp_ms)
        piece = present(reader.locate(record.offset, end, 1))
        data = Path(piece.path.decode()).read_bytes()[piece.position : piece.position + piece.length]
        assert next(iterate_records(data)).offset == max(record.offset, 56)
    assert present(finished(reader.max_timestamp(0, end))).offset == 59
    assert reader.epoch_end_offset(log.log.leader_epoch, end[0]) == (log.log.leader_epoch, 60)
    assert reader.epoch_for_offset(3) == log.log.leader_epoch


def damaged(tmp_path: Path, at: int) -> tuple[KeyedLog, bytes]:
    """Return a log of 20 batches with the same key, of which the fourth has a wrong byte, and its segment."""
    log = KeyedLog(tmp_path / "t-0", SMALL)
    for number in range(20):
        log.append([key_value(1, 10 + number)])
    log.roll()
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[3 * (len(data) // 20) + at] ^= 1
    path.write_bytes(data)
    return log, bytes(data)


@pytest.mark.parametrize("at", [8, 16, 23], ids=["length", "magic", "last offset"])
def test_where_no_batch_can_be_made_out_everything_stays_as_it_is(tmp_path: Path, at: int) -> None:
    log, data = damaged(tmp_path, at)
    with pytest.raises(ApiError):
        log.clean()
    assert (log.directory / f"{0:020d}.log").read_bytes() == data
    assert log.checkpoint is None
    assert not list(log.directory.glob("*.cleaned"))


def test_a_damaged_batch_stays_as_it_is_and_the_others_are_compacted(tmp_path: Path) -> None:
    """No damaged batch is rewritten, and nothing after it is lost."""
    log, data = damaged(tmp_path, 70)
    round_ = log.clean()
    assert round_.stats.unreadable == {3: "its checksum is wrong"}
    size = len(data) // 20
    left = (log.directory / f"{0:020d}.log").read_bytes()
    assert left == data[3 * size : 4 * size] + data[19 * size :]
    assert log.clean().stats.unreadable == {3: "its checksum is wrong"}


ONE = records_of(record_batch([b"x"], keys=[b"1"]))
LIES = {
    "a record of no bytes": b"\0" * 100,
    "fewer records than it says": ONE,
    "an offset beyond the batch": ONE + ONE[:3] + b"\x7e" + ONE[4:],
    "a key beyond the record": ONE + ONE[:4] + b"\x7e" + ONE[5:] + bytes(100),
    "a time beyond all times": ONE + b"\x22\0" + b"\xff" * 9 + b"\1" + ONE[3:],
    "no end of a number": b"\xff" * 40,
    "more than is unpacked": bytes(1 << 20),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("codec", range(5))
def test_a_lying_batch_stays_as_it_is_and_the_others_are_compacted(tmp_path: Path, codec: int, lie: str) -> None:
    """An earlier version may have stored it. Its keys replace nothing: they cannot be read."""
    room = {"max_message_bytes": 1 << 19, "internal_max_uncompressed_bytes": 1 << 19, "internal_segment_bytes": 1 << 22}
    config = replace(SMALL, **room)
    log = KeyedLog(tmp_path / "t-0", config)
    log.log.update_config(replace(config, cleanup_policy=("delete",), max_message_bytes=1 << 22))
    for number in range(5):
        log.append([key_value(1, number)], codec=codec)
    reported = memoryview(bytearray(lying_batch(LIES[lie], 2, codec=codec)))
    assert log.log.stage(reported, unpack_header(reported), is_own=True) == (0, 5, -1)
    log.log.commit()
    for number in range(5):
        log.append([key_value(1, number)], codec=codec)
    log.roll()
    round_ = log.clean()
    assert list(round_.stats.unreadable) == [5]
    assert [header.base_offset for header, _ in log.batches()] == [5, 11]
    assert log.batches()[0][1] == bytes(reported)
    assert log.checkpoint == 12
