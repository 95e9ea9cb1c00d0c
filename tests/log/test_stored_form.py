"""Topic settings that change stored batches: compression.type and its levels, message.timestamp.type."""

import random

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import crc_ok, read_header
from rotunda.broker.records.record_reader import iterate_records
from tests.log.log_writer import NAME, log_bytes, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS, lying_batch, record_batch, records_of
from tests.support.results import present

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {number: name for name, number in CODECS.items()}
VALUES = [b"value %d" % number * 20 for number in range(50)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=TIMESTAMP_MS)


def open_log(tmp_path, clock: FakeClock, **settings: object) -> PartitionLog:
    return PartitionLog.open(tmp_path / "topic-0", NAME, LogConfig(**settings), clock, Checkpointed())


def sent(codec: int, **fields: object) -> memoryview:
    keys = [b"key %d" % number for number in range(50)]
    batch = record_batch(VALUES, keys=keys, codec=codec, timestamp_step_ms=-3, headers=[("h", b"x")], **fields)
    return memoryview(bytearray(batch))


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", range(5))
def test_batches_are_stored_in_the_topics_codec(tmp_path, clock: FakeClock, target: str, source: int) -> None:
    """users.md row 8: compression.type takes effect. Offsets, timestamps, headers and sequence numbers stay."""
    log = open_log(tmp_path, clock, compression_type=target)
    for number in range(3):
        batch = sent(source, producer_id=4, producer_epoch=0, base_sequence=50 * number)
        before = bytes(batch)
        assert stage(log, batch) == (0, 50 * number, -1)
        # The note in the client's own memory, read again after a crash. Other bytes are unchanged, except the leader
        # epoch of a batch that keeps its codec.
        assert int.from_bytes(batch[:8], "big") == 50 * number
        unchanged = 16 if source == CODECS[target] else 8
        assert bytes(batch[unchanged:]) == before[unchanged:]
    log.commit()
    stored = log_bytes(log.directory)
    header = present(read_header(stored))
    assert log.position == len(stored) == 3 * header.size_bytes
    assert header.codec == CODECS[target]
    assert (header.producer_id, header.base_sequence, header.record_count) == (4, 0, 50)
    assert crc_ok(stored[: header.size_bytes], header)
    assert list(iterate_records(stored[: header.size_bytes])) == list(iterate_records(bytes(sent(source))))


def test_the_producers_codec_is_kept_by_default(tmp_path, clock: FakeClock) -> None:
    log = open_log(tmp_path, clock)
    batch = sent(4)
    stage(log, batch)
    log.commit()
    assert log_bytes(log.directory) == bytes(batch)


def test_codec_and_append_time_together(tmp_path, clock: FakeClock) -> None:
    log = open_log(tmp_path, clock, compression_type="zstd", message_timestamp_type="LogAppendTime")
    clock.advance_ms(77)
    batch = sent(1)
    assert stage(log, batch) == (0, 0, TIMESTAMP_MS + 77)
    log.commit()
    stored = log_bytes(log.directory)
    assert {record.timestamp_ms for record in iterate_records(stored)} == {TIMESTAMP_MS + 77}
    assert [record.value for record in iterate_records(stored)] == VALUES


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_levels_of_compression_are_applied(tmp_path, clock: FakeClock, codec: str) -> None:
    sizes = []
    numbers = random.Random(3)
    words = [bytes(numbers.choices(b"abcdefgh", k=numbers.randrange(2, 9))) for _ in range(400)]
    values = [b" ".join(numbers.choices(words, k=100)) for _ in range(200)]
    for level in (1, 9):
        log = open_log(tmp_path / f"{level}", clock, compression_type=codec, **{f"compression_{codec}_level": level})
        batch = memoryview(bytearray(record_batch(values)))
        assert stage(log, batch)[0] == 0
        log.commit()
        sizes.append(log.position)
    assert sizes[1] < sizes[0]


def test_limits_hold_before_and_after(tmp_path, clock: FakeClock) -> None:
    """users.md row 12: max.message.bytes applies to the received batch and to the stored one."""
    log = open_log(tmp_path, clock, compression_type="uncompressed", max_message_bytes=3_000)
    batch = memoryview(bytearray(record_batch([b"x" * 4_000])))
    assert stage(log, batch)[0] == int(ErrorCode.MESSAGE_TOO_LARGE)
    batch = memoryview(bytearray(record_batch([b"x" * 4_000], codec=1)))
    assert len(batch) < 3_000
    assert stage(log, batch)[0] == int(ErrorCode.MESSAGE_TOO_LARGE)
    batch = memoryview(bytearray(record_batch([b"x" * 2_000], codec=1)))
    assert stage(log, batch)[0] == 0


def test_records_that_cannot_be_unpacked_are_rejected(tmp_path, clock: FakeClock) -> None:
    log = open_log(tmp_path, clock, compression_type="zstd")
    batch = bytearray(record_batch([b"x" * 400]))
    batch[22] = 1
    assert stage(log, memoryview(batch)) == (int(ErrorCode.CORRUPT_MESSAGE), -1, -1)
    assert log.next_offset == 0


