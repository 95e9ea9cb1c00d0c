"""Batches that the broker writes itself, read by third-party code."""

import random

import pytest
from aiokafka.record.memory_records import MemoryRecords

from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, crc_ok, patch_base_offset, read_header, validate
from rotunda.broker.records.record_reader import Record, iterate_records
from rotunda.broker.records.record_writer import (
    BatchBuilder,
    EndTransactionMarker,
    end_transaction_marker,
    read_marker,
)
from tests.support.feeds import random_seed
from tests.support.record_batches import TIMESTAMP_MS, record_batch

PAIRS = [(b"k", b"v" * 300), (None, b"x"), (b"tombstone", None), (b"", b"")]


def test_a_batch_is_the_same_as_a_producers() -> None:
    built = BatchBuilder(PAIRS).build(
        TIMESTAMP_MS, producer_id=7, producer_epoch=3, base_sequence=9, transactional=True
    )
    sent = record_batch(
        [value for _, value in PAIRS],
        keys=[key for key, _ in PAIRS],
        producer_id=7,
        producer_epoch=3,
        base_sequence=9,
        attributes=0x10,
    )
    assert bytes(built) == sent
    plain = BatchBuilder(PAIRS).build(TIMESTAMP_MS, producer_id=7, producer_epoch=3, base_sequence=9)
    assert validate(plain, read_header(plain), 9) == 0


def test_aiokafka_reads_a_batch() -> None:
    batch = BatchBuilder(PAIRS).build(TIMESTAMP_MS)
    patch_base_offset(batch, 1000, 0)
    (read,) = [list(records) for records in _batches(bytes(batch))]
    assert [(record.offset, record.timestamp, record.key, record.value) for record in read] == [
        (1000 + number, TIMESTAMP_MS, key, value) for number, (key, value) in enumerate(PAIRS)
    ]


def _batches(data: bytes) -> list:
    records = MemoryRecords(data)
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found.append(batch)
    return found


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_kafkas(commit: bool) -> None:
    """KIP-98: key = version, type; value = version, coordinator epoch; control and transactional bits; no sequence."""
    marker = end_transaction_marker(2**40, 12, 34, commit, TIMESTAMP_MS)
    header = read_header(marker)
    assert header is not None
    assert crc_ok(marker, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 12, -1)
    assert (header.record_count, header.size_bytes) == (1, len(marker)) == (1, 78)
    key, value = bytes([0, 0, 0, commit]), b"\0\0\0\0\0\x22"
    assert list(iterate_records(marker)) == [Record(0, TIMESTAMP_MS, key, value, ())]
    assert read_marker(marker) == EndTransactionMarker(commit, 34)
    (batch,) = _batches(bytes(marker))
    assert batch.is_control_batch


def test_a_batch_that_ends_no_transaction_is_no_marker() -> None:
    """Control records of other types, and the empty control batch that compaction writes."""
    for kind in (2, 5, -1):
        key = b"\0\0" + kind.to_bytes(2, "big", signed=True)
        assert read_marker(BatchBuilder([(key, b"\0\0\0\0\0\0")]).build(5, control=True)) is None
    marker = end_transaction_marker(1, 2, 3, True, 5)
    assert read_marker(marker[:61]) is None


def test_a_marker_with_longer_lengths_and_differences_is_read_alike() -> None:
    """Such markers are written by compaction or by other programs."""
    key, value = b"\0\0\0\1", b"\0\0\0\0\0\7"
    for size, times in ((b"\x22", b"\xd0\x0f"), (b"\xa0\0", b"\0"), (b"\x2a", b"\xff\xff\xff\xff\x0f")):
        record = size + b"\0" + times + b"\0" + b"\x08" + key + b"\x0c" + value + b"\0"
        marker = end_transaction_marker(1, 2, 3, True, 5)[:BATCH_HEADER_BYTES] + record
        assert read_marker(marker) == EndTransactionMarker(commit=True, coordinator_epoch=7)


def test_random_batches_are_read_as_written() -> None:
    numbers = random.Random(random_seed())
    for _ in range(100):
        pairs = [
            tuple(numbers.choice([None, numbers.randbytes(numbers.randrange(400))]) for _ in range(2))
            for _ in range(numbers.randrange(1, 200))
        ]
        batch = BatchBuilder(pairs).build(numbers.randrange(2**45))
        assert [(record.key, record.value) for record in iterate_records(batch)] == pairs
