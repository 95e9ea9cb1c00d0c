"""The same question put to DuckDB on the same files, and how its rows are compared with a job's."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame

from tests.spark.questions import of_range


def ask(log: Path, dataset: str, time_range: tuple[str, str], sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of `r`, the rows of a dataset in a range, and of `q`, those of its requests."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(of_range(log, dataset, time_range, sql)).fetchall()


def assert_same(found: DataFrame | Iterable[Sequence[Any]], expected: Iterable[Sequence[Any]]) -> None:
    """Compare rows in any order; floats may differ in their last digits."""
    rows = found.collect() if isinstance(found, DataFrame) else found
    one, other = (sorted((_plain(row) for row in each), key=_key) for each in (rows, expected))
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for cell, wanted in zip(left, right, strict=True):
            same = pytest.approx(wanted, rel=1e-9, abs=1e-12) if isinstance(wanted, float) else wanted
            assert cell == same, f"{left} is not {right}"


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(float(value) if isinstance(value, Decimal) else value for value in row)


def _key(row: tuple[Any, ...]) -> str:
    return str([_rounded(value) if isinstance(value, float) else str(value) for value in row])


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else f"{value:.6g}"
