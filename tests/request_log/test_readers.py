"""All common Parquet readers open the request log as it is: pandas, Polars, DuckDB and Arrow."""

from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rotunda.broker.request_log import file_reader
from rotunda.broker.request_log.file_reader import Query
from tests.support.generated_log import LATER_COLUMNS
from tests.support.recorder_bench import WALL_MS, RecorderBench, rows_of
from tests.support.roles_bench import INTERVAL_MS, RolesBench


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Return a dataset of 30 requests in two files of two hours, one of them slow and one failed."""
    bench = RecorderBench(tmp_path / "request-log")
    for _ in range(2):
        rows = rows_of(bench.clock, 15, api_key=0, partition_row=1, record_count=2)
        rows["error_code"][3] = 7
        bench.push(rows)
        bench.run_once()
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


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """Return a dataset of two intervals, in the first of which a processor was idle for a quarter of the time."""
    bench = RolesBench(tmp_path / "request-log")
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.count(bench.processor, "io_wait_ns", 1)
    bench.count(bench.processor, "io_ns", 3)
    bench.run_once(INTERVAL_MS)
    bench.run_once(INTERVAL_MS)
    bench.recorder.finish()
    return bench.root / "roles"


def test_roles_in_every_reader(roles: Path) -> None:
    """Null numbers, and shares, have the same values everywhere."""
    everything = f"{roles}/**/*.parquet"
    frame = pd.read_parquet(roles)
    processor = frame[frame["role"] == "processor"].sort_values("time")
    assert (processor["idleShare"].iloc[0], processor["requests"].tolist()) == (0.25, [1, 0])
    assert frame.loc[frame["role"] == "cleaner", "idleShare"].isna().all()
    lazy = polars.scan_parquet(everything, hive_partitioning=True)
    assert lazy.collect_schema()["idleShare"] == polars.Float64
    assert lazy.filter(polars.col("idleShare") < 0.5).select("role", "traffic").collect().rows() == [
        ("processor", True)
    ]
    query = "SELECT role, sum(requests), avg(idleShare) FROM read_parquet(?) GROUP BY 1 ORDER BY 1 DESC"
    with duckdb.connect() as connection:
        found = connection.execute(query, [everything]).fetchall()
    assert ("processor", 1, 0.25) in found
    assert ("cleaner", None, None) in found
    rows = file_reader.read(roles.parent, "roles", Query(0, {"role": lambda role: role == "processor"}))
    assert sorted((row["traffic"], row["requests"]) for row in rows) == [(False, 0), (True, 1)]


def test_older_files_beside_newer_ones(requests: Path) -> None:
    """A column that an older file lacks is null: columns are only ever added."""
    first, second = sorted(requests.rglob("*.parquet"))
    pq.write_table(pq.read_table(first, partitioning=None).drop_columns(list(LATER_COLUMNS)), first)
    rows = file_reader.read(requests.parent, "requests", Query(WALL_MS * 1000 - 3_600_000_000))
    assert [row["recordBytes"] for row in rows] == [None] * 30
    query = "SELECT count(*), count(records), count(codec) FROM read_parquet(?, union_by_name = true)"
    with duckdb.connect() as connection:
        assert connection.execute(query, [f"{requests}/**/*.parquet"]).fetchall() == [(30, 30, 0)]
    newest_first = polars.scan_parquet([second, first], missing_columns="insert")
    assert newest_first.select(polars.len(), polars.col("codec").null_count()).collect().rows() == [(30, 30)]
    assert len(pd.read_parquet(requests)) == 30
