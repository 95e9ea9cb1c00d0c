"""The input of jobs: only the directories of their range, only the columns they use, and no log where rollups do."""

import re
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rotunda.spark.hourly.rollups import INPUT_COLUMNS, KEYS, PHASES, Rollups, latencies_by_key
from rotunda.spark.jobs.latency import counts, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.log.schema import PARTITION_COLUMNS
from rotunda.spark.time_range import TimeRange
from tests.support.generated_log import random_requests, write

NOW = datetime(2026, 3, 2, tzinfo=UTC)
RANGE = TimeRange.of("2026-03-01T10:00:00", "2026-03-01T12:00:00", NOW)


def plan_of(rows: DataFrame) -> str:
    """Return the physical plan as `explain("formatted")` prints it."""
    return str(rows.sparkSession._jvm.PythonSQLUtils.explainString(rows._jdf.queryExecution(), "formatted"))  # type: ignore[union-attr]


def columns_of(plan: str) -> list[set[str]]:
    """Return, for each scan of files, the columns that it reads."""
    schemas = re.findall(r"ReadSchema: struct<(.*)>", plan)
    return [{field.partition(":")[0] for field in schema.split(",") if field} for schema in schemas]


def test_latency_reads_the_directories_and_columns_that_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "request-log"
    write(path, "requests", random_requests(1, 200, hours=4))
    log = RequestLog(spark, str(path))
    rollups = Rollups(spark, str(tmp_path / "rollups"), log)
    plan = plan_of(transform(counts(rollups, RANGE, ["clientId"]), ["clientId"]))
    scans = re.findall(r"PartitionFilters: \[(.*)\]", plan)
    assert scans
    for filters in scans:
        assert "2026-03-01" in filters
        assert re.search(r"hour#\d+ (IN \(10,11\)|INSET 10, 11)", filters), filters
    for columns in columns_of(plan):
        assert columns <= {"clientId", *PHASES, "sampleWeight", "time"}
    assert {"totalTimeUs"} <= set.union(*columns_of(plan))

    rollups.store(range(1_000_000))
    plan = plan_of(transform(counts(rollups, RANGE, ["clientId"]), ["clientId"]))
    assert "/rollups/" in plan
    assert "/request-log/" not in plan
    assert "hour=12" not in plan


def test_the_rollup_reads_the_files_it_stands_for_and_no_other_column(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "request-log"
    write(path, "requests", random_requests(1, 200))
    log = RequestLog(spark, str(path))
    files = log.files("requests")
    plan = plan_of(latencies_by_key(log.read_files("requests", files[:1], INPUT_COLUMNS)))
    (columns,) = columns_of(plan)
    assert columns == {*KEYS, *PHASES, "sampleWeight"}
    assert columns.isdisjoint(PARTITION_COLUMNS)
    assert files[0].name in plan
    assert files[1].name not in plan
