"""A partition log with keyed records and transactions, its written records, and the cleaner's rounds over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.cleaner.cleanable import cleanable
from rotunda.broker.cleaner.compaction import Compaction, Limits
from rotunda.broker.cleaner.segments import Published, SegmentedLog, look_at
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog, PublishedEnd
from rotunda.broker.log.segments.segment_swap import SegmentSwap
from rotunda.broker.records.record_batch import BatchHeader, batch_headers
from rotunda.broker.records.record_reader import iterate_records
from tests.log.log_writer import NAME, end_of, published_end, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import record_batch

ROOMY = Limits(1 << 30, 86_400_000)
TRANSACTIONAL = 0x10


class Written(NamedTuple):
    """One record that was acknowledged."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    producer_id: int


class KeyedLog:
    """A log and a client's view of it. `checkpoint` is how far it has been compacted."""

    def __init__(self, directory: Path, config: LogConfig, clock: FakeClock | None = None) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock or FakeClock()
        self.written: list[Written] = []
        self.sequences: dict[int, int] = {}
        self.checkpoint: int | None = None
        self.log = PartitionLog.open(directory, NAME, config, self.clock, Checkpointed())

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        codec: int = 0,
        timestamp_step_ms: int = 1,
    ) -> int:
        """Append one batch and return its base offset."""
        sequence = self.sequences.get(producer_id, 0)
        idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        now_ms = self.clock.wall_ms()
        data = record_batch(
            [value for _, value in records],
            keys=[key for key, _ in records],
            timestamp_ms=now_ms,
            timestamp_step_ms=timestamp_step_ms,
            codec=codec,
            attributes=TRANSACTIONAL if transactional else 0,
            headers=[("h", b"1")],
            **(idempotent if producer_id >= 0 else {}),  # type: ignore[arg-type]
        )
        error, base, _ = stage(self.log, memoryview(bytearray(data)))
        assert error == 0
        self.log.commit()
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        for number, (key, value) in enumerate(records):
            time_ms = now_ms + number * timestamp_step_ms
            self.written.append(Written(base + number, key, value, time_ms, producer_id if transactional else -1))
        return base

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        """Write a marker and return its offset."""
        error, offset, _ = self.log.stage_marker(producer_id, 0, 0, commit=commit)
        assert error == 0
        self.log.commit()
        return offset

    def roll(self) -> None:
        """Roll, so that all records are in segments that may be compacted."""
        self.log.roll()

    def look(self) -> SegmentedLog:
        """Return the cleaner's view."""
        log = self.log
        published = (log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.segment_base, log.position)
        return look_at(self.directory, Published(*published))

    def clean(
        self,
        limits: Limits = ROOMY,
        swap: Callable[[SegmentSwap], bool] | None = None,
        pause: Callable[[int], None] = lambda _: None,
    ) -> Compaction:
        """Do one round of compaction, whether it is due or not."""
        seen = self.look()
        now_ms = self.clock.wall_ms()
        found = cleanable(seen, self.checkpoint, self.config, now_ms)
        round_ = Compaction(seen, found, self.config, limits, now_ms, pause)
        end_offset = round_.run(swap or self.log.swap_segments)
        if end_offset is not None:
            self.checkpoint = end_offset
        return round_

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """Return every batch of the files, in order."""
        found = []
        for info in self.log.segments():
            data = (self.directory / f"{info.base_offset:020d}.log").read_bytes()
            assert len(data) == info.size_bytes
            found += [(header, data[at : at + header.size_bytes]) for at, header in batch_headers(data)]
        return found

    def records(self) -> list[Written]:
        """Return every data record of the files."""
        return [
            Written(
                record.offset,
                record.key,
                record.value,
                record.timestamp_ms,
                header.producer_id if header.is_transactional else -1,
            )
            for header, data in self.batches()
            if not header.is_control
            for record in iterate_records(data)
        ]

    def end(self) -> tuple[int, int, int]:
        """Return the published end."""
        return end_of(self.log)

    def reopen(self, resume: PublishedEnd | Checkpointed | None = None) -> None:
        """Open the log again, by default as a replacement of the owner would."""
        self.log = PartitionLog.open(self.directory, NAME, self.config, self.clock, resume or published_end(self.log))
