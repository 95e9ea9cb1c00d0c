"""Validation of large batches in steps: none unpacks, inspects, packs or copies much, for any batch.

Time is measured as the number of calls and the bytes processed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog
from rotunda.broker.log.validation.append_limits import TO_BE_VALIDATED, Admitted
from rotunda.broker.log.validation.record_walk import RECORDS_AT_ONCE
from rotunda.broker.records import compression
from rotunda.broker.records.compression import PIECE_BYTES, decompress
from rotunda.broker.records.record_batch import BatchHeader, unpack_header
from tests.log.log_writer import NAME
from tests.support.fakes import FakeClock
from tests.support.feeds import random_seed
from tests.support.record_batches import TIMESTAMP_MS, record_batch, sealed_batch

GZIP, SNAPPY = 1, 2
SIZE = 4 << 20

#: About a millisecond and a half.
MOST_CALLS = 5_000


def open_log(tmp_path: Path, **settings: Any) -> PartitionLog:
    config = LogConfig(max_message_bytes=64 << 20, **settings)
    return PartitionLog.open(tmp_path / "topic-0", NAME, config, FakeClock(wall_ms=TIMESTAMP_MS), Checkpointed())


def calls_of(act: Callable[[], Any]) -> int:
    calls = 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def validated_in_steps(log: PartitionLog, batch: bytes) -> tuple[Any, int, int]:
    """Return the result of a batch, the number of steps, and the most calls of one step."""
    data = memoryview(bytearray(batch))
    header = unpack_header(data)
    assert log.stage(data, header) == TO_BE_VALIDATED
    assert bytes(data) == batch
    steps = log.validate(data, BatchHeader._make(header))
    count, longest, result = 0, 0, None

    def step() -> None:
        nonlocal result
        try:
            next(steps)
        except StopIteration as stop:
            result = stop.value

    while result is None:
        longest = max(longest, calls_of(step))
        count += 1
    assert bytes(data) == batch
    return result, count, longest


@pytest.mark.parametrize(
    ("codec", "source", "times"), [("gzip", 0, 1), ("snappy", GZIP, 2), ("lz4", SNAPPY, 1), ("zstd", GZIP, 2)]
)
def test_bytes_are_unpacked_and_packed_a_piece_at_a_time(tmp_path: Path, codec: str, source: int, times: int) -> None:
    """Except snappy in one chunk, which the library unpacks in one call, and much faster than gzip."""
    log = open_log(tmp_path, compression_type=codec)
    numbers = random.Random(random_seed())
    values = [numbers.randbytes(50_000).hex().encode() for _ in range(SIZE // 100_000)]
    batch = record_batch(values, codec=source)
    result, steps, _ = validated_in_steps(log, batch)
    assert isinstance(result, Admitted)
    assert decompress(compression.CODECS.index(codec), result.batch[61:], 2 * SIZE) == record_batch(values)[61:]
    assert steps >= 0.8 * times * SIZE // PIECE_BYTES


@pytest.mark.parametrize("headers", [[], [("h", b"x")] * 20])
def test_records_are_looked_at_so_many_at_a_time(tmp_path: Path, headers: list[tuple[str, bytes]]) -> None:
    log = open_log(tmp_path, cleanup_policy=("compact",))
    count = RECORDS_AT_ONCE // (1 + len(headers)) + 4_000
    batch = record_batch([b"x"] * count, keys=[b"k"] * count, headers=headers)
    result, _, longest = validated_in_steps(log, batch)
    assert isinstance(result, Admitted)
    assert longest <= MOST_CALLS


def test_one_record_of_very_many_headers(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy=("compact",))
    batch = record_batch([b"x"], keys=[b"k"], headers=[("", None)] * 100_000)
    result, _, longest = validated_in_steps(log, batch)
    assert isinstance(result, Admitted)
    assert longest <= MOST_CALLS


def test_members_of_gzip_with_nothing_in_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy=("compact",))
    empty = compression.compress(GZIP, b"")
    result, steps, longest = validated_in_steps(log, sealed_batch(empty * (compression.MOST_PIECES + 1), 1, codec=GZIP))
    assert result == (2, -1, -1)
    assert steps > 10
    assert longest <= MOST_CALLS


def test_a_large_batch_is_copied_a_piece_at_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime")
    batch = record_batch([bytes(SIZE)])
    result, steps, _ = validated_in_steps(log, batch)
    assert isinstance(result, Admitted)
    assert steps >= SIZE >> 20
    data = memoryview(bytearray(batch))
    assert log.stage(data, unpack_header(data), validated=result) == (0, 0, TIMESTAMP_MS)
