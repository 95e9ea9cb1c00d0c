"""Produce, versions 3-13. HOT: handlers parse every request and encode its response here.

Parsing finds the position of each partition's records and copies nothing: the log writes them from the same memory. The
response to a request of one partition, by far the most common one, is made from a template, cached per topic-partition
and version: only its numbers are filled in.
"""

import struct
import sys
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_count,
    check_end,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
)
from rotunda.broker.protocol.sliced_responses import Lazily, MemorySink, SlicedEncoder
from rotunda.broker.protocol.steps import Steps

FIRST_FLEXIBLE: Final = 9
_LOG_START_OFFSET_FROM: Final = 5
_TOPIC_ID_FROM: Final = 13
_LONG_VARINT: Final = 0x80


class Part(NamedTuple):
    """One partition's records in a request."""

    topic_name: str | None
    """None from version 13, with topic ids."""
    topic_id: bytes | None
    """16 bytes; None below version 13."""
    partition: int
    records_offset: int
    """Where the records start, in the buffer that was parsed."""
    records_size: int
    """Bytes; -1 when the client sent null."""


class ProduceRequest(NamedTuple):
    """A request, its parts in the order of the wire format."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[Part]


#: Parts of one request, or topics: more than fit into the requests of the clients' defaults, read in 15 ms.
MOST_PARTS: Final = 25_000


class PartResponse(NamedTuple):
    """The outcome of one part. `record_errors` holds pairs of batch index and text."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


_unpack_acks_timeout = struct.Struct(">hi").unpack_from
_unpack_index_size = struct.Struct(
    ">"
    "i"  # index
    "i"  # records: length
).unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_index_varint = struct.Struct(
    ">"
    "i"  # index
    "B"  # records: length + 1, first byte of a varint
).unpack_from


def parse_produce(buffer: Buffer, version: int, offset: int, end: int) -> ProduceRequest:
    """Parse the request body in [offset, end) of `buffer`. InvalidReceive when malformed."""
    try:
        request, offset = _parse(buffer, version, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Produce: {error}") from error
    check_end(offset, end)
    return request


def _check_parts(count: int) -> None:
    if count > MOST_PARTS:
        raise InvalidReceive(f"{count} topics or partitions in a request, which may have {MOST_PARTS}")


def _parse(buffer: Buffer, version: int, offset: int, end: int) -> tuple[ProduceRequest, int]:
    flexible = version >= FIRST_FLEXIBLE
    read_id = read_compact_nullable_string if flexible else read_nullable_string
    transactional_id, offset = read_id(buffer, offset, end)
    acks, timeout_ms = _unpack_acks_timeout(buffer, offset)
    topic_count, offset = _read_count(buffer, version, offset + 6, end)
    _check_parts(topic_count)
    parts: list[Part] = []
    name: str | None = None
    topic_id: bytes | None = None
    for _ in range(topic_count):
        if version >= _TOPIC_ID_FROM:
            topic_id = bytes(buffer[offset : offset + 16])
            offset += 16
        else:
            name, offset = (read_compact_string if flexible else read_string)(buffer, offset, end)
        offset = _parse_partitions(buffer, version, (offset, end), (name, topic_id, parts))
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
    if flexible:
        offset = skip_tagged_fields(buffer, offset, end)
    return ProduceRequest(transactional_id, acks, timeout_ms, parts), offset


def _parse_partitions(
    buffer: Buffer, version: int, span: tuple[int, int], topic: tuple[str | None, bytes | None, list[Part]]
) -> int:
    """Append a topic's parts to the list in `topic`; return the offset after the topic's array."""
    (offset, end), (name, topic_id, parts) = span, topic
    flexible = version >= FIRST_FLEXIBLE
    count, offset = _read_count(buffer, version, offset, end)
    _check_parts(len(parts) + count)
    for _ in range(count):
        if flexible:
            partition, size = _unpack_index_varint(buffer, offset)
            offset += 5
            if size >= _LONG_VARINT:
                size, offset = read_unsigned_varint(buffer, offset - 1)
            size -= 1
        else:
            partition, size = _unpack_index_size(buffer, offset)
            offset += 8
            if size < -1:
                raise InvalidReceive(f"records of {size} bytes")
        parts.append(Part(name, topic_id, partition, offset, size))
        if size > 0:
            offset += size
            if offset > end:
                raise InvalidReceive(f"records reach {offset - end} bytes beyond the request")
        if flexible:
            offset = skip_tagged_fields(buffer, offset, end)
    return offset


def _read_count(buffer: Buffer, version: int, offset: int, end: int) -> tuple[int, int]:
    if version >= FIRST_FLEXIBLE:
        return read_compact_count(buffer, offset, end)
    (count,) = _unpack_int32(buffer, offset)
    check_count(count, offset + 4, end)
    return count, offset + 4


def encode_produce_response(
    version: int, correlation_id: int, throttle_ms: int, parts: Sequence[PartResponse]
) -> bytes:
    """Return the response, size and header included; neighbouring parts of one topic share its entry."""
    return codec.encode_response(ApiKey.PRODUCE, version, correlation_id, _response(throttle_ms, parts))


def produce_response_in_steps(
    version: int, correlation_id: int, throttle_ms: int, parts: Sequence[PartResponse]
) -> Steps[bytes]:
    """Return the result of `encode_produce_response`, in steps."""
    sink = MemorySink()
    encoder = SlicedEncoder(ApiKey.PRODUCE, version, sink, sys.maxsize)
    yield from encoder.encode(correlation_id, _response(throttle_ms, parts))
    return bytes(sink.data)


def _response(throttle_ms: int, parts: Sequence[PartResponse]) -> dict[str, Any]:
    topics = [
        {"name": name, "topic_id": topic_id, "partition_responses": Lazily(list(group), _part_fields)}
        for (name, topic_id), group in groupby(parts, itemgetter(0, 1))
    ]
    return {"responses": topics, "throttle_time_ms": throttle_ms}


def _part_fields(part: PartResponse) -> dict[str, Any]:
    return {
        "index": part.partition,
        "error_code": part.error_code,
        "base_offset": part.base_offset,
        "log_append_time_ms": part.log_append_time_ms,
        "log_start_offset": part.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": text} for index, text in part.record_errors
        ],
        "error_message": part.error_message,
    }


