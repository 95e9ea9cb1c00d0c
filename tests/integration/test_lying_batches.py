"""Batches with false headers: a real broker does not trust them, and its state and memory stay as they were.

The handlers' memory is read from /proc: a batch of 98 KB that claims gigabytes must not become them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.record_batches import lying_batch, record_batch, sealed_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import (
    PRODUCE,
    PRODUCE_VERSION,
    Reader,
    create_topic,
    fetch,
    produce,
    produce_body,
    read_partition,
    read_produce,
    string,
)

GZIP, ZSTD = 1, 4
MESSAGE_TOO_LARGE, INVALID_RECORD = 10, 87
BROKER_SETTINGS = {"log.cleaner.backoff.ms": 100}
#: The broker's limit for uncompressed records is 16 MiB; a handler may need that a few times over.
MOST_GROWTH_BYTES = 100 << 20
PARTITIONS = 4  # of both handlers


@pytest.fixture(autouse=True)
def bystander(broker: BrokerProcess) -> Iterator[None]:
    """See to it that no process was replaced by the end."""
    before = {row["pid"] for row in broker.processes()}
    yield
    assert {row["pid"] for row in broker.processes()} == before


def frame_of_zeros(size_bytes: int) -> bytes:
    """Return a zstd frame of so many zeros."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    piece = bytes(16 << 20)
    return b"".join([compressor.compress(piece) for _ in range(size_bytes // len(piece))] + [compressor.flush()])


def peak_bytes(broker: BrokerProcess) -> int:
    """Return the largest that any handler has ever been."""
    peaks = []
    for row in broker.processes("handler"):
        status = Path(f"/proc/{row['pid']}/status").read_text()
        peaks += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return max(peaks) * 1024


def refusal(wire: WireClient, topic: str, partition: int, batch: bytes) -> tuple[int, str, int]:
    """Produce one batch; return error code, message, and how many records are blamed."""
    body = struct.pack(">hhii", -1, -1, 1000, 1) + string(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    reader = Reader(wire.call(PRODUCE, 8, body))
    reader.number("i")
    reader.string()
    reader.number("i")
    _, error_code = reader.take("ih")
    reader.take("qqq")
    blamed = [(reader.number("i"), reader.string()) for _ in range(reader.number("i"))]
    return error_code, reader.string(), len(blamed)


@pytest.fixture(scope="module")
def zeros() -> bytes:
    """Return 98 KB that decompress to 3 GB."""
    return frame_of_zeros(3 << 30)


@pytest.mark.parametrize(
    "configs",
    [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}, {"compression.type": "uncompressed"}],
    ids=["as it is", "compacted", "packed anew", "unpacked"],
)
def test_a_batch_that_stands_for_gigabytes(broker, wire, topic, zeros, configs) -> None:
    """It is rejected, and neither that nor the search for the bad record uses more memory than the limit."""
    create_topic(wire, topic, PARTITIONS, configs=configs)
    bomb = sealed_batch(zeros, 1000, codec=ZSTD, max_timestamp_ms=time.time_ns() // 1_000_000)
    assert 90_000 < len(bomb) < 400_000
    produce(wire, topic, 0, record_batch([b"x"], keys=[b"k"], codec=ZSTD))
    before = peak_bytes(broker)
    for partition in range(PARTITIONS):
        code, message, _ = refusal(wire, topic, partition, bomb)
        assert code == MESSAGE_TOO_LARGE
        assert f"{topic}-{partition}" in message
        assert "16777216 bytes uncompressed (message.max.uncompressed.bytes)" in message
    assert peak_bytes(broker) - before < MOST_GROWTH_BYTES


@pytest.mark.parametrize("codec", range(5))
def test_counts_that_the_payload_cannot_hold_are_rejected(wire, topic, codec) -> None:
    create_topic(wire, topic, PARTITIONS)
    one = record_batch([b"x"])[61:]
    for partition in range(PARTITIONS):
        for count in (2**31 - 1, 10_000_000):
            assert refusal(wire, topic, partition, lying_batch(one, count, codec=codec))[0] == INVALID_RECORD
        assert produce(wire, topic, partition, record_batch([b"good"])).base_offset == 0
        assert [record.value for record in read_partition(wire, topic, partition)] == [b"good"]


@pytest.mark.parametrize("count", [2**31 - 1, 1 - 2**31])
def test_counts_that_lie_in_several_parts_of_a_request_are_rejected_one_by_one(wire, topic, count) -> None:
    """Together they are more than the request log has room for, and that affects only their own rows."""
    create_topic(wire, topic, PARTITIONS)
    lie = lying_batch(record_batch([b"x"])[61:], count)
    parts = [(topic, partition, lie) for partition in range(PARTITIONS - 1)]
    body = produce_body([*parts, (topic, PARTITIONS - 1, record_batch([b"good"]))])
    answers = read_produce(wire.call(PRODUCE, PRODUCE_VERSION, body))
    refused = [INVALID_RECORD] * (PARTITIONS - 1)
    assert [answer.error_code for answer in answers] == [*refused, 0]


def test_more_records_than_can_be_taken_at_once_are_rejected(wire, topic) -> None:
    """The payload might hold them."""
    create_topic(wire, topic)
    code, message, _ = refusal(wire, topic, 0, lying_batch(bytes(1 << 20), 2**31 - 1, codec=0))
    assert (code, message) == (INVALID_RECORD, "")
    code, message, _ = refusal(wire, topic, 0, sealed_batch(bytes(500_000), 2**31 - 1, codec=ZSTD))
    assert code == MESSAGE_TOO_LARGE
    assert "2147483647 records" in message
    assert produce(wire, topic, 0, record_batch([b"good"])).base_offset == 0


def test_compaction_goes_on_beside_a_record_of_no_bytes(broker: BrokerProcess, wire, topic) -> None:
    """It was written before the topic was compacted, or it would have been rejected."""
    create_topic(wire, topic, configs={"segment.ms": 1000, "internal.validate.records": "false"})
    now_ms = time.time_ns() // 1_000_000

    def keyed(value: bytes) -> bytes:
        return record_batch([value], keys=[b"k"], timestamp_ms=now_ms)

    for batch in (keyed(b"old"), lying_batch(b"\0" * 100, 3), keyed(b"new")):
        assert produce(wire, topic, 0, batch).error_code == 0
    change = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0"))
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=change)
    position = broker.log_bytes()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(deadline_s())
    wait_until(lambda: refusal(wire, topic, 0, lying_batch(b"\0" * 100, 3))[0] == INVALID_RECORD, "a compacted topic")

    def first_batch() -> bytes:
        later_ms = now_ms + 60_000  # its segment is full by time
        batch = record_batch([b"later"], keys=[b"l"], timestamp_ms=later_ms)
        assert produce(wire, topic, 0, batch).error_code == 0
        return fetch(wire, topic, 0, 0).records

    assert first_batch().startswith(bytes(8))
    wait_until(lambda: fetch(wire, topic, 0, 0).records[:8] == (1).to_bytes(8, "big"), "the old record gone")
    line = f"{topic}-0: 1 batches cannot be read and were not compacted, the first at offset 1: "
    wait_until(lambda: any(line in each for each in broker.log_since(position)), "a line that names the batch")
