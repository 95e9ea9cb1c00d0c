"""The producers of a snapshot in its packed format: each is unpacked at its first use.

A handler opens a log, or restores it, in one turn, and unpacking 50,000 producers would need a tenth of a second.

    bytes of a row (46)   field, all big endian: an entry of Kafka's `.snapshot`
     0- 7                 producer id
     8- 9                 epoch
    10-25                 last sequence 4, last offset 8, offset delta 4: `PACKED_BATCH` without its timestamp
    26-33                 timestamp
    34-37                 coordinator epoch
    38-45                 first offset of the open transaction, or -1

The older batches of all producers are contiguous, in the order of the rows. A field of all rows is read at once,
without a Python step for each row. Only the owner of the partition uses this, and briefly the cleaner.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from sys import byteorder
from typing import cast

from rotunda.broker.log.producers.producer_entry import (
    BATCHES_TO_RETAIN,
    NO_SEQUENCE,
    PACKED_BATCH,
    SEQUENCE_MASK,
    ProducerEntry,
)

_ROW = struct.Struct(
    ">q"  # producer id
    "h"  # epoch
    "16s"  # last sequence, last offset, offset delta
    "q"  # timestamp
    "i"  # coordinator epoch
    "q"  # first offset of the open transaction
)
ROW_BYTES = _ROW.size
_pack_row, _unpack_row = _ROW.pack, _ROW.unpack_from

#: Positions of the fields that are read by column, 8 bytes each.
_PRODUCER_ID, _LAST_OFFSET, _TIMESTAMP, _FIRST_OFFSET = 0, 14, 26, 38

#: Position of the timestamp in a `PACKED_BATCH`.
_BATCH_TIMESTAMP = 16
_BATCH_BYTES = PACKED_BATCH.size
_A_BYTE = [bytes([number]) for number in range(BATCHES_TO_RETAIN)]
_pack_timestamp = struct.Struct(">q").pack
_NO_BATCH = PACKED_BATCH.pack(NO_SEQUENCE, -1, 0, -1)


class PackedProducers:
    """Producers by number, which is their position in the snapshot. `numbers` maps producer ids to numbers."""

    __slots__ = ("_batches", "_older", "_rows", "_starts", "numbers")

    def __init__(self, rows: bytes, older: bytes, batches: memoryview) -> None:
        """Wrap ``rows``, which are contiguous; ``older`` has the number of ``batches`` of each producer."""
        self._rows = rows
        self._older = older
        self._starts = [0, *accumulate(older)]
        self._batches = batches
        self.numbers = dict(zip(self._column(_PRODUCER_ID), range(len(self)), strict=True))

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def __iter__(self) -> Iterator[ProducerEntry]:
        return map(self.entry, range(len(self)))

    def entry(self, number: int) -> ProducerEntry:
        """Unpack and return a producer."""
        producer_id, epoch, last, timestamp_ms, coordinator_epoch, first_offset = _unpack_row(
            self._rows, number * ROW_BYTES
        )
        entry = ProducerEntry(producer_id)
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.current_txn_first_offset = first_offset
        entry.last = last + _pack_timestamp(timestamp_ms)
        if entry.last_offset < 0:
            entry.last = b""
        else:
            entry.older = bytes(self.batches(number, number + 1))
            entry.next_sequence = (entry.last_sequence + 1) & SEQUENCE_MASK
        return entry

    def rows(self, first: int, end: int) -> bytes:
        """Return the rows of the producers in [first, end)."""
        return self._rows[first * ROW_BYTES : end * ROW_BYTES]

    def older(self, first: int, end: int) -> bytes:
        """Return the number of batches before the last one, a byte for each producer."""
        return self._older[first:end]

    def batches(self, first: int, end: int) -> memoryview:
        """Return these batches, each as `PACKED_BATCH`, those of one producer oldest first."""
        return self._batches[self._starts[first] * _BATCH_BYTES : self._starts[end] * _BATCH_BYTES]

    def last_offsets(self) -> Sequence[int]:
        """Return by number the offset of each producer's last record, or -1."""
        return self._column(_LAST_OFFSET)

    def timestamps(self) -> Sequence[int]:
        """Return by number the time of each producer's last write, in milliseconds."""
        return self._column(_TIMESTAMP)

    def first_offsets(self) -> Sequence[int]:
        """Return by number the first offset of each producer's open transaction, or -1."""
        return self._column(_FIRST_OFFSET)

    def _column(self, at: int) -> Sequence[int]:
        """Return the 8-byte field at one position of all rows, as numbers."""
        packed = bytearray(len(self) * 8)
        for byte in range(8):
            packed[byte::8] = self._rows[at + byte :: ROW_BYTES]
        column = array("q", bytes(packed))
        if byteorder == "little":
            column.byteswap()
        return column


NO_PRODUCERS = PackedProducers(b"", b"", memoryview(b""))


def pack(entries: Iterable[ProducerEntry | int], packed: PackedProducers) -> tuple[bytes, bytes, bytes]:
    """Return rows, counts of older batches (a byte each) and those batches, of unpacked entries or packed numbers.

    A roll packs up to 50,000 producers, in several calls. Numbers are ascending.
    """
    rows: list[bytes] = []
    older: list[bytes] = []
    batches: list[bytes | memoryview] = []
    for kind, run in groupby(entries, type):
        if kind is int:
            for first, end in _gapless(cast("list[int]", list(run))):
                rows.append(packed.rows(first, end))
                older.append(packed.older(first, end))
                batches.append(packed.batches(first, end))
            continue
        for entry in cast("Iterator[ProducerEntry]", run):
            row = _pack_row(
                entry.producer_id,
                entry.epoch,
                (entry.last or _NO_BATCH)[:_BATCH_TIMESTAMP],
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            rows.append(row)
            older.append(_A_BYTE[len(entry.older) // _BATCH_BYTES])
            batches.append(entry.older)
    return b"".join(rows), b"".join(older), b"".join(batches)


def _gapless(numbers: list[int]) -> Iterable[tuple[int, int]]:
    """Return the gapless runs, as (first, end), of ascending numbers; one run for each number if there is a gap."""
    first, end = numbers[0], numbers[-1] + 1
    return [(first, end)] if end - first == len(numbers) else zip(numbers, [each + 1 for each in numbers], strict=True)