class ProduceResponseTemplate:
    """The whole response to a request of one partition, but for its numbers.

    See `single_partition_response`.
    """

    __slots__ = ("_middle", "_pack_into", "_prefix", "_suffix", "_with_start", "size_bytes")

    def __init__(self, prefix: bytes, middle: bytes, suffix: bytes, *, with_start: bool) -> None:
        self._prefix = prefix
        self._middle = middle
        self._suffix = suffix
        self._with_start = with_start
        numbers = _numbers(with_start=with_start).removeprefix(">")
        layout = struct.Struct(f">{len(prefix)}si{len(middle)}s{numbers}{len(suffix)}s")
        self._pack_into = layout.pack_into
        #: Length of the whole response, size prefix included: the same for all.
        self.size_bytes = layout.size

    @property
    def offset_at(self) -> int | None:
        """Return where the base offset is, two numbers before the log start offset; None: the response has none."""
        return len(self._prefix) + 4 + len(self._middle) + 2 if self._with_start else None

    def fill(
        self,
        correlation_id: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """Return the wire bytes, size and header included; no error message, no throttle time."""
        wire = bytearray(self.size_bytes)
        self.fill_into(wire, 0, correlation_id, error_code, (base_offset, log_append_time_ms, log_start_offset))
        return bytes(wire)

    def fill_into(
        self,
        buffer: bytearray | memoryview,
        at: int,
        correlation_id: int,
        error_code: int,
        offsets: tuple[int, int, int],
    ) -> None:
        """Write the same bytes into ``buffer``; ``offsets`` are base offset, append time and log start. HOT."""
        if not self._with_start:
            offsets = offsets[:2]  # type: ignore[assignment]  # versions below 5 have no log start offset
        self._pack_into(buffer, at, self._prefix, correlation_id, self._middle, error_code, *offsets, self._suffix)


def single_partition_response(
    version: int, topic_name: str | None, topic_id: bytes | None, partition: int
) -> ProduceResponseTemplate:
    """Return the template for responses about exactly this topic-partition in this version.

    Its numbers are contiguous: they are the bytes in which responses with other numbers differ.
    """
    wire, other = (
        encode_produce_response(
            version, 0, 0, [PartResponse(topic_name, topic_id, partition, number, number, number, number)]
        )
        for number in (0, -1)
    )
    with_start = version >= _LOG_START_OFFSET_FROM
    numbers_at = next(at for at, byte in enumerate(wire) if byte != other[at])
    numbers_end = numbers_at + struct.calcsize(_numbers(with_start=with_start))
    return ProduceResponseTemplate(wire[:4], wire[8:numbers_at], wire[numbers_end:], with_start=with_start)


def _numbers(*, with_start: bool) -> str:
    """Return the layout of error code, base offset, append time and, from version 5 on, log start."""
    return ">hqqq" if with_start else ">hqq"
