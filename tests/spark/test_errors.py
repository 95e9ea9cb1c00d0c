"""The report on errors against the same numbers computed by DuckDB, and against bursts of known size."""

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.errors import COLUMNS, answer, bursts, runs, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import BURSTS, ERRORS
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
NOW = datetime(2026, 3, 2, tzinfo=UTC)
GAP_S, LEAST = 600, 3


def test_every_number_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    write(tmp_path, "requests", random_requests(seed, 3000))
    log, time_range = RequestLog(spark, str(tmp_path)), TimeRange.of(*RANGE, NOW)
    found = runs(log.read("requests", time_range, COLUMNS), GAP_S * 1_000_000).cache()
    requests, _ = Rollups(spark, str(tmp_path / "rollups"), log).read(time_range)
    in_us = {"firstSeen": "unix_micros(firstSeen)", "lastSeen": "unix_micros(lastSeen)"}
    for table, sql in ((bursts(found, LEAST), BURSTS), (transform(found, requests, LEAST), ERRORS)):
        columns = [f"{in_us.get(name, name)} AS {name}" for name in table.columns]
        assert_same(table.selectExpr(*columns), ask(tmp_path, "requests", RANGE, sql.format(gap_s=GAP_S, least=LEAST)))


def test_bursts_that_are_planted_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """Two bursts of one client, 30 s apart: 20 errors in one second, and 10 a second apart. Another's are alone."""
    wrong = {"requestApiKeyName": "OFFSET_COMMIT", "errorCode": 22, "clientId": "nightly"}
    rows = [request(START + timedelta(milliseconds=10 * i), **wrong) for i in range(20)]
    rows += [request(START + timedelta(seconds=30 + i), **wrong) for i in range(10)]
    rows += [request(START + timedelta(seconds=60 * i), requestApiKeyName="FETCH", errorCode=3) for i in range(9)]
    rows += [request(START + timedelta(seconds=i), clientId="nightly", sampleWeight=3) for i in range(10)]
    write(tmp_path, "requests", rows)
    log = RequestLog(spark, str(tmp_path))
    time_range = TimeRange.of("2026-03-01T10:00", "2026-03-01T11:00", NOW)
    options = Namespace(burst_gap=10_000_000, burst_errors=5)
    result = answer(Context(spark, log, Rollups(spark, str(tmp_path / "r"), log), time_range, options, NOW))
    first, second = result.tables["errors"].collect()
    assert (first.clientId, first.errors, first.shareOfClient, first.bursts) == ("nightly", 30, 0.5, 2)
    assert (first.largestBurst, first.longestBurstS, first.peakPerSecond) == (20, 9.0, 20)
    assert (second.clientId, second.errors, second.bursts, second.longestBurstS) == ("app", 9, 0, None)
    assert result.facts["share"] == pytest.approx(39 / 69)
    assert "OFFSET_COMMIT ILLEGAL_GENERATION of client nightly, 30 times, 50.0% of this client" in result.headline
    assert "largest burst: 20 in 0.2 s from 2026-03-01 10:00:00" in result.headline
