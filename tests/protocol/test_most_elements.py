"""The limit on elements in one request: below the maximum that its bytes could encode, to bound memory."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.messages.produce import MOST_PARTS, parse_produce
from rotunda.broker.protocol.primitives import (
    MOST_ELEMENTS,
    MOST_TAGGED_FIELDS,
    skip_tagged_fields,
    unsigned_varint_bytes,
)

Parse = Callable[[bytes, int, int, int], Any]


def legacy(count: int) -> bytes:
    return struct.pack(">i", count)


def compact(count: int) -> bytes:
    return unsigned_varint_bytes(count + 1)


def delete_records(view: bytes, version: int, offset: int, end: int) -> Any:
    return codec.decode(ApiKey.DELETE_RECORDS, version, memoryview(view), offset, end)


#: (parser, version, bytes before the topics, a topic up to its partitions, a partition, the end of a topic, the end of
#: the request)
Shape = tuple[Parse, int, bytes, bytes, bytes, bytes, bytes]
SHAPES: dict[str, Shape] = {
    "Produce": (parse_produce, 3, struct.pack(">hhi", -1, 1, 0), b"\0\1t", struct.pack(">ii", 0, -1), b"", b""),
    "Produce, flexible": (
        parse_produce, 9, struct.pack(">bhi", 0, 1, 0), b"\2t", struct.pack(">iH", 0, 0), b"\0", b"\0"
    ),
    "compiled": (delete_records, 2, b"", b"\2t", bytes(13), b"\0", bytes(5)),
}  # fmt: skip


def request(shape: Shape, topics: int, partitions: int) -> bytes:
    _, _, head, topic, part, behind_topic, following = shape
    count = compact if behind_topic else legacy
    return head + count(topics) + (topic + count(partitions) + part * partitions + behind_topic) * topics + following


@pytest.mark.parametrize("name", SHAPES)
def test_as_many_as_anybody_names_are_read_and_not_more(name: str) -> None:
    shape = SHAPES[name]
    parse, version, *_ = shape
    most = MOST_PARTS if parse is parse_produce else MOST_ELEMENTS
    for topics, partitions in ((1, most - 1), (9, most // 10), (10, most // 10 - 1)):
        body = request(shape, topics, partitions)
        assert parse(body, version, 0, len(body))
    for topics, partitions in ((1, most + 1), (11, most // 10), (200, most // 100), (most + 1, 0)):
        body = request(shape, topics, partitions)
        with pytest.raises(InvalidReceive, match=r"a request.* may have"):
            parse(body, version, 0, len(body))


def test_more_tagged_fields_than_allowed_are_rejected() -> None:
    def fields(count: int) -> bytes:
        return unsigned_varint_bytes(count) + b"".join(unsigned_varint_bytes(tag) + b"\0" for tag in range(count))

    body = fields(MOST_TAGGED_FIELDS)
    assert skip_tagged_fields(body, 0, len(body)) == len(body)
    for count in (MOST_TAGGED_FIELDS + 1, 2**31 - 1, 2**32 - 1):
        body = unsigned_varint_bytes(count) + fields(300)[2:]
        with pytest.raises(InvalidReceive, match="tagged fields"):
            skip_tagged_fields(body, 0, len(body))
