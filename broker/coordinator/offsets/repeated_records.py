"""Records of repeated commits: those of earlier ones but for two numbers each.

Runs in handler processes. A group member commits the same partitions repeatedly, so the constant part of its records is
laid out once, for each length that their offset deltas can have. HOT.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from rotunda.broker.partitions import intern_pool
from rotunda.broker.protocol.primitives import INT64
from rotunda.broker.records.record_writer import NO_HEADERS, RECORD_START, encode_record, varint_bytes

#: Offset deltas below the first have one byte, and below the second two. No batch of ours has more records.
_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192

#: Fields packed per record: the bytes before its delta, the delta, the bytes before the first number, that number, the
#: bytes before the second, and that number.
_FIELDS: Final = 6
_DELTA, _FIRST, _SECOND = 1, 3, 5

#: The numbers, the lengths and the other fixed bytes of a record.
_OTHER_BYTES: Final = 26


class NumberedValue(NamedTuple):
    """A value with two int64s: the bytes before, between and after them."""

    head: bytes
    middle: bytes
    tail: bytes

    def with_numbers(self, first: int, second: int) -> bytes:
        return b"".join((self.head, INT64.pack(first), self.middle, INT64.pack(second), self.tail))


class RepeatedRecords:
    """Records that are always written together in a batch."""

    __slots__ = ("_layouts", "_records", "count", "size_bytes")

    def __init__(self, records: Sequence[tuple[bytes, NumberedValue]]) -> None:
        """Lay out records, each given as its key, and its value without the numbers."""
        self.count = len(records)
        self._records = records
        #: By bytes of an offset delta; made on first use, since few records occur with both sizes of delta.
        self._layouts: list[tuple[struct.Struct, list[int | bytes]] | None] = [None] * 3
        #: Their approximate size in a batch.
        self.size_bytes = _OTHER_BYTES * len(records) + sum(
            [len(key) + len(head) + len(middle) + len(tail) for key, (head, middle, tail) in records]
        )

    def encode(self, first_delta: int, firsts: Sequence[int], second: int) -> bytes:
        """Return the records encoded for a batch, with offset deltas from ``first_delta`` on.

        ``firsts``: the first number of each; ``second``: the second of all.
        """
        end = first_delta + self.count
        if end <= _ONE_BYTE:
            delta_bytes = 1
        elif first_delta >= _ONE_BYTE and end <= _TWO_BYTES:
            delta_bytes = 2
        else:
            return b"".join(
                encode_record(delta, key, value.with_numbers(first, second))
                for delta, (key, value), first in zip(range(first_delta, end), self._records, firsts, strict=True)
            )
        layout = self._layouts[delta_bytes]
        if layout is None:
            layout = self._layouts[delta_bytes] = self._layout(delta_bytes)
        fields = layout[1].copy()
        fields[_DELTA::_FIELDS] = _deltas(first_delta, end)
        fields[_FIRST::_FIELDS] = firsts
        fields[_SECOND::_FIELDS] = [second] * self.count
        return layout[0].pack(*fields)

    def _layout(self, delta_bytes: int) -> tuple[struct.Struct, list[int | bytes]]:
        """Return the struct of the records when their deltas have this many bytes, and its values."""
        delta = "BH"[delta_bytes - 1]
        formats: list[str] = []
        fields: list[int | bytes] = []
        end_of_last = b""
        for key, (head, middle, tail) in self._records:
            value_size = len(head) + len(middle) + len(tail) + 2 * INT64.size
            up_to_first = b"".join((varint_bytes(len(key)), key, varint_bytes(value_size), head))
            rest_size = len(up_to_first) - len(head) + value_size + len(NO_HEADERS)
            start = end_of_last + varint_bytes(len(RECORD_START) + delta_bytes + rest_size) + RECORD_START
            formats.append(f"{len(start)}s{delta}{len(up_to_first)}sq{len(middle)}sq")
            fields += (intern_pool.text(start), 0, up_to_first, 0, intern_pool.text(middle), 0)
            end_of_last = tail + NO_HEADERS
        layout = intern_pool.layout(f">{''.join(formats)}{len(end_of_last)}s")
        return layout, [*fields, intern_pool.text(end_of_last)]


def _deltas(first: int, end: int) -> Sequence[int]:
    """Return the bytes of the offset deltas, all of one length, as big-endian numbers."""
    if end <= _ONE_BYTE:
        return range(2 * first, 2 * end, 2)
    # The first byte has the low six bits: it grows by 2 for 64 deltas, then the second one grows.
    numbers: list[int] = []
    while first < end:
        high, low = divmod(first, 64)
        count = min(end - first, 64 - low)
        start = (low << 1 | 0x80) << 8 | high
        numbers += range(start, start + (count << 9), 1 << 9)
        first += count
    return numbers
