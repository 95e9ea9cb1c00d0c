"""Locating batches and timestamps in the files, compared with the list of appended batches."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.log import timestamp_search
from rotunda.broker.log.log_reader import End, FileSlice, LogReader
from rotunda.broker.records.record_batch import batch_headers
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.steps import finished
from tests.log.log_writer import ModelLog, batch, end_of, log_bytes, published_end, read_everything, stage, stored
from tests.support.fakes import FakeClock, failing
from tests.support.record_batches import TIMESTAMP_MS, encoded_record, lying_batch, record_batch, records_of
from tests.support.results import present

SMALL = LogConfig(internal_segment_bytes=1500, index_interval_bytes=200, message_timestamp_after_max_ms=2**60)


def filled(directory: Path, seed: int, count: int = 60, config: LogConfig = SMALL) -> ModelLog:
    rng = random.Random(seed)
    model = ModelLog(directory, config)
    model.open()
    while len(model.acknowledged) < count:
        model.append(
            [
                batch(
                    rng.randrange(1, 6),
                    size=rng.randrange(80),
                    codec=rng.choice([0, 0, 1, 2, 3, 4]),
                    timestamp_ms=TIMESTAMP_MS + rng.randrange(1000),
                    timestamp_step_ms=rng.randrange(-3, 50),
                )
                for _ in range(rng.randrange(1, 4))
            ]
        )
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLog:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return filled(tmp_path_factory.mktemp("log") / "topic-0", seed)


def end(model: ModelLog) -> End:
    return end_of(model.log)


def content(found: FileSlice) -> bytes:
    with open(found.path, "rb") as file:
        assert os.fstat(file.fileno()).st_ino == found.inode
        return os.pread(file.fileno(), found.length, found.position)


def expected(model: ModelLog, offset: int, max_bytes: int, segment_ends: set[int], limit: int) -> list[bytes]:
    """Return the batches of a fetch: from the one with `offset`, up to a segment's end or the size."""
    parts: list[bytes] = []
    for data in model.acknowledged:
        ((_, header),) = batch_headers(data)
        if header.last_offset < offset:
            continue
        if header.base_offset >= limit or (parts and header.base_offset in segment_ends):
            break
        if parts and sum(map(len, parts)) + len(data) > max_bytes:
            break
        parts.append(data)
        if len(data) >= max_bytes:
            break
    return parts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_locate_against_the_list(model: ModelLog, data: st.DataObject) -> None:
    """Any offset, also in the middle of a batch (`12`), any size, one reader with a cache and one without."""
    bases = {info.base_offset for info in model.log.segments()}
    reader = LogReader(model.directory)
    for _ in range(data.draw(st.integers(1, 6))):
        offset = data.draw(st.integers(0, model.log.log_end_offset - 1))
        max_bytes = data.draw(st.one_of(st.integers(0, 400), st.integers(0, 4000)))
        for one in (reader, LogReader(model.directory)):
            found = present(one.locate(offset, end(model), max_bytes))
            parts = expected(model, offset, max_bytes, bases, model.log.log_end_offset)
            assert content(found) == b"".join(parts)
            ((_, last),) = batch_headers(parts[-1])
            assert found.next_offset == last.last_offset + 1


@pytest.mark.parametrize("max_bytes", [1, 100, 333, 1000, 1_000_000])
def test_reading_on_from_slice_to_slice(model: ModelLog, max_bytes: int) -> None:
    assert read_everything(model.directory, end(model), max_bytes=max_bytes) == b"".join(model.acknowledged)


def test_nothing_at_the_end_and_nothing_beyond(model: ModelLog) -> None:
    reader = LogReader(model.directory)
    at_end = present(reader.locate(end(model)[0], end(model), 1000))
    assert (at_end.length, at_end.next_offset) == (0, end(model)[0])
    assert reader.locate(end(model)[0] + 1, end(model), 1000) is None


def test_a_first_batch_that_is_too_large(model: ModelLog) -> None:
    reader = LogReader(model.directory)
    nothing = reader.locate(0, end(model), 10, min_one_batch=False)
    one = reader.locate(0, end(model), 10)
    assert nothing is not None
    assert one is not None
    assert (nothing.length, nothing.next_offset) == (0, 0)
    assert content(one) == model.acknowledged[0]


def test_records_beyond_the_published_end_are_hidden(tmp_path: Path) -> None:
    model = ModelLog(tmp_path / "topic-0", SMALL)
    log = model.open()
    reader = LogReader(model.directory)
    for count in range(1, 60):
        data = batch(1, size=count)
        stage(log, data)
        before = end_of(log)
        log.commit()
        assert reader.locate(before[0], before, 10_000) == FileSlice(b"", 0, 0, 0, before[0])
        found = present(reader.locate(before[0], end_of(log), 10_000))
        assert found.next_offset == log.log_end_offset
        assert content(found) == stored(data, before[0], 0)


