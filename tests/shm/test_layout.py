"""The layout: no overlaps, natural alignment, equal struct and dtype, and a complete documentation page."""

import struct
import zlib

import pytest

from rotunda.shm.layout import LAYOUT_VERSION, RECORDS, Field, Record
from rotunda.shm.layout_page import describe, describe_markdown, main

ALL = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


@ALL
def test_fields_do_not_overlap_and_lie_inside(record: Record) -> None:
    end = 0
    for field in record.fields:
        assert record.offset(field.name) >= end
        end = record.offset(field.name) + struct.calcsize("@" + field.kind)
    assert end <= record.size
    assert record.size % 8 == 0


@ALL
def test_numbers_are_naturally_aligned_and_have_a_writer(record: Record) -> None:
    for field in record.fields:
        assert field.writer
        if not field.kind.endswith("s"):
            assert record.offset(field.name) % struct.calcsize("@" + field.kind) == 0


@ALL
def test_struct_and_dtype_agree(record: Record) -> None:
    values = [b"x" if field.kind.endswith("s") else number + 1 for number, field in enumerate(record.fields)]
    packed = record.struct.pack(*values)
    assert len(packed) == record.size == record.dtype.itemsize
    import numpy as np  # noqa: PLC0415  as in the package: not at import

    row = np.frombuffer(packed, dtype=record.dtype)[0]
    assert [row[field.name] for field in record.fields] == values
    assert [record.dtype.fields[field.name][1] for field in record.fields] == [
        record.offset(field.name) for field in record.fields
    ]


@ALL
def test_the_page_lists_every_record_and_the_command_every_field(record: Record) -> None:
    assert f"| {record.name} | {record.size} | " in describe_markdown()
    fields = describe(record).splitlines()[1:]
    assert len(fields) == len(record.fields)
    for field, line in zip(record.fields, fields, strict=True):
        assert line.split()[:2] == [str(record.offset(field.name)), field.name]
        assert field.writer in line


def test_the_command_prints_the_records_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["WAITER", "FETCHED"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "bytes):" in line] == [
        "WAITER",
        "FETCHED",
    ]
    assert main(["NONE"]) == 2
    assert capsys.readouterr().err == "unknown record: NONE\n"


def test_sizes_that_other_parts_count_on() -> None:
    sizes = {record.name: record.size for record in RECORDS}
    assert sizes["REQUEST_ENVELOPE"] == 64
    assert sizes["RESPONSE_ENVELOPE"] == 136
    assert sizes["FILE_RANGE"] == 40
    assert sizes["PEER_ENVELOPE"] == 80
    assert sizes["PARTITION_ROW"] == 192


def test_a_changed_record_has_a_new_version() -> None:
    """With an unchanged version, the command line of another release would misread the segment."""
    places = [
        (record.name, record.size, [(record.offset(field.name), field.kind) for field in record.fields])
        for record in RECORDS
    ]
    assert (LAYOUT_VERSION, zlib.crc32(repr(places).encode())) == (14, 3982964360)


def test_head_and_tail_of_a_ring_are_on_different_cache_lines() -> None:
    ring = next(record for record in RECORDS if record.name == "RING_HEADER")
    lines = {ring.offset(name) // 64 for name in ("capacity", "tail", "head")}
    assert len(lines) == 3


def test_a_record_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(ValueError, match="SMALL: fields end at 16, size is 8"):
        Record("SMALL", "", 8, (Field("a", "i", "", "w", ""), Field("b", "q", "", "w", "")))


def test_a_field_that_is_no_word_has_no_word_index() -> None:
    record = Record("MIXED", "", 8, (Field("a", "i", "", "w", ""), Field("b", "i", "", "w", "")))
    with pytest.raises(ValueError, match=r"MIXED\.b"):
        record.word("b")
