"""An encoder of pushed metrics (OTLP), independent of the broker's decoder."""

from __future__ import annotations

import struct
from collections.abc import Mapping

DELTA, CUMULATIVE = 1, 2


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def part(number: int, content: bytes | str) -> bytes:
    """Encode a field with a length: a text, or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def fixed(field: int, value: float) -> bytes:
    form = "<q" if isinstance(value, int) else "<d"
    return varint(field << 3 | 1) + struct.pack(form, value)


def attribute(field: int, key: str, value: str) -> bytes:
    return part(field, part(1, key) + part(2, part(1, value)))


def point(value: float, time_ms: int = 0, attributes: Mapping[str, str] | None = None) -> bytes:
    labels = b"".join(attribute(7, key, text) for key, text in (attributes or {}).items())
    return labels + fixed(3, time_ms * 1_000_000) + fixed(6 if isinstance(value, int) else 4, value)


def gauge(name: str, *points: bytes) -> bytes:
    return part(1, name) + part(3, "ms") + part(5, b"".join(part(1, each) for each in points))


def sum_of(name: str, *points: bytes, temporality: int = DELTA) -> bytes:
    body = b"".join(part(1, each) for each in points) + number(2, temporality) + number(3, 1)
    return part(1, name) + part(7, body)


def histogram(name: str, count: int, total: float, temporality: int = DELTA) -> bytes:
    buckets = struct.pack("<3q", 1, count - 1, 0)
    data = attribute(9, "node", "1") + fixed(3, 5_000_000) + fixed(4, count) + fixed(5, total) + part(6, buckets)
    return part(1, name) + part(9, part(1, data) + number(2, temporality))


def pushed(*metrics: bytes) -> bytes:
    """Encode MetricsData with one resource and one scope."""
    scope = part(1, part(1, "kafka")) + b"".join(part(2, each) for each in metrics)
    return part(1, part(1, attribute(1, "client", "x")) + part(2, scope) + part(3, "https://schema"))
