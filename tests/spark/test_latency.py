"""The report on latencies against the same numbers worked out by DuckDB, and against a log whose truth is known."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from spark.jobs.latency import GROUPINGS, transform
from spark.request_log import RequestLog
from spark.rollups import Rollups
from spark.time_range import TimeRange
from tests.support.feeds import random_seed
from tests.support.generated_log import random_requests, write

RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
NOW = datetime(2026, 3, 2, tzinfo=UTC)

SQL = """
WITH r AS (SELECT * FROM read_parquet('{log}/requests/**/*.parquet', hive_partitioning = true, union_by_name = true)
           WHERE time >= TIMESTAMPTZ '{start}+00' AND time < TIMESTAMPTZ '{end}+00'),
 n AS (SELECT *, least(greatest(totalTimeUs, 0) * 1000, 137438953471)::BIGINT ns FROM r),
 b AS (SELECT *, greatest(length(format('{{:b}}', ns)) - 6, 0)::INT s FROM n),
 c AS (SELECT {by}, s * 32 + (ns >> s) bucket, (((ns >> s) << s) + ((1::BIGINT << s) - 1) // 2) / 1000 middle,
       sum(sampleWeight) n FROM b GROUP BY ALL),
 q AS (SELECT *, sum(n) OVER (PARTITION BY {by} ORDER BY bucket) below, sum(n) OVER (PARTITION BY {by}) whole FROM c)
SELECT {by}, any_value(whole)::BIGINT requests, min(middle) FILTER (below >= ceil(whole * 0.5)) p50,
       min(middle) FILTER (below >= ceil(whole * 0.999)) p999 FROM q GROUP BY {by} ORDER BY {by}
"""


@pytest.mark.parametrize("by", [name for name in GROUPINGS if name != "hour"])
@pytest.mark.parametrize("stored", [False, True], ids=["from rows", "from rollups"])
def test_quantiles_are_those_of_an_independent_computation(
    spark: SparkSession, tmp_path: Path, by: str, stored: bool
) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    log_path = tmp_path / "request-log"
    write(log_path, "requests", random_requests(seed, 2000))
    log = RequestLog(spark, str(log_path))
    rollups = Rollups(spark, str(tmp_path / "rollups"), log)
    if stored:
        rollups.store(rollups.outdated(range(1_000_000)))
    columns = GROUPINGS[by]
    found = transform(*rollups.read(TimeRange.of(*RANGE, NOW)), columns)
    rows = [tuple(row) for row in found.select(*columns, "requests", "p50Us", "p999Us").collect()]
    sql = SQL.format(log=log_path, start=RANGE[0], end=RANGE[1], by=", ".join(columns))
    assert sorted(rows, key=str) == sorted(duckdb.sql(sql).fetchall(), key=str)
