"""The logs that `ops/bench --spark` measures on have the rows that they are said to have, each in its hour."""

from pathlib import Path

import duckdb
import pytest

from ops.benchmarks import request_logs


@pytest.mark.parametrize("rows", [999, 10_000, 24_001])
def test_every_row_is_there_once_and_in_its_hour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int) -> None:
    monkeypatch.setattr(request_logs, "ROWS_PER_HOUR", 1000)
    hours = request_logs.generate(tmp_path, rows)
    assert hours == -(-rows // 1000)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        log = f"read_parquet('{tmp_path}/requests/**/*.parquet', hive_partitioning = true)"
        found = connection.sql(
            f"SELECT count(*), count(DISTINCT correlationId), count(DISTINCT (date, hour)), "  # noqa: S608
            f"bool_and(strftime(time, '%Y-%m-%d %H') = date || ' ' || hour) FROM {log}"
        ).fetchall()
    assert found == [(rows, rows, hours, True)]
