"""Batches as a producer encodes them can be read by the broker's reader, whichever way the records were appended."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.client.errors import KafkaError, TopicAuthorizationFailed
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import Compression
from rotunda.broker.client.producer.futures import RecordFuture
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.records.crc import crc32c
from rotunda.broker.records.record_batch import CODECS, CRC_START, read_header
from rotunda.broker.records.record_reader import Record, iterate_records
from rotunda.broker.records.record_writer import headers_bytes
from tests.client.producer.lanes import by_lane
from tests.support.fakes import FakeClock
from tests.support.feeds import random_seed

PARTITION = TopicPartition("t", 3)
BASE_MS = 1_700_000_000_000


def batch_of(size: int = 1 << 20, codec: str = "none") -> ProducerBatch:
    return ProducerBatch(PARTITION, size, 0.0, Compression(CODECS.index(codec)))


class Appender:
    """A batch, and the short way to it, which is opened as often as it has ended."""

    def __init__(self, batch: ProducerBatch) -> None:
        self.batch = batch
        self.clock = FakeClock(wall_ms=BASE_MS)
        self.lane = batch.open_lane(1 << 24, self.clock)

    def append(self, record: Record, short: bool) -> RecordFuture | None:
        """Append a record, by the short way if that is requested and possible."""
        if short and record.key is None and not record.headers:
            self.clock.set_wall(record.timestamp_ms - self.clock.wall_ms())
            future = by_lane(self.lane, record.value, record.timestamp_ms if record.offset % 3 == 0 else None)
            if future is not None:
                return future
        self.batch.close_lane()
        headers = headers_bytes(record.headers)
        future = self.batch.try_append(record.timestamp_ms, record.key, record.value, headers, None)
        self.lane = self.batch.open_lane(1 << 24, self.clock)
        return future


def random_record(chance: random.Random, offset: int) -> Record:
    sizes = (0, 1, 20, 63, 64, 100, 8_191, 8_192)
    key = chance.randbytes(chance.choice(sizes)) if chance.random() < 0.3 else None
    value = chance.randbytes(chance.choice(sizes)) if chance.random() < 0.9 else None
    headers = (("trace", b"1"), ("null", None), ("é", b"")) if chance.random() < 0.2 else ()
    return Record(offset, BASE_MS + chance.choice((0, 0, 0, 1, 63, 64, 10_000, -5)), key, value, headers)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_all_kinds_are_read_as_they_were_appended(codec) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    batch, records = batch_of(1 << 24, codec), []
    appender, futures = Appender(batch), []
    for offset in range(chance.choice((1, 70, 2_500))):
        records.append(random_record(chance, offset))
        futures.append(appender.append(records[-1], chance.random() < 0.9))
    batch.close_lane()
    batch.set_producer_state(7, 2, 40, False)
    wire = batch.close()
    header = read_header(wire)
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.max_timestamp == max(each.timestamp_ms for each in records)
    assert header.crc == crc32c(wire[CRC_START:])
    assert list(iterate_records(wire, 1 << 26)) == records
    batch.done(1000, -1)
    assert [
        (each.offset - 1000, each.timestamp_ms, each.serialized_value_size)
        for each in (future.result(0) for future in futures if future)
    ] == [(each.offset, each.timestamp_ms, -1 if each.value is None else len(each.value)) for each in records]


def test_g16_a_batch_accepts_no_record_beyond_its_size_but_a_first_one() -> None:
    batch = batch_of(200)
    assert batch.try_append(BASE_MS, None, bytes(500), headers_bytes(()), None) is not None
    assert batch.is_full
    assert batch.try_append(BASE_MS, None, b"", headers_bytes(()), None) is None
    small = batch_of(200)
    lane = small.open_lane(1000, FakeClock())
    while by_lane(lane, bytes(20)) is not None:
        pass
    small.close_lane()
    assert 150 < len(small.close()) <= 200


def test_a_batch_that_gets_another_sequence_is_written_again_and_the_earlier_memory_stays() -> None:
    batch = batch_of()
    batch.try_append(BASE_MS, b"k", b"v", headers_bytes(()), None)
    batch.set_producer_state(7, 0, 5, True)
    before = batch.close()
    kept = bytes(before)
    batch.reset_producer_state((7, 1), 0)
    assert batch.sequence_has_been_reset
    after = batch.close()
    assert bytes(before) == kept
    header = read_header(after)
    assert header is not None
    assert (header.producer_epoch, header.base_sequence, header.is_transactional) == (1, 0, True)
    assert header.crc == crc32c(after[CRC_START:])


def test_g26_the_parts_of_a_split_batch_have_its_records_futures_and_callbacks() -> None:
    reported: list[tuple[int, KafkaError | None]] = []
    batch = batch_of()
    futures = [
        batch.try_append(
            BASE_MS + n,
            b"%d" % n,
            bytes(50),
            headers_bytes(()),
            lambda meta, error: reported.append((meta.offset, error)),
        )
        for n in range(10)
    ]
    batch.set_producer_state(7, 0, 100, False)
    batch.close()
    parts = batch.split(300)
    assert len(parts) > 2
    assert not any(future.done() for future in futures if future)
    sequence, records, base = 100, [], 1000
    for part in parts:
        assert part.base_sequence == sequence
        sequence += part.record_count
        records += [each.key for each in iterate_records(part.close())]
        part.done(base, -1)
        base += part.record_count
    assert records == [b"%d" % n for n in range(10)]
    assert [future.result(0).offset for future in futures if future] == list(range(1000, 1010))
    assert reported == [(offset, None) for offset in range(1000, 1010)]


def test_g27_a_batch_is_completed_once() -> None:
    """`G27`: the later results of a completed batch are ignored."""
    batch = batch_of()
    future = batch.try_append(BASE_MS, None, b"v", headers_bytes(()), None)
    assert future is not None
    assert batch.complete_exceptionally(TopicAuthorizationFailed("no"))
    assert not batch.done(5, -1)
    with pytest.raises(TopicAuthorizationFailed):
        future.result(0)


def test_errors_of_single_records_are_theirs_alone() -> None:
    batch = batch_of()
    futures = [batch.try_append(BASE_MS, None, b"v", headers_bytes(()), None) for _ in range(2)]
    batch.complete_exceptionally(KafkaError("of all"), {1: KafkaError("its own")})
    assert [str(future.exception(0)) for future in futures if future] == ["of all", "its own"]
