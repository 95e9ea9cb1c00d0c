"""Records as text and text as records: formats, JSON lines, and the errors for invalid input."""

import base64
import io
import json
import random

import pytest

from rotunda.broker.cli.records.record_format import delimited, formatter, json_line, unescaped
from rotunda.broker.cli.records.record_input import InputError, Shape, records_of_lines
from rotunda.broker.client.consumer.fetcher import Fetched
from rotunda.broker.client.consumer.reader import Start, parse_start
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import UsageError
from rotunda.broker.records.record_reader import Record

NOW_MS = 1_700_000_000_000


def fetched(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Fetched:
    return Fetched(TopicPartition("t", 3), 1, False, Record(7, NOW_MS, key, value, headers))


def test_every_token_of_a_format() -> None:
    text = r"%t %p %o %T %k %K %s %S %h %%\n"
    shown = formatter(text, b"")(fetched(b"k", b"value", (("a", b"1"), ("b", None))))
    assert shown == b"t 3 7 1700000000000 k 1 value 5 a=1,b=NULL %\n"
    assert formatter("%R|%S|%K", b"")(fetched(None, None)) == b"\xff\xff\xff\xff|-1|-1"
    assert formatter("%k%s", b"NULL")(fetched(None, b"")) == b"NULLNULL"


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [(r"\t", b"\t"), (r"\x1f\065", b"\x1f5"), (r"\\n", b"\\n"), (r"a\q", b"aq"), ("é", "é".encode())],
)
def test_escapes_stand_for_bytes(text: str, bytes_: bytes) -> None:
    assert unescaped(text) == bytes_


@pytest.mark.parametrize("text", ["%x", "a%", "%s %"])
def test_a_token_that_there_is_not(text: str) -> None:
    with pytest.raises(UsageError, match="is none of %s"):
        formatter(text, b"")


def test_keys_and_offsets_before_values() -> None:
    record = fetched(b"k", b"v")
    assert delimited(b"\n", None, with_offset=False, null=b"")(record) == b"v\n"
    assert delimited(b";", b"=", with_offset=True, null=b"")(record) == b"7=k=v;"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("latest", Start("end")),
        ("stored", Start("stored")),
        ("12", Start("offset", 12)),
        ("-12", Start("last", 12)),
        ("10m", Start("time", NOW_MS - 600_000)),
        ("s@5", Start("time", 5)),
        ("@5", Start("time", 5)),
        ("2023-11-14T22:13:20", Start("time", NOW_MS)),
        ("2023-11-14T23:13:20+01:00", Start("time", NOW_MS)),
    ],
)
def test_where_to_begin(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "soon", "--3", "10w", "@x", "²"])
def test_invalid_starts(text: str) -> None:
    with pytest.raises(UsageError, match="invalid start"):
        parse_start(text, NOW_MS)


def test_json_lines_come_back_as_they_were() -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)

    def some() -> bytes | None:
        return rng.choice((None, b"", "text ü".encode(), b"\n\xff\0", rng.randbytes(rng.randrange(50))))

    for _ in range(300):
        record = fetched(some(), some(), tuple((f"h{n}", some()) for n in range(rng.randrange(3))))
        for always in (False, True):
            line = json_line(record, always_base64=always)
            assert line.count(b"\n") == 1, seed
            (back,) = records_of_lines(io.BytesIO(line), "x", Shape(is_json=True))
            assert (back.key, back.value, back.headers) == record.record[2:], seed
            assert (back.topic, back.partition, back.timestamp_ms) == ("t", 3, NOW_MS), seed


def test_bytes_that_are_no_text_are_said_to_be_base64() -> None:
    fields = json.loads(json_line(fetched(b"k", b"\xff")))
    assert fields["key"] == "k"
    assert fields["value"] == {"base64": base64.b64encode(b"\xff").decode()}


def test_the_name_of_a_header_need_not_be_text() -> None:
    """Kafka's brokers accept any bytes for it; the data after such a record can be read as well."""
    record = fetched(None, b"v", ((b"\xff\xc3\xbc".decode("utf-8", "surrogateescape"), b"w"),))
    assert formatter("%h", b"")(record) == b"\xff\xc3\xbc=w"
    assert json.loads(json_line(record))["headers"] == [["\ufffd\u00fc", "w"]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "x, line 2: invalid JSON"),
        ("[1]", 'x, line 2: not an object with a "value": [1]'),
        ('{"key":"a"}', 'x, line 2: not an object with a "value"'),
        ('{"value":1}', "value is 1: write a string"),
        ('{"value":{"base64":"?"}}', "value has no valid base64"),
        ('{"value":"a","vale":"b"}', "x, line 2 has 'vale', which is none of"),
        ('{"value":"a","headers":["a"]}', "headers are neither"),
        ('{"value":"a","partition":"0"}', 'partition is "0": write a number'),
        ('{"value":"a","timestamp":true}', "timestamp is true: write a number"),
    ],
)
def test_a_json_line_that_is_no_record(line: str, complaint: str) -> None:
    with pytest.raises(InputError) as failure:
        list(records_of_lines(io.BytesIO(f'{{"value":"a"}}\n{line}\n'.encode()), "x", Shape(is_json=True)))
    assert complaint in str(failure.value)


def test_delimiters_of_several_bytes_and_across_reads() -> None:
    text = b"a::b" * 50_000
    found = [each.value for each in records_of_lines(io.BytesIO(text), "x", Shape(delimiter=b"::"))]
    assert found == text.split(b"::")
