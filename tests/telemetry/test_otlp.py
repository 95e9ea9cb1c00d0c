"""Pushed metrics are decoded within bounds; malformed ones are rejected."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.telemetry.otlp import DataPoint, data_points
from tests.support.otlp import (
    CUMULATIVE,
    attribute,
    fixed,
    gauge,
    histogram,
    number,
    part,
    point,
    pushed,
    sum_of,
    varint,
)

SEED = random.randrange(2**32)
MANY = {f"k{index}": "v" for index in range(17)}


def decoded(data: bytes) -> list[DataPoint]:
    return [each for points in data_points(data) for each in points]


def test_t16_gauges_sums_and_histograms_are_read() -> None:
    data = pushed(
        gauge("a.avg", point(1.5, 7, {"topic": "t", "partition": "0"}), point(-2)),
        sum_of("b.total", point(3, 8)),
        sum_of("c.total", point(4), temporality=CUMULATIVE),
        histogram("d.time", 5, 2.5),
    )
    assert decoded(data) == [
        DataPoint("a.avg", "gauge", (("partition", "0"), ("topic", "t")), 7_000_000, 1.5, 1, False),
        DataPoint("a.avg", "gauge", (), 0, -2.0, 1, False),
        DataPoint("b.total", "sum", (), 8_000_000, 3.0, 1, True),
        DataPoint("c.total", "sum", (), 0, 4.0, 1, False),
        DataPoint("d.time", "histogram", (("node", "1"),), 5_000_000, 2.5, 5, True),
    ]
    assert decoded(b"") == decoded(pushed()) == []


def test_attributes_of_all_plain_types_are_read_as_texts() -> None:
    values = {"b": number(2, 1), "d": fixed(4, 0.5), "i": number(3, -7), "s": part(1, "é"), "x": part(5, b"")}
    labels = b"".join(part(7, part(1, key) + part(2, value)) for key, value in values.items())
    [found] = decoded(pushed(gauge("a", labels + point(1.0))))
    assert dict(found.attributes) == {"b": "true", "d": "0.5", "i": "-7", "s": "é", "x": ""}


def test_t18_unknown_fields_are_skipped() -> None:
    noise = number(99, 5) + fixed(98, 1.0) + part(97, b"xyz") + varint(96 << 3 | 5) + b"four"
    [found] = decoded(noise + pushed(noise + gauge("a", noise + point(1.0) + noise)) + noise)
    assert found == DataPoint("a", "gauge", (), 0, 1.0, 1, False)


@pytest.mark.parametrize(
    "metric",
    [
        gauge("", point(1.0)),
        gauge("x" * 256, point(1.0)),
        gauge("a", point(1.0, 0, MANY)),
        gauge("a", attribute(7, "k", "v" * 256) + point(1.0)),
        part(1, b"\xff") + part(5, b""),
    ],
)
def test_t17_names_and_attributes_are_bounded(metric: bytes) -> None:
    with pytest.raises(InvalidReceive):
        decoded(pushed(metric))


def test_t18_malformed_bytes_are_rejected_and_nothing_else_happens() -> None:
    """Cut off, or with changed bytes: either metrics or InvalidReceive. A group (wire type 3) is malformed."""
    data = pushed(gauge("a.avg", point(1.5, 7, {"topic": "t"})), sum_of("b", point(3)), histogram("c", 2, 1.0))
    chance = random.Random(SEED)
    for wrong in (b"\x0b", b"\x08" + b"\x80" * 11, b"\x0a\x05ab", b"\x0d12"):
        with pytest.raises(InvalidReceive):
            decoded(wrong)
    for _ in range(2000):
        changed = bytearray(data[: chance.randrange(len(data) + 1)])
        for _ in range(chance.randrange(4)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            decoded(bytes(changed))
        except InvalidReceive:
            continue
        except Exception as error:
            raise AssertionError(f"seed {SEED}: {bytes(changed)!r}") from error
