"""The report on latencies against the same numbers computed by DuckDB, and against a log with known content."""

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.failures import JobFailed
from rotunda.spark.hourly.rollups import PHASES, Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.latency import GROUPINGS, answer, counts, counts_of_rows, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import LATENCY
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

#: Of the first no hour is whole, of the second the later one is.
RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
RANGE_OF_A_WHOLE_HOUR = ("2026-03-01T10:07:00", "2026-03-01T12:00:00")
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def compare(
    found: DataFrame, log_path: Path, by: Sequence[str], window_us: int = 1, of: tuple[str, str] = RANGE
) -> None:
    if "window" in found.columns:
        found = found.withColumn("window", F.unix_micros("window"))
    sql = LATENCY.format(by=", ".join(["one", *by]), window=window_us)
    assert_same(found.select(F.lit(1), *found.columns), ask(log_path, "requests", of, sql))


@pytest.mark.parametrize("source", ["rows", "rollups", "rollups and late rows"])
def test_every_number_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path, source: str) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    log_path = tmp_path / "request-log"
    write(log_path, "requests", random_requests(seed, 2000))
    log = RequestLog(spark, str(log_path))
    rollups = Rollups(spark, str(tmp_path / "rollups"), log)
    if source != "rows":
        rollups.store(rollups.outdated(range(1_000_000)))
    if source == "rollups and late rows":
        write(log_path, "requests", random_requests(seed + 1, 500))
    asked = RANGE if source == "rows" else RANGE_OF_A_WHOLE_HOUR
    for name in [name for name in GROUPINGS if name != "hour"] if source == "rows" else ("version", "client"):
        found = counts(rollups, TimeRange.of(*asked, NOW), GROUPINGS[name])
        compare(transform(found, GROUPINGS[name]), log_path, GROUPINGS[name], of=asked)


def test_every_number_of_a_window_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    write(tmp_path, "requests", random_requests(seed, 2000))
    log, window_us = RequestLog(spark, str(tmp_path)), 300_000_000
    for by in (GROUPINGS["client"], GROUPINGS["all"]):
        rows = log.read("requests", TimeRange.of(*RANGE, NOW), ("time", *by, *PHASES, "sampleWeight"))
        compare(transform(counts_of_rows(rows, by, window_us), ("window", *by)), tmp_path, ["begin", *by], window_us)


def test_a_slow_window_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """A request a second for an hour; from 10:20 to 10:25 those of one client need a second instead of 145 µs."""
    rows = [request(START + timedelta(seconds=second), clientId="app") for second in range(3600)]
    rows += [
        request(
            START + timedelta(seconds=second, milliseconds=1),
            clientId="<b>slow",
            localTimeUs=1_000_000 if 1200 <= second < 1500 else 100,
        )
        for second in range(0, 3600, 2)
    ]
    write(tmp_path, "requests", rows)
    log = RequestLog(spark, str(tmp_path))
    rollups = Rollups(spark, str(tmp_path / "rollups"), log)

    def asked(by: str, window_us: int) -> Context:
        time_range = TimeRange.of("2026-03-01T10:00", "2026-03-01T11:00", NOW)
        return Context(spark, log, rollups, time_range, Namespace(by=by, window=window_us), NOW)

    result = answer(asked("client", 300_000_000))
    # The middle of the bucket that 1,000,045 µs fall into.
    assert result.headline == "5,400 requests; slowest is <b>slow: p99 998.24 ms from 2026-03-01 10:20:00"
    assert result.chart is not None
    assert result.chart.labels[:2] == ["03-01 10:00", "03-01 10:05"]
    app, slow = result.chart.series
    assert (app.name, slow.name) == ("app", "<b>slow")
    assert list(slow.values) == pytest.approx([145] * 4 + [1_000_045] + [145] * 7, rel=0.016)
    assert list(app.values) == pytest.approx([145] * 12, rel=0.016)
    with pytest.raises(JobFailed, match="--by hour is a window of its own"):
        answer(asked("hour", 300_000_000))
    with pytest.raises(JobFailed, match="cuts the range into 3,600 windows; 2,000 are the most"):
        answer(asked("api", 1_000_000))
