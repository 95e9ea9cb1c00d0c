"""A partition log driven as by a handler, with a list of its expected contents."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog, PartitionName, PublishedEnd
from rotunda.broker.log.producers.producer_entry import ProducerEntry
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.log.validation.append_limits import TO_BE_VALIDATED, written_ahead
from rotunda.broker.records.record_batch import (
    BatchHeader,
    batch_headers,
    patch_base_offset,
    read_header,
    unpack_header,
)
from rotunda.broker.records.record_writer import read_marker
from rotunda.broker.steps import finished
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS, record_batch
from tests.support.results import present

NAME = PartitionName("topic", 0, bytes(range(16)))


def batch(count: int = 1, size: int = 10, **fields: object) -> memoryview:
    """Return a batch of `count` records of `size` bytes; `fields` as for `record_batch`."""
    values = [bytes([i % 251]) * size for i in range(count)]
    return memoryview(bytearray(record_batch(values, **fields)))  # type: ignore[arg-type]


def stage(log: PartitionLog, data: memoryview, commit: Callable[[], object] = lambda: None) -> tuple[int, int, int]:
    """Stage a batch after any validation and writing ahead, with a `commit` at each step of these."""
    header = present(read_header(data))
    result = log.stage(data, header)
    if result != TO_BE_VALIDATED:
        return result
    validated = finished(log.validate(data, header))
    large = written_ahead(validated)
    if large is None:
        return log.stage(data, header, validated=validated)
    log.begin_ahead(large)
    commit()
    for _ in log.write_ahead(large, commit):
        commit()
    try:
        return log.stage(data, header, validated=validated)
    finally:
        log.end_ahead()


def stored(data: memoryview, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch as the log must store it."""
    copy = bytearray(data)
    patch_base_offset(copy, base_offset, leader_epoch)
    return bytes(copy)


def by_id(producers: Iterable[ProducerEntry]) -> dict[int, ProducerEntry]:
    """Return producers by their ids."""
    return {entry.producer_id: entry for entry in producers}


def end_of(log: PartitionLog) -> tuple[int, int, int]:
    return log.log_end_offset, log.segment_base, log.position


def published_end(log: PartitionLog) -> PublishedEnd:
    return PublishedEnd(*end_of(log), log.log_start_offset, leader_epoch=log.leader_epoch)


def log_bytes(directory: Path) -> bytes:
    """Return the bytes of all segments, in order."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def read_everything(directory: Path, end: tuple[int, int, int], start: int = 0, max_bytes: int = 2**31) -> bytes:
    """Return the bytes that a consumer reads from `start` to the end."""
    reader = LogReader(directory)
    parts = []
    while start < end[0]:
        found = present(reader.locate(start, end, max_bytes))
        assert found.length > 0
        with open(found.path, "rb") as file:
            parts.append(os.pread(file.fileno(), found.length, found.position))
        start = found.next_offset
    return b"".join(parts)


class ModelLog:
    """A log, its acknowledged batches, and its published end."""

    log: PartitionLog

    def __init__(self, directory: Path, config: LogConfig, clock: FakeClock | None = None) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock or FakeClock(wall_ms=TIMESTAMP_MS)
        self.acknowledged: list[bytes] = []
        self.published: PublishedEnd | None = None

    def open(self) -> PartitionLog:
        """Open as a broker start does the first time, and as a replacement from then on."""
        resume = self.published or Checkpointed()
        self.log = PartitionLog.open(self.directory, NAME, self.config, self.clock, resume)
        self.published = published_end(self.log)
        return self.log

    def append(self, batches: list[memoryview], *, is_own: bool = False) -> list[tuple[int, int, int]]:
        """Stage all, commit, publish, acknowledge, in this order. The broker's own batches are not validated."""
        log = self.log
        results: list[tuple[int, int, int]] = []
        committed = 0

        def commit() -> None:
            nonlocal committed
            log.commit()
            self.published = published_end(log)
            for data, (error, base_offset, _) in zip(batches[committed:], results[committed:], strict=False):
                if error == 0:
                    self.acknowledged.append(stored(data, base_offset, log.leader_epoch))
            committed = len(results)

        for data in batches:
            result = log.stage(data, unpack_header(data), is_own=True) if is_own else stage(log, data, commit)
            results.append(result)
        commit()
        return results

    def expected_producers(self) -> ProducerState:
        """Return the producer state after the acknowledged batches."""
        state = ProducerState()
        for data in self.acknowledged:
            for _, header in batch_headers(data):
                state.replay(header, read_marker(data) if header.is_control else None)
        return state

    def check(self) -> None:
        """Compare all visible state of the log with the acknowledged batches."""
        log = self.log
        content = b"".join(self.acknowledged)
        # Preallocated bytes follow the end.
        on_disk = log_bytes(self.directory)
        assert (on_disk.rstrip(b"\0") == content.rstrip(b"\0")) if self.config.preallocate else (on_disk == content)
        assert read_everything(self.directory, end_of(log)) == content
        assert log.log_end_offset == log.next_offset == self.next_offset()
        assert log.size_bytes == len(content)
        assert by_id(log.active_producers()) == by_id(self.expected_producers())
        check_indexes(self.directory, log)

    def next_offset(self) -> int:
        headers = [header for data in self.acknowledged[-1:] for _, header in batch_headers(data)]
        return headers[-1].last_offset + 1 if headers else 0


def check_indexes(directory: Path, log: PartitionLog) -> None:
    """Check that every index entry refers to an existing batch, and that both indexes ascend."""
    for info in log.segments():
        data = (directory / f"{info.base_offset:020d}.log").read_bytes()
        headers: dict[int, BatchHeader] = dict(batch_headers(data))
        last_offsets = {header.last_offset: header for header in headers.values()}
        index = (directory / f"{info.base_offset:020d}.index").read_bytes()
        entries = [
            (int.from_bytes(index[i : i + 4], "big"), int.from_bytes(index[i + 4 : i + 8], "big"))
            for i in range(0, len(index), 8)
        ]
        assert entries == sorted(set(entries))
        for relative, position in entries:
            assert headers[position].last_offset == info.base_offset + relative
        times = (directory / f"{info.base_offset:020d}.timeindex").read_bytes()
        pairs = [
            (int.from_bytes(times[i : i + 8], "big", signed=True), int.from_bytes(times[i + 8 : i + 12], "big"))
            for i in range(0, len(times), 12)
        ]
        assert [pair[0] for pair in pairs] == sorted({pair[0] for pair in pairs})
        for timestamp, relative in pairs:
            assert last_offsets[info.base_offset + relative].max_timestamp == timestamp
