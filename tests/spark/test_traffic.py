"""The report on traffic against the same numbers computed by DuckDB, and against a log with known content."""

import random
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.analysis.batching import COLUMNS as PRODUCE_COLUMNS
from rotunda.spark.analysis.batching import batch_sizes, savings
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.traffic import COLUMNS, answer, flows, skews, transform
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import BATCHES, SAVINGS, SKEW, SKEWS, TRAFFIC
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def test_every_number_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    rows = random_requests(seed, 2000)
    for row in rows:
        row["partitionCount"] = chance.choice([1, 1, 3])
        row["codec"] = chance.choice(["none", "lz4", "mixed"]) if row["requestApiKeyName"] == "PRODUCE" else None
    write(tmp_path, "requests", rows)
    log, time_range = RequestLog(spark, str(tmp_path)), TimeRange.of(*RANGE, NOW)
    flowing = flows(log.read("requests", time_range, COLUMNS)).cache()
    for by in (("topic",), ("topic", "partition"), ("clientId",)):
        assert_same(transform(flowing, by), ask(tmp_path, "requests", RANGE, TRAFFIC.format(by=", ".join(by))))
    uneven = [
        row
        for of, topic, member, where in SKEWS
        for row in ask(tmp_path, "requests", RANGE, SKEW.format(of=of, topic=topic, member=member, where=where))
    ]
    assert_same(skews(flowing), uneven)
    produces = log.read("requests", time_range, ("requestApiKeyName", *PRODUCE_COLUMNS))
    produces = produces.where("requestApiKeyName = 'PRODUCE'")
    assert_same(batch_sizes(produces), ask(tmp_path, "requests", RANGE, BATCHES))
    saved = SAVINGS.format(lingers_ms="60000, 300000", batch_bytes="100000, 1000000")
    assert_same(savings(produces, [60_000, 300_000], [100_000, 1_000_000]), ask(tmp_path, "requests", RANGE, saved))


def test_what_is_planted_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """One partition of four has nine tenths; ten requests of 1000 bytes, 1 ms apart, arrive every second."""
    size = {"requestBytes": 1000, "responseBytes": 0, "recordBytes": 1000}
    rows = [
        request(START + timedelta(seconds=second, milliseconds=ms), topic="orders", partition=3, **size)
        for second in range(27)
        for ms in range(10)
    ]
    rows += [
        request(START + timedelta(seconds=i), clientId="\x1b[31mred", topic="orders", partition=i % 3, **size)
        for i in range(30)
    ]
    write(tmp_path, "requests", rows)
    log = RequestLog(spark, str(tmp_path))
    options = Namespace(linger_ms=[100], batch_bytes=[4000, 100_000])
    time_range = TimeRange.of("2026-03-01T10:00", "2026-03-01T11:00", NOW)
    result = answer(Context(spark, log, Rollups(spark, str(tmp_path / "r"), log), time_range, options, NOW))
    # Three have 10, one has 270: the mean difference of any two is 97.5, half of it over the mean of 75 is 0.65.
    assert result.facts["gini"] == pytest.approx(0.65)
    assert (result.facts["hottest"], result.facts["hottestShare"]) == ("orders-3", pytest.approx(0.9))
    # 27 windows of 10,000 bytes are 3 batches of 4,000 or one of 100,000; the other client's requests stay alone.
    assert result.facts["savings"] == [
        {"lingerMs": 100, "batchBytes": 4000, "requests": 300, "requestsThen": 27 * 3 + 30},
        {"lingerMs": 100, "batchBytes": 100_000, "requests": 300, "requestsThen": 27 + 30},
    ]
    assert "orders-3 carries 90% of" in result.headline
    assert "81% of the Produce requests" in result.headline
    assert result.chart is not None
    assert result.chart.labels[0] == "orders-3"