@pytest.mark.parametrize("codec", range(5))
def test_keyless_records_are_rejected_on_compacted_topics(tmp_path, clock: FakeClock, codec: int) -> None:
    """users.md row 12 (librdkafka's finding 1)."""
    log = open_log(tmp_path, clock, cleanup_policy=("compact",))
    batch = memoryview(bytearray(record_batch([b"a", b"b"], keys=[b"k", None], codec=codec)))
    assert stage(log, batch) == (int(ErrorCode.INVALID_RECORD), -1, -1)
    batch = memoryview(bytearray(record_batch([b"a", b"b"], keys=[b"k", b""], codec=codec)))
    assert stage(log, batch)[0] == 0
    long = record_batch([b"x" * 300] * 300, keys=[b"k" * 200] * 299 + [None], codec=codec, timestamp_step_ms=10_000)
    batch = memoryview(bytearray(long))
    assert stage(log, batch) == (int(ErrorCode.INVALID_RECORD), -1, -1)


ROOM = 1 << 20
STRICT = [{"cleanup_policy": ("compact",)}, {"compression_type": "uncompressed"}, {"compression_type": "zstd"}]


# A batch with the topic's own codec is stored unchanged.
UNPACKED = [
    (codec, settings)
    for codec in (1, 2, 3, 4)
    for settings in STRICT
    if settings.get("compression_type") != CODEC_NAMES[codec]
]


@pytest.mark.parametrize(("codec", "settings"), UNPACKED)
def test_records_that_expand_beyond_the_limit_are_rejected(tmp_path, clock: FakeClock, codec: int, settings) -> None:
    """Java's producer resends them in smaller batches after this error."""
    log = open_log(tmp_path, clock, internal_max_uncompressed_bytes=ROOM, max_message_bytes=ROOM, **settings)
    for size, error in ((ROOM + 1000, ErrorCode.MESSAGE_TOO_LARGE), (ROOM - 1000, ErrorCode.NONE)):
        batch = memoryview(bytearray(record_batch([bytes(size)], keys=[b"k"], codec=codec)))
        assert stage(log, batch)[0] == error
    assert log.next_offset == 1


@pytest.mark.parametrize("codec", range(5))
def test_v15_a_record_that_expands_beyond_its_limit_is_rejected(tmp_path, clock: FakeClock, codec: int) -> None:
    """Of a compressed batch, and of a record with its fields; several below the limit may be larger together."""
    batch = record_batch([b"x" * 400] * 9 + [b"y" * 500], codec=codec)
    size = len(b"y" * 500) + 9
    for most, error in ((size, 0), (size - 1, ErrorCode.INVALID_RECORD if codec else 0)):
        log = open_log(tmp_path / str(most), clock, max_decompressed_message_bytes=most)
        assert stage(log, memoryview(bytearray(batch)))[0] == error


def test_the_limit_is_never_less_than_a_whole_batch(tmp_path, clock: FakeClock) -> None:
    log = open_log(tmp_path, clock, internal_max_uncompressed_bytes=0, cleanup_policy=("compact",))
    batch = memoryview(bytearray(record_batch([bytes(1_000_000)], keys=[b"k"], codec=4)))
    assert stage(log, batch)[0] == 0


@pytest.mark.parametrize("codec", range(5))
def test_compacted_topics_reject_unreadable_batches(tmp_path, clock: FakeClock, codec: int) -> None:
    log = open_log(tmp_path, clock, cleanup_policy=("compact",))
    one = records_of(record_batch([b"x"], keys=[b"1"]))
    lies = {
        "a record of no bytes": (b"\0" * 100, 2),
        "fewer than it says": (one, 2),
        "more than it says": (one + one[:3] + b"\2" + one[4:], 1),
        "the same offset twice": (one + one, 2),
        "a key beyond the record": (one[:4] + b"\x7e" + one[5:] + bytes(100), 1),
    }
    for lie, (records, count) in lies.items():
        batch = memoryview(bytearray(lying_batch(records, count, codec=codec)))
        assert stage(log, batch) == (int(ErrorCode.INVALID_RECORD), -1, -1), lie
    assert log.next_offset == 0


def test_how_many_records_a_batch_may_claim(tmp_path, clock: FakeClock) -> None:
    """Counts above the largest number of bytes are rejected before unpacking."""
    log = open_log(tmp_path, clock, internal_max_uncompressed_bytes=ROOM, max_message_bytes=ROOM)
    most = ROOM // 7
    for count, error in ((most + 1, 10), (2**31 - 1, 10), (most, 87)):
        batch = memoryview(bytearray(lying_batch(b"x" * 100, count, codec=4)))
        assert stage(log, batch)[0] == error
    assert log.next_offset == 0
