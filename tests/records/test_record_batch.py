"""Record batches: which are accepted or rejected, with which error code, and which fields the broker may write."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

from rotunda.broker.records.record_batch import (
    BATCH_HEADER_BYTES,
    batch_headers,
    crc_ok,
    patch_base_offset,
    patch_log_append_time,
    read_header,
    validate,
)
from tests.support.feeds import mutations, random_seed
from tests.support.record_batches import TIMESTAMP_MS, record_batch

GOOD = record_batch([b"one", b"two", None])


def _verdict(batch: bytes, produce_version: int = 7) -> int:
    return validate(memoryview(batch), read_header(batch), produce_version)


def _with(position: int, data: bytes, batch: bytes = GOOD) -> bytes:
    """Return the batch with some bytes replaced and, if the checksum covers them, with a valid checksum."""
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    if position >= 21:
        changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def test_header_fields_are_where_a_producer_puts_them() -> None:
    batch = record_batch(
        [b"a", b"b"], producer_id=9, producer_epoch=3, base_sequence=5, base_offset=77, codec=4, attributes=0x10
    )
    header = read_header(b"??" + batch, 2)
    assert header is not None
    assert (header.base_offset, header.last_offset, header.record_count) == (77, 78, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 5)
    assert (header.base_timestamp, header.max_timestamp) == (TIMESTAMP_MS, TIMESTAMP_MS)
    assert (header.size_bytes, header.codec, header.magic, header.leader_epoch) == (len(batch), 4, 2, -1)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.is_log_append_time
    assert read_header(batch[: BATCH_HEADER_BYTES - 1]) is None


@pytest.mark.parametrize("codec", range(5))
def test_c14_good_batches_are_accepted(codec: int) -> None:
    assert _verdict(record_batch([b"x" * 100] * 50, codec=codec)) == 0


REFUSED: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", 87),
    "less than a magic": (lambda: GOOD[:16], 87),
    "less than a header": (lambda: GOOD[:60], 87),
    "cut off": (lambda: GOOD[:-1], 87),
    "two batches": (lambda: GOOD + GOOD, 87),
    "bytes behind": (lambda: GOOD + b"x", 87),
    "magic 0": (lambda: _with(16, b"\x00"), 87),
    "magic 1": (lambda: _with(16, b"\x01"), 87),
    "magic 3": (lambda: _with(16, b"\x03"), 2),
    "magic -1": (lambda: _with(16, b"\xff"), 2),
    "negative length": (lambda: _with(8, b"\xff\xff\xff\xff"), 2),
    "negative length, short": (lambda: _with(8, b"\xff\xff\xff\xff")[:40], 2),
    "length below a header": (lambda: _with(8, b"\x00\x00\x00\x20"), 2),
    "length beyond the end": (lambda: _with(8, b"\x7f\xff\xff\xff"), 87),
    "wrong checksum": (lambda: _with(17, b"\x00\x00\x00\x00"), 2),
    "damaged record": (lambda: GOOD[:-2] + b"\xee" + GOOD[-1:], 2),
    "base offset not 0": (lambda: _with(0, b"\x00" * 7 + b"\x01"), 87),
    "unknown codec": (lambda: _with(21, b"\x00\x05"), 76),
    "control batch": (lambda: _with(21, b"\x00\x20"), 87),
    "no records": (lambda: _with(57, b"\x00\x00\x00\x00"), 87),
    "count and offsets disagree": (lambda: _with(57, b"\x00\x00\x00\x02"), 87),
    "negative last offset": (lambda: _with(23, b"\xff\xff\xff\xff"), 87),
    "producer without sequence": (lambda: _with(43, b"\x00" * 8), 87),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_c14_bad_batches_are_rejected_with_kafkas_code(name: str) -> None:
    make, code = REFUSED[name]
    assert _verdict(make()) == code


def test_c14_zstd_needs_produce_7() -> None:
    batch = record_batch([b"x"], codec=4)
    assert _verdict(batch, 6) == 76
    assert _verdict(batch, 7) == 0


def test_c14_lz4_blocks_must_not_need_those_before_them() -> None:
    """Kafka refuses them with UNKNOWN_SERVER_ERROR; its clients could never consume past such a batch."""
    batch = record_batch([b"x" * 100] * 50, codec=3)
    assert _verdict(batch) == 0
    independent, linked = batch[65], batch[65] & ~0x20
    assert independent != linked
    assert _verdict(_with(65, bytes([linked]), batch)) == 87
    assert _verdict(_with(61, b"none of LZ4's frames", batch)) == 0, "what cannot be read at all is not looked into"


def test_any_damage_after_the_crc_is_seen() -> None:
    for position in range(21, len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[position] ^= 0x40
        assert _verdict(bytes(damaged)) == 2


def test_damaged_batches_get_a_verdict() -> None:
    seed = random_seed()
    for damaged in mutations(GOOD, seed, 500):
        assert _verdict(damaged) in {0, 2, 32, 76, 87}, f"seed {seed}: {damaged.hex()}"


def test_patched_offset_and_epoch_leave_the_checksum_right() -> None:
    batch = bytearray(b"??" + GOOD)
    patch_base_offset(batch, 2**40, 7, 2)
    header = read_header(batch, 2)
    assert header is not None
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)
    assert crc_ok(batch[2:], header)


def test_log_append_time_is_every_records_time_and_the_checksum_is_renewed() -> None:
    batch = bytearray(GOOD)
    patch_log_append_time(memoryview(batch), 123)
    header = read_header(batch)
    assert header is not None
    assert header.is_log_append_time
    assert header.max_timestamp == 123
    assert crc_ok(batch, header)
    assert batch[BATCH_HEADER_BYTES:] == GOOD[BATCH_HEADER_BYTES:]


def test_walk_yields_whole_batches_and_stops_at_a_torn_one() -> None:
    batches = [record_batch([b"v"] * n) for n in (1, 5, 2)]
    whole = b"".join(batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    for size in range(len(whole) + 1):
        expected = [start for start, batch in zip(starts, batches, strict=True) if start + len(batch) <= size]
        assert [position for position, _ in batch_headers(whole[:size])] == expected
        assert [position for position, _ in batch_headers(whole, 0, size)] == expected
    assert [p for p, _ in batch_headers(whole, starts[1])] == starts[1:]
    assert list(batch_headers(bytes(100))) == []
    assert list(batch_headers(_with(8, b"\xff\xff\xff\xf4"))) == []