def test_a_follower_needs_no_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    model.append([batch(1)])
    reader = LogReader(model.directory)
    reader.locate(0, end(model), 10_000)
    model.append([batch(1)])
    with monkeypatch.context() as patched:
        for name in ("open", "stat", "listdir", "pread"):
            patched.setattr(os, name, failing(AssertionError("a system call")))
        found = reader.locate(1, end(model), 10_000)
    assert found is not None
    assert content(found) == model.acknowledged[1]


def test_segments_deleted_by_retention(tmp_path: Path) -> None:
    """Offsets below are out of range, the rest is still readable."""
    model = filled(tmp_path / "topic-0", 5)
    log = model.log
    reader = LogReader(model.directory)
    assert reader.locate(0, end(model), 1000) is not None
    start = log.segments()[2].base_offset
    log.delete_records_before(start)
    reader.forget_missing()
    assert reader.locate(0, end(model), 1000) is None
    assert present(reader.locate(start, end(model), 1000)).position == 0
    assert finished(reader.offset_for_timestamp(0, start, end(model))) is not None


def test_a_removed_newer_segment_does_not_hide_older_ones(tmp_path: Path) -> None:
    """An owner whose write fails removes a new segment again, and may start the next one at a lower offset."""
    model = ModelLog(tmp_path / "topic-0", SMALL)
    log = model.open()
    model.append([batch(1)])
    begun = model.directory / f"{20:020}.log"
    begun.touch()
    reader = LogReader(model.directory)
    assert finished(reader.offset_for_timestamp(0, 0, end(model))) is not None
    begun.unlink()
    assert log.roll()
    model.append([batch(1)])
    assert content(present(reader.locate(1, end(model), 10_000))) == model.acknowledged[1]


