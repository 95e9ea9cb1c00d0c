"""Records as text: JSON, text, hex, null, and values that are cut."""

import json

import pytest

from rotunda.web.facts.records import (
    LEAST_HEADERS,
    LEAST_SHOWN,
    MOST_HEADERS,
    MOST_SHOWN,
    MOST_SHOWN_TOGETHER,
    indented,
    records_shown,
    shown,
)
from rotunda.web.sources import RecordFacts, RecordsFound


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        (b"null", "text", "null"),
        ("Grüße\tund\nmehr".encode(), "text", "Grüße\tund\nmehr"),
        (b'{"a":[1,{}],"a":1.10}', "json", '{\n  "a": [\n    1,\n    {}\n  ],\n  "a": 1.10\n}'),
        (b"{not json}", "text", "{not json}"),
        (b"[" * 5000, "text", "[" * 5000),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"\0\0\0\x05avro", "hex", "00 00 00 05 61 76 72 6f"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    found = shown(data)
    assert (found.kind, found.text, found.size, found.is_cut) == (kind, text, len(data or b""), False)


@pytest.mark.parametrize("text", ['{"a": "x, {y}: \\"z\\\\", "n": 12345678901234567890, "e": 1e400}', "[ [ ], { } ]"])
def test_indents_change_no_value(text: str) -> None:
    keep = {"parse_int": str, "parse_float": str}
    assert json.loads(indented(text), **keep) == json.loads(text, **keep)


@pytest.mark.parametrize("letter", ["a", "ä", "€", "😀"])
@pytest.mark.parametrize("before", range(4))
def test_a_long_text_is_cut_between_its_characters(letter: str, before: int) -> None:
    data = ("." * before + letter * (MOST_SHOWN + 1)).encode()
    found = shown(data)
    assert found.kind == "text"
    assert found.is_cut
    assert found.size == len(data)
    assert MOST_SHOWN - 4 <= len(found.text.encode()) <= MOST_SHOWN
    assert set(found.text) <= {".", letter}


def test_long_binary_is_cut() -> None:
    found = shown(b"\xff" * (MOST_SHOWN + 1))
    assert found.is_cut
    assert found.text == " ".join(["ff"] * MOST_SHOWN)


def test_many_long_values_are_cut_sooner() -> None:
    value = b"x" * MOST_SHOWN
    records = [RecordFacts(0, offset, 0, False, None, value, (("\udcff", value),)) for offset in range(100)]
    found = RecordsFound(records=records, partitions=[], older={0: 1, 2: 3}, newer={}, notes=[])
    body = records_shown(found)
    assert len(json.dumps(body)) < 1.3 * MOST_SHOWN_TOGETHER
    assert len(body["records"][-1]["value"]["text"]) == LEAST_SHOWN
    assert body["older"] == "0:1,2:3"


def test_deeply_nested_json_is_not_indented() -> None:
    # Each comma would become a line of 1,800 spaces.
    text = "[" * 900 + "1," * 7000 + "1" + "]" * 900
    assert shown(text.encode()).text == text


def test_many_headers_and_long_names_are_cut() -> None:
    headers = (("\x01" * MOST_SHOWN, None),) * 500
    records = [RecordFacts(0, offset, 0, False, None, None, headers) for offset in range(200)]
    body = records_shown(RecordsFound(records=records, partitions=[], older={}, newer={}, notes=[]))
    assert [len(each["headers"]) for each in body["records"]] == [MOST_HEADERS, *[LEAST_HEADERS] * 199]
    assert len(json.dumps(body)) < 16 * MOST_SHOWN_TOGETHER
    assert body["notes"][0] == "500 headers at offset 0, the first 100 are shown"
