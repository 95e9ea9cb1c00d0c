"""Committed reads while the owner of the log appends, and is killed, in another process.

Producers with even ids abort every transaction and those with odd ids commit theirs. Allowed: a consumer of committed
records sees the records of odd producers and the plain ones, each once and in order. Not allowed: that it ever sees a
record of an even one, or a stable offset that moves back.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.clock import SystemClock
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog, PublishedEnd
from rotunda.broker.records.record_batch import batch_headers, unpack_header
from rotunda.broker.records.record_writer import BatchBuilder
from rotunda.shm.tables.partitions import STATE_OPEN, PartitionTable
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of
from tests.log.log_writer import NAME
from tests.log.transaction_model import ABORT, marker_type

TABLE = 64
PRODUCERS = 6
CONFIG = LogConfig(internal_segment_bytes=30_000, index_interval_bytes=500)


def publish(table: PartitionTable, log: PartitionLog) -> None:
    table.row_writer(0).publish(
        log.log_end_offset, log.segment_base, log.position, 0, log.last_stable_offset, log.size_bytes
    )


def own(table: PartitionTable, directory: Path, target: int) -> None:
    """Append transactions until the log has `target` records, starting from a predecessor's published end."""
    is_replacement = table.state(0) == STATE_OPEN
    resume = PublishedEnd(*table.read_position(0), 0) if is_replacement else Checkpointed()
    log = PartitionLog.open(directory, NAME, CONFIG, SystemClock(), resume)
    publish(table, log)
    # A predecessor may have left a partial segment, which has been removed by now.
    table.row_writer(0).note_removal()
    table.set_state(0, STATE_OPEN)
    numbers = random.Random(log.log_end_offset)
    while log.log_end_offset < target:
        for _ in range(numbers.randrange(1, 4)):
            _stage_one(log, numbers)
        log.commit()
        publish(table, log)
    for producer_id in range(PRODUCERS):
        assert log.stage_marker(producer_id, 0, 0, commit=bool(producer_id % 2))[0] == 0
    log.commit()
    publish(table, log)


def _stage_one(log: PartitionLog, numbers: random.Random) -> None:
    producer_id = numbers.randrange(-1, PRODUCERS)
    if producer_id >= 0 and numbers.random() < 0.3:
        assert log.stage_marker(producer_id, 0, 0, commit=bool(producer_id % 2))[0] == 0
        return
    known = {entry.producer_id: entry for entry in log.active_producers()}
    sequence = known[producer_id].next_sequence if producer_id in known else 0
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    records = [(None, b"v" * numbers.randrange(50))] * numbers.randrange(1, 4)
    batch = BatchBuilder(records).build(1_700_000_000_000, **(fields if producer_id >= 0 else {}))
    assert log.stage(memoryview(batch), unpack_header(batch))[0] == 0


def consume(table: PartitionTable, directory: Path, target: int, seen_file: Path) -> None:
    """Read committed records up to the end; write the offsets of the batches seen to `seen_file`."""
    while table.state(0) != STATE_OPEN:
        os.sched_yield()
    reader = LogReader(directory)
    at = last_stable = 0
    seen = []
    while at < target:
        stable = table.read_stable(0)
        end = table.read_position(0)
        assert last_stable <= stable <= end[0]
        last_stable = stable
        if at >= stable:
            os.sched_yield()
            continue
        removals = table.removals(0)
        if reader.removals_seen != removals:
            reader.forget()
            reader.removals_seen = removals
        found, aborted = reader.locate_committed(at, stable, end, 3_000)
        assert found is not None
        assert at < found.next_offset <= stable
        with open(found.path, "rb") as file:
            data = os.pread(file.fileno(), found.length, found.position)
        seen += _delivered(data, sorted((first, producer_id) for producer_id, first in aborted))
        at = found.next_offset
    assert seen == sorted(set(seen))
    seen_file.write_text(" ".join(map(str, seen)))


def _delivered(data: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    """Return the offsets of the batches that a client delivers to its application."""
    dropped: set[int] = set()
    delivered = []
    for position, header in batch_headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            if marker_type(data[position : position + header.size_bytes]) == ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            assert header.producer_id < 0 or header.producer_id % 2, f"aborted record at {header.base_offset}"
            delivered.append(header.base_offset)
    return delivered


@pytest.mark.parametrize("deaths", [0, 25])
def test_aborted_records_are_never_seen(tmp_path: Path, deaths: int) -> None:
    """users.md row 11, while the owner is killed at random moments."""
    if deaths:
        chance, runs = seeded(), itertools.count()
        repeat_until_hit(lambda: read_while_owned(tmp_path / f"{next(runs)}", deaths, chance), 6)
    else:
        read_while_owned(tmp_path, 0, random.Random(0))


def read_while_owned(directory: Path, deaths: int, chance: random.Random) -> int:
    """Own a log in one process and read it in another; check the reads. Return how many owners were killed."""
    target = 20_000
    directory.mkdir(exist_ok=True)
    log, seen_file = directory / "topic-0", directory / "seen"
    killed = 0
    with segment_of(TABLE + PartitionTable.bytes_needed(1, 1)) as segment:
        table = PartitionTable(segment.view, TABLE, 1, 1)
        bodies: list[Callable[[], None]] = [
            lambda: own(table, log, target),
            lambda: consume(table, log, target, seen_file),
        ]
        if deaths:
            killed = run_with_deaths(bodies, [0], deaths, chance)
        else:
            run_together(*bodies)
    seen = [int(offset) for offset in seen_file.read_text().split()]
    data = b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))
    kept = [
        header.base_offset
        for _, header in batch_headers(data)
        if not header.is_control and (header.producer_id < 0 or header.producer_id % 2)
    ]
    assert seen == kept[: len(seen)]
    assert seen[-1] > target - 500
    return killed