def test_a_deleted_directory(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    assert LogReader(tmp_path / "empty").locate(0, (5, 0, 100), 1000) is None
    assert reader.locate(0, (5, 0, 100), 1000) is None
    assert finished(reader.offset_for_timestamp(0, 0, (5, 0, 100))) is None
    assert finished(reader.max_timestamp(0, (5, 0, 100))) is None
    assert reader.epoch_for_offset(0) == -1


def test_an_index_that_is_missing_costs_time_only(tmp_path: Path) -> None:
    model = filled(tmp_path / "topic-0", 6)
    for path in [*model.directory.glob("*.index"), *model.directory.glob("*.timeindex")]:
        path.unlink()
    assert read_everything(model.directory, end(model), max_bytes=300) == b"".join(model.acknowledged)
    assert finished(LogReader(model.directory).max_timestamp(0, end(model))) is not None


# ---- timestamps -----------------------------------------------------------------------------------------------


def all_records(model: ModelLog) -> list[tuple[int, int]]:
    return [(record.timestamp_ms, record.offset) for data in model.acknowledged for record in iterate_records(data)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(timestamp=st.integers(TIMESTAMP_MS - 300, TIMESTAMP_MS + 1300), start=st.integers(0, 300))
def test_offset_for_timestamp_against_the_list(model: ModelLog, timestamp: int, start: int) -> None:
    """The first record at or after the timestamp, from the log start on, in compressed batches too (`9`)."""
    # Kafka searches batches by their largest timestamp, which the producer sets: here the last record's.
    wanted = [
        (record.timestamp_ms, record.offset)
        for data in model.acknowledged
        for _, header in batch_headers(data)
        for record in iterate_records(data)
        if header.max_timestamp >= timestamp and record.timestamp_ms >= timestamp and record.offset >= start
    ]
    found = finished(LogReader(model.directory).offset_for_timestamp(timestamp, start, end(model)))
    assert (found and (found.timestamp_ms, found.offset)) == (wanted[0] if wanted else None)


def test_max_timestamp_against_the_list(tmp_path: Path) -> None:
    for seed in range(5):
        model = filled(tmp_path / f"{seed}" / "topic-0", seed)
        stated = max(header.max_timestamp for data in model.acknowledged for _, header in batch_headers(data))
        found = present(finished(LogReader(model.directory).max_timestamp(0, end(model))))
        assert (found.timestamp_ms, found.offset) == next(pair for pair in all_records(model) if pair[0] == stated)


def test_the_first_of_several_with_the_largest_timestamp(tmp_path: Path) -> None:
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    model.append([batch(3, timestamp_ms=5), batch(3, timestamp_ms=9), batch(1, timestamp_ms=9)])
    found = present(finished(LogReader(model.directory).max_timestamp(0, end(model))))
    assert (found.timestamp_ms, found.offset, found.leader_epoch) == (9, 3, 0)


def test_log_append_time_gives_all_records_one_time(tmp_path: Path) -> None:
    clock = FakeClock(wall_ms=500)
    model = ModelLog(tmp_path / "topic-0", LogConfig(message_timestamp_type="LogAppendTime"), clock)
    log = model.open()
    for _ in range(3):
        stage(log, batch(3, timestamp_ms=1))
        log.commit()
        clock.advance_ms(100)
    reader = LogReader(model.directory)
    found = present(finished(reader.offset_for_timestamp(501, 0, end(model))))
    assert (found.timestamp_ms, found.offset) == (600, 3)


def test_no_timestamps_and_no_records(tmp_path: Path) -> None:
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    reader = LogReader(model.directory)
    assert finished(reader.max_timestamp(0, end(model))) is None
    assert finished(reader.offset_for_timestamp(0, 0, end(model))) is None
    model.append([batch(2, timestamp_ms=-1), batch(2, timestamp_ms=-1)])
    assert finished(reader.max_timestamp(0, end(model))) == (-1, 0, 0)
    assert finished(reader.max_timestamp(1, end(model))) == (-1, 1, 0)
    assert finished(reader.offset_for_timestamp(0, 0, end(model))) is None


#: Three records at 1000, 2000 and 3000 ms: the first one at or after a time.
LOOK_UPS = {0: 0, 1000: 0, 1500: 1, 2500: 2, 3001: -1}


def three_records(codec: int = 0, *, max_timestamp_ms: int) -> memoryview:
    """Return three records at 1000, 2000 and 3000 ms under a header with any largest timestamp."""
    records = b"".join(encoded_record(number, 1000 * number, key=b"k") for number in range(3))
    return memoryview(
        bytearray(lying_batch(records, 3, codec=codec, base_timestamp_ms=1000, max_timestamp_ms=max_timestamp_ms))
    )


SETTINGS = (
    {},
    {"cleanup_policy": ("compact",)},
    {"compression_type": "zstd"},
    {"compression_type": "uncompressed"},
    {"internal_validate_records": False},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("codec", range(5))
def test_a_header_without_the_largest_timestamp(tmp_path: Path, codec: int, settings: dict[str, object]) -> None:
    """Kafka computes it: look-ups by time, of the latest record, and the age of the segment follow it."""
    model = ModelLog(tmp_path / "topic-0", LogConfig(**settings))
    log = model.open()
    results = [stage(log, three_records(codec, max_timestamp_ms=untold), log.commit)[0] for untold in (-1, 999)]
    log.commit()
    model.published = published_end(log)
    assert results == [0, 0]
    reader = LogReader(model.directory)
    for timestamp, offset in LOOK_UPS.items():
        found = finished(reader.offset_for_timestamp(timestamp, 0, end(model)))
        assert (-1 if found is None else found.offset) == offset, timestamp
    assert finished(reader.max_timestamp(0, end(model))) == (3000, 2, 0)
    for _, header in batch_headers(log_bytes(model.directory)):
        assert header.max_timestamp == 3000


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    log = model.open()
    assert stage(log, three_records(max_timestamp_ms=9000))[0] == 0
    log.commit()
    [(_, header)] = batch_headers(log_bytes(model.directory))
    assert header.max_timestamp == 3000


def test_look_ups_in_logs_of_an_earlier_version(tmp_path: Path) -> None:
    """It stored headers without the largest timestamp unchanged."""
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    model.append([three_records(max_timestamp_ms=-1)], is_own=True)
    reader = LogReader(model.directory)
    for timestamp, offset in LOOK_UPS.items():
        found = finished(reader.offset_for_timestamp(timestamp, 0, end(model)))
        assert (-1 if found is None else found.offset) == offset, timestamp


def test_leader_epochs_are_read_again_when_they_change(tmp_path: Path) -> None:
    """OffsetForLeaderEpoch for any partition reads them (`39`)."""
    model = ModelLog(tmp_path / "topic-0", LogConfig())
    model.open()
    model.append([batch(3)])
    reader = LogReader(model.directory)
    assert (reader.epoch_for_offset(2), reader.epoch_end_offset(0, 3)) == (0, (0, 3))
    model.log.close()
    model.published = None
    model.open()
    model.append([batch(2)])
    assert published_end(model.log).end_offset
    assert (reader.epoch_for_offset(2), reader.epoch_for_offset(4)) == (0, 1)
    assert [reader.epoch_end_offset(epoch, 5) for epoch in (0, 1, 2, -1)] == [(0, 3), (1, 5), (-1, -1), (-1, -1)]


def promising(count: int, codec: int = 0) -> memoryview:
    """Return a batch whose header claims a record a day after its last one, as earlier versions accepted it."""
    records = records_of(record_batch([b"x" * 50] * count))
    promised_ms = TIMESTAMP_MS + 86_400_000
    return memoryview(bytearray(lying_batch(records, count, codec=codec, max_timestamp_ms=promised_ms)))


@pytest.mark.parametrize("codec", range(5))
def test_a_few_promises_that_are_not_kept_do_not_matter(tmp_path: Path, codec: int) -> None:
    model = ModelLog(tmp_path / "topic-0", SMALL)
    model.open()
    model.append(
        [batch(3), *(promising(4, codec) for _ in range(20)), batch(2, timestamp_ms=TIMESTAMP_MS + 5)], is_own=True
    )
    reader = LogReader(model.directory)
    found = finished(reader.offset_for_timestamp(TIMESTAMP_MS + 1, 0, end(model)))
    assert (found and (found.timestamp_ms, found.offset)) == (TIMESTAMP_MS + 5, 83)
    assert finished(reader.offset_for_timestamp(TIMESTAMP_MS + 6, 0, end(model))) is None


def test_how_far_promises_are_followed_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is then the offset that the search has reached: no earlier record matches."""
    monkeypatch.setattr(timestamp_search, "MOST_RECORDS", 50)
    model = ModelLog(tmp_path / "topic-0", SMALL)
    model.open()
    model.append([batch(3), *(promising(4) for _ in range(40)), batch(2, timestamp_ms=TIMESTAMP_MS + 5)], is_own=True)
    reader = LogReader(model.directory)
    for start in (0, 7, 8):
        found = finished(reader.offset_for_timestamp(TIMESTAMP_MS + 1, start, end(model)))
        first = max(3, start)
        assert found is not None
        assert first + 30 < found.offset <= first + 53
        assert found.timestamp_ms == TIMESTAMP_MS + 86_400_000
    found = present(finished(reader.max_timestamp(0, end(model))))
    assert found.timestamp_ms == TIMESTAMP_MS + 86_400_000
    assert 3 <= found.offset <= 53


@pytest.mark.parametrize("codec", [0, 4])
def test_a_large_batch_is_looked_into_to_the_record_and_others_are_served_meanwhile(tmp_path: Path, codec: int) -> None:
    model = ModelLog(tmp_path / "topic-0", LogConfig(max_message_bytes=1 << 24))
    model.open()
    model.append([batch(60_000, size=1, timestamp_step_ms=1, codec=codec)])
    search = LogReader(model.directory).offset_for_timestamp(TIMESTAMP_MS + 59_000, 0, end(model))
    for _ in range(59):
        next(search)  # a slice
    assert finished(search) == (TIMESTAMP_MS + 59_000, 59_000, 0)


def test_headers_that_are_looked_at_count_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment may hold millions of them in a batch with a false timestamp."""
    monkeypatch.setattr(timestamp_search, "MOST_RECORDS", 100)
    model = ModelLog(tmp_path / "topic-0", LogConfig(message_timestamp_after_max_ms=2**60))
    model.open()
    model.append([promising(1), *(batch(1) for _ in range(500)), batch(1, timestamp_ms=TIMESTAMP_MS + 5)], is_own=True)
    found = present(finished(LogReader(model.directory).offset_for_timestamp(TIMESTAMP_MS + 1, 0, end(model))))
    assert 90 <= found.offset <= 100


def test_a_few_bytes_that_expand_to_very_many_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_search, "MOST_BYTES", 100_000)
    model = ModelLog(tmp_path / "topic-0", LogConfig(message_timestamp_after_max_ms=2**60))
    model.open()
    large = records_of(record_batch([b"x" * 50, bytes(1_000_000)]))
    bomb = lying_batch(large, 2, codec=4, max_timestamp_ms=TIMESTAMP_MS + 1)
    model.append([batch(3), memoryview(bytearray(bomb)), batch(2, timestamp_ms=TIMESTAMP_MS + 5)], is_own=True)
    found = present(finished(LogReader(model.directory).offset_for_timestamp(TIMESTAMP_MS + 1, 0, end(model))))
    assert found.offset == 4  # the second of its records, which could not be read


def test_a_batch_that_cannot_be_read_is_corrupt_and_only_where_it_matters(tmp_path: Path) -> None:
    model = ModelLog(tmp_path / "topic-0", SMALL)
    model.open()
    unreadable = memoryview(bytearray(lying_batch(bytes(50), 4, codec=1, max_timestamp_ms=TIMESTAMP_MS + 1)))
    model.append([batch(3), unreadable, batch(2, timestamp_ms=TIMESTAMP_MS + 5)], is_own=True)
    reader = LogReader(model.directory)
    with pytest.raises(ApiError) as raised:
        finished(reader.offset_for_timestamp(TIMESTAMP_MS + 1, 0, end(model)))
    assert raised.value.code == 2
    for timestamp, offset in ((TIMESTAMP_MS, 0), (TIMESTAMP_MS + 2, 7)):
        assert present(finished(reader.offset_for_timestamp(timestamp, 0, end(model)))).offset == offset
