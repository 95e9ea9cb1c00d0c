"""Batches with false headers: a real broker does not trust them, and its state and memory stay as they were.

The handlers' memory is read from /proc: a batch of 33 KB that claims a gigabyte must not become one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from tests.support.broker_process import BrokerProcess
from tests.support.record_batches import record_batch, sealed_batch
from tests.support.wire_messages import create_topic, produce, produce_errors

ZSTD, MESSAGE_TOO_LARGE = 4, 10
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
    """Return a zstd frame of ``size_bytes`` zeros."""
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


@pytest.fixture(scope="module")
def zeros() -> bytes:
    """Return 33 KB that decompress to 1 GB."""
    return frame_of_zeros(1 << 30)


@pytest.mark.parametrize(
    "configs",
    [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}, {"compression.type": "uncompressed"}],
    ids=["as it is", "compacted", "packed anew", "unpacked"],
)
def test_a_batch_that_expands_to_a_gigabyte(broker, wire, topic, zeros, configs) -> None:
    """It is rejected, and neither that nor the search for the bad record uses more memory than the limit."""
    create_topic(wire, topic, PARTITIONS, configs=configs)
    bomb = sealed_batch(zeros, 1000, codec=ZSTD, max_timestamp_ms=time.time_ns() // 1_000_000)
    assert 30_000 < len(bomb) < 130_000
    produce(wire, topic, 0, record_batch([b"x"], keys=[b"k"], codec=ZSTD))
    before = peak_bytes(broker)
    for partition in range(PARTITIONS):
        code, message, _ = produce_errors(wire, topic, partition, bomb)
        assert code == MESSAGE_TOO_LARGE
        assert f"{topic}-{partition}" in message
        assert "16777216 bytes uncompressed (message.max.uncompressed.bytes)" in message
    assert peak_bytes(broker) - before < MOST_GROWTH_BYTES
