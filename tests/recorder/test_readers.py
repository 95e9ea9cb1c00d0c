"""Whatever reads Parquet opens the request log as it is: pandas, Polars, DuckDB and Arrow."""

from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow.dataset as ds
import pytest

from tests.support.recorder_bench import RecorderBench, rows_of


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Return a dataset of 30 requests in two files of two hours, one of them slow and one failed."""
    bench = RecorderBench(tmp_path / "request-log")
    for _ in range(2):
        rows = rows_of(bench.clock, 15, api_key=0, partition_row=1, record_count=2)
        rows["error_code"][3] = 7
        bench.push(rows)
        bench.turn()
        bench.recorder.finish()
        bench.clock.advance_ms(3_600_000)
    (bench.root / "requests" / "v=1" / ".half").write_bytes(b"not finished")
    return bench.root / "requests"


def test_users_6_pandas(requests: Path) -> None:
    frame = pd.read_parquet(requests)
    assert len(frame) == 30
    assert str(frame["time"].dt.tz) == "UTC"
    assert frame["records"].sum() == 60
    assert set(frame["hour"].astype(int)) == {22, 23}


def test_users_6_polars(requests: Path) -> None:
    frame = polars.scan_parquet(f"{requests}/**/*.parquet", hive_partitioning=True)
    found = frame.group_by("topic").agg(polars.len(), polars.col("errorCode").max()).collect()
    assert found.rows() == [("b", 30, 7)]
    assert frame.collect_schema()["time"] == polars.Datetime("us", "UTC")


def test_users_6_duckdb(requests: Path) -> None:
    query = (
        "SELECT hour, count(*), sum(totalTimeUs) FROM read_parquet(?, hive_partitioning = true) GROUP BY 1 ORDER BY 1"
    )
    with duckdb.connect() as connection:
        rows = connection.execute(query, [f"{requests}/**/*.parquet"]).fetchall()
    assert [(int(hour), count, int(total)) for hour, count, total in rows] == [(22, 15, 2250), (23, 15, 2250)]


def test_users_6_arrow(requests: Path) -> None:
    dataset = ds.dataset(requests, format="parquet", partitioning="hive")
    assert dataset.count_rows(filter=ds.field("errorCode") != 0) == 2
