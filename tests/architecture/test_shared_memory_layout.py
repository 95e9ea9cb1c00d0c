"""The map of shared memory: fields do not overlap, are aligned, and name the process that writes them."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from rotunda.shm import layout

RECORDS = [value for value in vars(layout).values() if isinstance(value, layout.Record)]
WORD_BYTES = 8


def spans(record: layout.Record) -> list[tuple[int, int, str]]:
    """First byte, byte after the last and name of each field."""
    return [
        (record.offset(field.name), record.offset(field.name) + struct.calcsize(f"={field.kind}"), field.name)
        for field in record.fields
    ]


def test_the_map_has_records() -> None:
    assert len(RECORDS) >= 8


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_fields_do_not_overlap(record: layout.Record) -> None:
    ordered = sorted(spans(record))
    for (_, end, name), (start, _, following) in pairwise(ordered):
        assert end <= start, f"{name} runs into {following}"
    assert ordered[-1][1] <= record.size


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_fields_are_naturally_aligned(record: layout.Record) -> None:
    """An aligned move of at most 8 bytes is never torn."""
    for start, end, name in spans(record):
        size = end - start
        assert start % min(size, WORD_BYTES) == 0 or size > WORD_BYTES, f"{name} is not aligned"
    assert record.size % WORD_BYTES == 0


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_every_field_names_its_writer(record: layout.Record) -> None:
    for field in record.fields:
        assert field.writer, f"{field.name} has no writer"
        assert field.text, f"{field.name} is not explained"
