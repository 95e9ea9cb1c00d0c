"""The diagnosis in planted conditions, and its features against the same numbers worked out by DuckDB."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.bottlenecks import HEALTHY
from spark.jobs.diagnose import COLUMNS, headline, transform
from spark.load_features import features
from spark.request_log import RequestLog
from spark.time_range import TimeRange, to_us
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, write
from tests.support.planted_conditions import PLANTED, WINDOW_S, plant

WINDOW_US = WINDOW_S * 1_000_000
RANGE = TimeRange(to_us(START), to_us(START + timedelta(hours=3)))


def planted_log(root: Path, seed: int) -> dict[Any, str]:
    """Write every condition in a minute of its own, in an order by chance, and return their names by window."""
    names = sorted(PLANTED, key=lambda name: hash((seed, name)))
    places = {START + timedelta(seconds=number * WINDOW_S): name for number, name in enumerate(names)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
    for number, (start, name) in enumerate(places.items()):
        for dataset, rows in plant(PLANTED[name], start, seed + number).items():
            found[dataset] += rows
    for dataset, rows in found.items():
        write(root, dataset, rows)
    return {start.replace(tzinfo=None): name for start, name in places.items()}


def window_features(spark: SparkSession, root: Path) -> DataFrame:
    """Return the features of a whole log."""
    log = RequestLog(spark, str(root))
    requests, roles, connections, gaps = (log.read(name, RANGE, columns) for name, columns in COLUMNS.items())
    return features(requests, roles, connections, gaps, WINDOW_US)


@pytest.mark.parametrize("has_roles", [True, False], ids=["with roles", "without roles"])
def test_every_planted_condition_is_found_and_none_in_a_healthy_load(
    spark: SparkSession, tmp_path: Path, has_roles: bool
) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    names = planted_log(tmp_path, seed)
    if not has_roles:
        (tmp_path / "roles").rename(tmp_path / "absent")
    found = {names[row.window]: row for row in transform(window_features(spark, tmp_path)).collect()}
    assert found.keys() == PLANTED.keys()
    for name, planted in PLANTED.items():
        row = found[name]
        if has_roles or planted.without_roles:
            assert (row.bottleneck, row.rule) == (planted.bottleneck, planted.rule), (name, row)
        else:
            assert row.bottleneck in (HEALTHY, "handler", planted.bottleneck), (name, row)
        assert 0 < row.certainty <= 1
        assert row.certainty >= 0.7 or not has_roles, (name, row)
        assert (row.advice is None) == (row.bottleneck == HEALTHY)


SQL = """
WITH log AS (SELECT *, time_bucket(INTERVAL '60 seconds', time AT TIME ZONE 'UTC') w,
  CASE requestApiKey WHEN 0 THEN remoteTimeUs
                     WHEN 1 THEN coalesce(greatest(remoteTimeUs - maxWaitMs * 1000, 0), 0) ELSE 0 END rest
  FROM read_parquet('{log}/requests/**/*.parquet')),
 total AS (SELECT w, sum(sampleWeight) n, sum(sampleWeight * requestQueueTimeUs) q, sum(sampleWeight * localTimeUs) l,
  sum(sampleWeight * rest) r, sum(sampleWeight * responseQueueTimeUs) a, sum(sampleWeight * sendTimeUs) s,
  sum(sampleWeight * localTimeUs) FILTER (requestApiKey = 0) / sum(sampleWeight) FILTER (requestApiKey = 0) pl
  FROM log GROUP BY w),
 at_handler AS (SELECT w, handler, sum(sampleWeight * (requestQueueTimeUs + localTimeUs)) us FROM log GROUP BY ALL),
 slow AS (SELECT w, arg_max(handler, us) h, max(us) us FROM at_handler GROUP BY w),
 part AS (SELECT w, topic, partition, sum(sampleWeight * (requestQueueTimeUs + localTimeUs)) us
  FROM log JOIN slow USING (w) WHERE handler = h AND topic IS NOT NULL GROUP BY ALL),
 hot AS (SELECT w, max(us) us FROM part GROUP BY w),
 by_client AS (SELECT w, clientId, sum(sampleWeight * sendTimeUs) us FROM log GROUP BY ALL),
 client AS (SELECT w, max(us) us FROM by_client GROUP BY w),
 place AS (SELECT *, time_bucket(INTERVAL '60 seconds', (time - to_microseconds(intervalUs // 2)) AT TIME ZONE 'UTC') w
  FROM read_parquet('{log}/roles/**/*.parquet') WHERE traffic),
 process AS (SELECT w, role, index,
  greatest(1 - sum(idleShare * intervalUs) / sum(intervalUs) FILTER (idleShare IS NOT NULL),
           (sum(cpuTimeUs) + sum(runQueueTimeUs)) / sum(intervalUs)) busy,
  sum(cpuTimeUs) / sum(intervalUs) cpu, sum(runQueueTimeUs) / sum(intervalUs) waits,
  sum(commitTimeUs) / sum(intervalUs) commits, max(cpus) cpus, sum(mutesRingFull) ring FROM place GROUP BY ALL),
 role AS (SELECT w, max(busy) FILTER (role = 'processor') pb, max(busy) FILTER (role = 'handler') hb,
  sum(cpu) / max(cpus) cpu,
  max(waits) FILTER (role IN ('processor', 'handler')) waits, sum(ring) ring FROM process GROUP BY w),
 own AS (SELECT w, commits FROM process JOIN slow USING (w) WHERE role = 'handler' AND index = h),
 conn AS (SELECT time_bucket(INTERVAL '60 seconds', time AT TIME ZONE 'UTC') w, count(*) FILTER (event = 'open') opened
  FROM read_parquet('{log}/connections/**/*.parquet') GROUP BY w)
SELECT w, n, q / n, pl, q / (q + l + r + a), (q + l + r + a), s / (q + l + r + a + s), h, hot.us / slow.us,
  client.us / s, pb, hb, cpu, waits, ring, commits, coalesce(opened, 0)
FROM total JOIN slow USING (w) LEFT JOIN hot USING (w) JOIN client USING (w) LEFT JOIN role USING (w)
LEFT JOIN own USING (w) LEFT JOIN conn USING (w) ORDER BY w
"""
CHECKED = (
    "window", "requests", "queueMeanUs", "produceLocalMeanUs", "queueShare", "brokerUs", "sendShare", "slowHandler",
    "hotPartitionShare", "slowClientSendShare", "processorBusyMax", "handlerBusyMax", "cpuUse", "runQueueMax",
    "mutesRingFull", "slowHandlerCommitShare", "opened",
)  # fmt: skip


def test_features_are_those_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    planted_log(tmp_path, seed)
    later = timedelta(hours=1)
    write(tmp_path, "requests", [row | {"time": row["time"] + later} for row in random_requests(seed, 1500, hours=1)])
    gap = {"time": START, "dataset": "requests", "source": "processor", "cause": "ring_full", "rows": 5}
    write(tmp_path, "gaps", [gap])
    found = window_features(spark, tmp_path).orderBy("window").select(*CHECKED, "lostRows").collect()
    expected = duckdb.sql(SQL.format(log=tmp_path)).fetchall()
    assert len(found) == len(expected) >= len(PLANTED)
    for row, numbers in zip(found, expected, strict=True):
        for name, value in zip(CHECKED, numbers, strict=True):
            is_number = isinstance(value, float | int)
            assert row[name] == (pytest.approx(value, rel=1e-9) if is_number else value), (name, row)
    assert [row.lostRows for row in found if row.lostRows] == [5]


def test_the_headline_names_what_is_wrong_most_often(spark: SparkSession) -> None:
    schema = "bottleneck string, rule string, certainty double, evidence string"
    healthy = (HEALTHY, None, 0.9, "all is well")
    ill = [("log", "slow log", 0.5, "so it seems"), ("log", "slow log", 0.9, "it is"), ("cpu", "no cpu", 0.9, "busy")]
    assert headline(spark.createDataFrame([healthy] * 3, schema)) == "Healthy in all of 3 windows"
    assert headline(spark.createDataFrame([healthy] * 7 + ill, schema)) == "Slow log in 2 of 10 windows: it is"
