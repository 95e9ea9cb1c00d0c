"""The expected state of a log with transactions, from the list of its batches, and a consumer.

The consumer works like Java's: it records the producers of started aborted transactions, drops their batches, and
forgets them at the abort marker.
"""

import os
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.log.log_reader import End, LogReader
from rotunda.broker.records.record_batch import BatchHeader, batch_headers
from rotunda.broker.records.record_reader import iterate_records
from tests.log.log_writer import ModelLog, end_of

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


class Aborted(NamedTuple):
    """An entry of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Expected(NamedTuple):
    """The expected meaning of the batches of a log."""

    stable_offset: int
    aborted: list[Aborted]
    committed: list[bytes]  # the data batches below the stable offset that were not aborted
    open_transactions: dict[int, int]


def marker_type(data: bytes) -> bytes | None:
    """Return the key of a control batch's record; None if compaction has emptied it."""
    return next((record.key for record in iterate_records(data)), None)


def expectation(batches: list[bytes]) -> Expected:
    """Return the expected state, in one walk over the batches."""
    opened: dict[int, int] = {}
    aborted: list[Aborted] = []
    data_of: dict[int, list[tuple[BatchHeader, bytes]]] = {}
    dropped: set[int] = set()
    data: list[tuple[BatchHeader, bytes]] = []
    end = 0
    for batch in batches:
        ((_, header),) = batch_headers(batch)
        end = header.last_offset + 1
        if not header.is_control:
            data.append((header, batch))
            if header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
                data_of.setdefault(header.producer_id, []).append((header, batch))
            continue
        first = opened.pop(header.producer_id, None)
        ended = data_of.pop(header.producer_id, [])
        if marker_type(batch) == ABORT and first is not None:
            dropped |= {part.base_offset for part, _ in ended}
            aborted.append(Aborted(header.producer_id, first, header.base_offset, min([*opened.values(), end])))
    stable = min([*opened.values(), end])
    committed = [batch for header, batch in data if header.base_offset < stable and header.base_offset not in dropped]
    return Expected(stable, aborted, committed, opened)


def consume(reader: LogReader, stable: int, end: End, max_bytes: int, start: int = 0) -> list[bytes]:
    """Return the data batches that an application gets with read_committed from `start` on."""
    seen = []
    while start < stable:
        found, aborted = reader.locate_committed(start, stable, end, max_bytes)
        assert found is not None
        if not found.length:
            # Compaction has removed all records from here to the last stable offset.
            break
        with open(found.path, "rb") as file:
            data = os.pread(file.fileno(), found.length, found.position)
        waiting = sorted((first, producer_id) for producer_id, first in aborted)
        dropped: set[int] = set()
        for position, header in batch_headers(data):
            batch = data[position : position + header.size_bytes]
            while waiting and waiting[0][0] <= header.last_offset:
                dropped.add(waiting.pop(0)[1])
            if header.is_control:
                if marker_type(batch) == ABORT:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                seen.append(batch)
        assert found.next_offset > start
        assert found.next_offset <= stable
        start = found.next_offset
    return seen


def index_entries(directory: Path) -> list[Aborted]:
    """Return the entries of all `.txnindex` files in order, parsed independently of their writer."""
    entries = []
    for path in sorted(directory.glob("*.txnindex")):
        content = path.read_bytes()
        assert len(content) % 34 == 0
        for at in range(0, len(content), 34):
            fields = [int.from_bytes(content[at + i : at + i + 8], "big", signed=True) for i in (2, 10, 18, 26)]
            assert content[at : at + 2] == b"\0\0"
            assert fields[2] >= int(path.stem)
            entries.append(Aborted(*fields))
    return entries


def check_transactions(model: ModelLog, readers: list[LogReader], max_bytes: int) -> None:
    """Compare a log's transactions, and the views of its readers, with its acknowledged batches."""
    log = model.log
    expected = expectation(model.acknowledged)
    assert log.last_stable_offset == expected.stable_offset
    assert index_entries(model.directory) == expected.aborted
    current = {entry.producer_id: entry.current_txn_first_offset for entry in log.active_producers()}
    assert {key: first for key, first in current.items() if first >= 0} == expected.open_transactions
    for producer in log.active_producers():
        is_open = producer.producer_id in expected.open_transactions
        assert log.ongoing_transaction(producer.producer_id, producer.epoch) is is_open
        assert not log.ongoing_transaction(producer.producer_id, producer.epoch + 1)
    for reader in readers:
        assert consume(reader, log.last_stable_offset, end_of(log), max_bytes) == expected.committed
