"""The metrics that clients push (KIP-714): OpenTelemetry's MetricsData, version 1, in protobuf's encoding. Pure.

Reads sums, gauges and histograms, which are what clients of Kafka send, and skips every other field. The bytes are a
client's: nothing is allocated beyond their size, and a point that claims more attributes or a longer name than is
accepted is rejected. A metric is read at a time, so that a reader can pause between two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rotunda.broker.errors import InvalidReceive

MOST_ATTRIBUTES: Final = 16
LONGEST_NAME: Final = 255

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES: Final = 10
_MASK: Final = (1 << 64) - 1
_DOUBLE_FORM: Final = struct.Struct("<d")

_DELTA: Final = 1

#: The numbers of the fields that are read, by message.
_RESOURCE_METRICS = 1
_SCOPE_METRICS = 2
_METRICS = 2
_NAME, _GAUGE, _SUM, _HISTOGRAM = 1, 5, 7, 9
_POINTS, _TEMPORALITY = 1, 2
_TIME, _AS_DOUBLE, _AS_INT, _POINT_ATTRIBUTES = 3, 4, 6, 7
_COUNT, _TOTAL, _HISTOGRAM_ATTRIBUTES = 4, 5, 9
_KEY, _VALUE = 1, 2
_TEXT, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4

_KINDS: Final = {_GAUGE: "gauge", _SUM: "sum", _HISTOGRAM: "histogram"}

#: Of a field with a length: its start and end. Of any other: its 64 bits, and 0.
_Content = tuple[int, int]

Attributes = tuple[tuple[str, str], ...]


class DataPoint(NamedTuple):
    """One value of a metric. That of a histogram is the sum of its ``samples``; of others ``samples`` is 1."""

    name: str
    kind: str
    attributes: Attributes
    time_ns: int
    """Since the epoch."""
    value: float
    samples: int
    is_delta: bool
    """It is the growth since the previous push."""


def data_points(data: bytes) -> Iterator[list[DataPoint]]:
    """Yield the points of each metric in a push. Raises InvalidReceive for malformed bytes."""
    try:
        for number, resource in _fields(data, (0, len(data))):
            if number == _RESOURCE_METRICS:
                yield from _of_resource(data, resource)
    except UnicodeDecodeError as error:
        raise InvalidReceive(f"malformed metrics: {error}") from error


def _of_resource(data: bytes, place: _Content) -> Iterator[list[DataPoint]]:
    for number, scope in _fields(data, place):
        if number == _SCOPE_METRICS:
            for inner, metric in _fields(data, scope):
                if inner == _METRICS:
                    yield list(_of_metric(data, metric))


def _of_metric(data: bytes, place: _Content) -> Iterator[DataPoint]:
    name = ""
    found: list[tuple[int, _Content]] = []
    for number, content in _fields(data, place):
        if number == _NAME:
            name = _text(data, content)
        elif number in _KINDS:
            found.append((number, content))
    if not 0 < len(name) <= LONGEST_NAME:
        raise InvalidReceive(f"metric with a name of {len(name)} characters")
    for kind, content in found:
        points = []
        is_delta = False
        for number, inner in _fields(data, content):
            if number == _POINTS:
                points.append(inner)
            elif number == _TEMPORALITY:
                is_delta = inner[0] == _DELTA
        for point in points:
            yield _point(data, point, name, kind, is_delta=is_delta)


def _point(data: bytes, place: _Content, name: str, kind: int, *, is_delta: bool) -> DataPoint:
    is_histogram = kind == _HISTOGRAM
    attributes_field = _HISTOGRAM_ATTRIBUTES if is_histogram else _POINT_ATTRIBUTES
    attributes: list[tuple[str, str]] = []
    time_ns, value, samples = 0, 0.0, 1
    for number, content in _fields(data, place):
        if number == attributes_field:
            attributes.append(_attribute(data, content))
            if len(attributes) > MOST_ATTRIBUTES:
                raise InvalidReceive(f"metric {name} with more than {MOST_ATTRIBUTES} attributes")
        elif number == _TIME:
            time_ns = content[0]
        elif is_histogram and number == _COUNT:
            samples = content[0]
        elif number == (_TOTAL if is_histogram else _AS_DOUBLE):
            value = _double(content)
        elif not is_histogram and number == _AS_INT:
            value = float(_signed(content))
    return DataPoint(name, _KINDS[kind], tuple(sorted(attributes)), time_ns, value, samples, is_delta)


def _attribute(data: bytes, place: _Content) -> tuple[str, str]:
    key = value = ""
    for number, content in _fields(data, place):
        if number == _KEY:
            key = _text(data, content)
        elif number == _VALUE:
            value = _any_value(data, content)
    if len(key) > LONGEST_NAME or len(value) > LONGEST_NAME:
        raise InvalidReceive(f"attribute of more than {LONGEST_NAME} characters")
    return key, value


def _any_value(data: bytes, place: _Content) -> str:
    """Return a value as text; of a list or a map an empty one."""
    for number, content in _fields(data, place):
        if number == _TEXT:
            return _text(data, content)
        if number == _BOOL:
            return "true" if content[0] else "false"
        if number == _INT:
            return str(_signed(content))
        if number == _DOUBLE:
            return repr(_double(content))
    return ""


def _double(content: _Content) -> float:
    value: float = _DOUBLE_FORM.unpack(content[0].to_bytes(_DOUBLE_FORM.size, "little"))[0]
    return value


def _signed(content: _Content) -> int:
    return content[0] - (1 << 64) if content[0] >> 63 else content[0]


def _text(data: bytes, place: _Content) -> str:
    start, end = place
    return data[start:end].decode()


def _fields(data: bytes, place: _Content) -> Iterator[tuple[int, _Content]]:
    """Yield the number and content of each field of a message."""
    at, end = place
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            content = value, 0
        elif kind == _BYTES:
            length, at = _varint(data, at, end)
            content = at, at + length
            at += length
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
            content = int.from_bytes(data[at : at + length], "little"), 0
            at += length
        else:
            raise InvalidReceive(f"malformed metrics: wire type {kind}")
        if at > end:
            raise InvalidReceive(f"malformed metrics: a field ends {at - end} bytes after its message")
        yield tag >> 3, content


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for number in range(min(_MOST_VARINT_BYTES, end - at)):
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value & _MASK, at + number + 1
    raise InvalidReceive("malformed metrics: a number without an end")
