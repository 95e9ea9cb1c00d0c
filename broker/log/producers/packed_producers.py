"""The producers of a snapshot as it has them: each is unpacked when somebody wants it.

A handler opens a log, or restores it, in one turn, and to unpack 50,000 producers would take a tenth of a second.

    bytes of a row (46)   field, all big endian: an entry of Kafka's `.snapshot`
     0- 7                 producer id
     8- 9                 epoch
    10-25                 last sequence 4, last offset 8, offset delta 4: of `PACKED_BATCH` all but its timestamp
    26-33                 timestamp
    34-37                 coordinator epoch
    38-45                 first offset of the open transaction, or -1

The older batches of all producers stand behind one another, in the order of the rows. A field of all rows is read at
once, without a step of Python for each. Only the owner of the partition has this, and the cleaner for a moment.
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

#: Where a row has what is read by column: 8 bytes each.
_PRODUCER_ID, _LAST_OFFSET, _TIMESTAMP, _FIRST_OFFSET = 0, 14, 26, 38

#: Where the timestamp of a `PACKED_BATCH` begins.
_BATCH_TIMESTAMP = 16
_BATCH_BYTES = PACKED_BATCH.size
_A_BYTE = [bytes([number]) for number in range(BATCHES_TO_RETAIN)]
_pack_timestamp = struct.Struct(">q").pack
_NO_BATCH = PACKED_BATCH.pack(NO_SEQUENCE, -1, 0, -1)


class PackedProducers:
    """Producers by number, which is their place in the snapshot. `numbers` has that by producer id."""

    __slots__ = ("_batches", "_older", "_rows", "_starts", "numbers")

    def __init__(self, rows: bytes, older: bytes, batches: memoryview) -> None:
        """``rows`` lie behind one another; ``older`` has how many of the ``batches`` are each producer's."""
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
        """Return a producer, unpacked."""
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
        """Return the rows of the producers from one number to before another."""
        return self._rows[first * ROW_BYTES : end * ROW_BYTES]

    def older(self, first: int, end: int) -> bytes:
        """Return how many batches before its last one are each producer's, a byte each."""
        return self._older[first:end]

    def batches(self, first: int, end: int) -> memoryview:
        """Return these batches, each as `PACKED_BATCH`, those of one producer oldest first."""
        return self._batches[self._starts[first] * _BATCH_BYTES : self._starts[end] * _BATCH_BYTES]

    def last_offsets(self) -> Sequence[int]:
        """Return by number the offset of the last record that each wrote, or -1."""
        return self._column(_LAST_OFFSET)

    def timestamps(self) -> Sequence[int]:
        """Return by number when each wrote last, in milliseconds."""
        return self._column(_TIMESTAMP)

    def first_offsets(self) -> Sequence[int]:
        """Return by number where each one's open transaction begins, or -1."""
        return self._column(_FIRST_OFFSET)

    def _column(self, at: int) -> Sequence[int]:
        """Return the 8 bytes at a place of all rows, as numbers."""
        packed = bytearray(len(self) * 8)
        for byte in range(8):
            packed[byte::8] = self._rows[at + byte :: ROW_BYTES]
        column = array("q", bytes(packed))
        if byteorder == "little":
            column.byteswap()
        return column


NO_PRODUCERS = PackedProducers(b"", b"", memoryview(b""))


def pack(entries: Iterable[ProducerEntry | int], packed: PackedProducers) -> tuple[bytes, bytes, bytes]:
    """Return rows, numbers of older batches, a byte each, and those batches: of producers, or by number of packed ones.

    May be called for 50,000 at each roll, in pieces. Numbers are ascending.
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
    """Return (first, end) of what is gapless among ascending numbers; each by itself if not all are."""
    first, end = numbers[0], numbers[-1] + 1
    return [(first, end)] if end - first == len(numbers) else zip(numbers, [each + 1 for each in numbers], strict=True)
