"""The report on quotas: rates and throttle times as Kafka's rules give them, and as DuckDB finds them."""

import argparse
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import Row, SparkSession

from spark.failures import JobFailed
from spark.job import Context
from spark.jobs.quotas import ENTITIES, JOB
from spark.request_log import RequestLog
from spark.result import Result
from spark.rollups import Rollups
from spark.time_range import TimeRange
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

#: Spark's plans are made before anything runs, which takes long on a machine that is busy.
pytestmark = pytest.mark.timeout(300)

NOW = datetime(2026, 3, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OPTIONS = ("produce-bytes-per-second", "fetch-bytes-per-second", "request-percentage", "connections-per-second")

#: What each client is charged for in each second, and the rate then: over ten other seconds found by a join.
SQL = """
WITH r AS (SELECT *, epoch_us(time) + requestQueueTimeUs + localTimeUs + remoteTimeUs answered
           FROM read_parquet('{log}/requests/**/*.parquet', hive_partitioning = true)
           WHERE time >= TIMESTAMPTZ '{start}+00' - INTERVAL 11 SECONDS AND time < TIMESTAMPTZ '{end}+00'),
 one AS (SELECT 'produce' quota, *, requestBytes::BIGINT charge FROM r WHERE requestApiKey = 0
   UNION ALL SELECT 'fetch' quota, *, responseBytes::BIGINT charge FROM r WHERE requestApiKey = 1
   UNION ALL SELECT 'request' quota, *, localTimeUs + sendTimeUs charge FROM r WHERE acks IS DISTINCT FROM 0),
 s AS (SELECT quota, {by}, answered // 1000000 AS sec, sum(charge * sampleWeight)::BIGINT amount,
              sum(sampleWeight)::BIGINT requests FROM one GROUP BY ALL{connections}),
 w AS (SELECT s.quota, {by_of_s}, s.sec, any_value(s.requests) requests, sum(p.amount)::BIGINT total,
              greatest(s.sec + 1 - min(p.sec), 10)::DOUBLE elapsed
       FROM s JOIN s p ON s.quota = p.quota AND {same} AND p.sec BETWEEN s.sec - 10 AND s.sec
       GROUP BY s.quota, {by_of_s}, s.sec)
SELECT quota, {by}, sec, requests, elapsed, total / elapsed / if(quota = 'request', 10000, 1) AS rate FROM w
WHERE sec >= epoch(TIMESTAMPTZ '{start}+00') AND sec < epoch(TIMESTAMPTZ '{end}+00') ORDER BY sec
"""

CONNECTIONS = """
   UNION ALL SELECT 'connection', address, epoch_us(time) // 1000000, count(*)::BIGINT, count(*)::BIGINT
   FROM read_parquet('{log}/connections/**/*.parquet', hive_partitioning = true)
   WHERE event = 'open' AND time >= TIMESTAMPTZ '{start}+00' - INTERVAL 11 SECONDS AND time < TIMESTAMPTZ '{end}+00'
   GROUP BY ALL
"""


def report(spark: SparkSession, log_path: Path, start: str, end: str, *words: str) -> Result:
    parser = argparse.ArgumentParser()
    JOB.add_options(parser)
    log = RequestLog(spark, str(log_path))
    rollups = Rollups(spark, str(log_path / "rollups"), log)
    return JOB.answer(Context(spark, log, rollups, TimeRange.of(start, end, NOW), parser.parse_args(words), NOW))


def rows_of(result: Result) -> dict[str, Row]:
    return {row.quota: row for row in result.tables["quotas"].collect()}


@pytest.mark.parametrize("per", ["client+topic", "address"])
def test_rates_and_throttles_are_those_of_an_independent_computation(
    spark: SparkSession, tmp_path: Path, per: str
) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Close together, so that the samples of a rate are of several seconds.
    rows = random_requests(seed, 1500)
    for row in rows:
        row |= {
            "time": START + timedelta(microseconds=chance.randrange(240_000_000)),
            "acks": chance.choice([0, 1, None]),
        }
    write(tmp_path, "requests", rows)
    start, end = "2026-03-01T10:00:20", "2026-03-01T10:03:40"
    bounds = {"produce": 60_000.0, "fetch": 9_000.0, "request": 4.0}
    if per == "address":
        # Connections are always an address's.
        bounds["connection"] = 0.3
        write(tmp_path, "connections", random_connections(chance))
    words = [f"--{name}={value}" for name, value in zip(OPTIONS, bounds.values(), strict=False)]  # fmt: skip
    found = report(spark, tmp_path, start, end, *words, f"--per={per}")

    by = ENTITIES[per]
    sql = SQL.format(
        log=tmp_path, start=start, end=end, by=", ".join(by),
        connections=CONNECTIONS.format(log=tmp_path, start=start, end=end) if "connection" in bounds else "",
        by_of_s=", ".join(f"s.{name}" for name in by),
        same=" AND ".join(f"s.{name} IS NOT DISTINCT FROM p.{name}" for name in by),
    )  # fmt: skip
    seconds = [dict(zip(["quota", *by, "sec", "requests", "elapsed", "rate"], row, strict=True))
               for row in duckdb.sql(sql).fetchall()]  # fmt: skip
    expected = throttled(seconds, by, bounds)
    actual = {(row.quota, *(row[name] for name in by)): row for row in found.tables["quotas"].collect()}
    assert actual.keys() == expected.keys()
    for key, row in actual.items():
        known = {name: value for name, value in expected[key].items() if value is not None}
        assert {name: row[name] for name in known} == pytest.approx(known, rel=1e-9), key
        assert all(row[name] is None for name in expected[key].keys() - known.keys())
    over = sum(row["secondsOver"] for row in expected.values())
    assert over > 0
    assert sum(row.secondsOver for row in found.tables["timeline"].collect()) == over


def random_connections(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {"time": START + timedelta(microseconds=chance.randrange(240_000_000)),
         "event": chance.choice(["open", "close"]), "connection": f"0-1-{number}",
         "address": f"10.0.0.{chance.randint(1, 4)}"}
        for number in range(400)
    ]  # fmt: skip


def throttled(
    seconds: list[dict[str, Any]], by: tuple[str, ...], bounds: dict[str, float]
) -> dict[Any, dict[str, Any]]:
    """Return what the table has to say, of seconds in order; E14 in `any`."""
    spans: dict[Any, dict[int, tuple[float, float | None, int | None]]] = defaultdict(dict)
    for row in seconds:
        bound = bounds[row["quota"]]
        throttle = max(0.0, (row["rate"] - bound) / bound * row["elapsed"])
        throttle = min(throttle, 1.0) if row["quota"] in {"request", "connection"} else throttle
        who = tuple(row[name] for name in by)
        spans[(row["quota"], *who)][row["sec"]] = (throttle, row["rate"], row["requests"])
        if row["quota"] == "connection":
            continue
        known = spans[("any", *who)].get(row["sec"], (0.0, None, None))
        spans[("any", *who)][row["sec"]] = (max(throttle, known[0]), None, None)
    found = {}
    for key, of_key in spans.items():
        over = {second: throttle for second, (throttle, _, _) in of_key.items() if throttle > 0}
        if key[0] == "any" and not over:
            continue
        muted, end = 0.0, 0.0
        for second, throttle in sorted(over.items()):
            muted += max(0.0, second + 1 + throttle - max(end, second + 1))
            end = max(end, second + 1 + throttle)
        found[key] = {
            "secondsOver": len(over), "throttledS": muted, "totalThrottleS": sum(over.values()),
            "longestThrottleS": max(over.values(), default=0.0),
            "highestRate": None if key[0] == "any" else max(rate for _, rate, _ in of_key.values()),
            "requests": None if key[0] == "any" else sum(count for _, _, count in of_key.values()),
        }  # fmt: skip
    return found


def test_the_vectors_of_the_rules(spark: SparkSession, tmp_path: Path) -> None:
    """A burst of 15 MB against 1 MB/s is 5 s (E11), connection 51 of 5/s waits 0.2 s (A11), time at most 1 s (E13)."""
    burst = START + 30 * SECOND
    produces = [request(burst + number * timedelta(milliseconds=10), requestBytes=1_000_000) for number in range(15)]
    fetches = [request(burst, requestApiKeyName="FETCH", acks=None, responseBytes=12_000_000, localTimeUs=2_000_000)]
    silent = [request(burst, acks=0, clientId="silent", localTimeUs=9_000_000)]
    before = [request(START + 8 * SECOND, clientId="earlier", requestBytes=11_000_000)]
    write(tmp_path, "requests", [*produces, *fetches, *silent, *before])
    opened = [{"time": burst, "event": "open", "address": "10.0.0.7", "connection": f"0-1-{n}"} for n in range(51)]
    closed = [{"time": burst, "event": "close", "address": "10.0.0.7", "connection": f"0-1-{n}"} for n in range(51)]
    write(tmp_path, "connections", [*opened, *closed])
    found = report(
        spark, tmp_path, "2026-03-01T10:00:10", "2026-03-01T10:01:00", "--produce-bytes-per-second=1000000",
        "--fetch-bytes-per-second=1000000", "--request-percentage=10", "--connections-per-second=5",
    )  # fmt: skip
    of = {(row.quota, row.clientId): row for row in found.tables["quotas"].collect()}
    assert of["produce", "app"].longestThrottleS == pytest.approx(5.0)
    assert of["produce", "app"].requestsOver == 15
    assert of["produce", "app"].firstOver.timestamp() == burst.timestamp()
    # Answered two seconds later: that is when it is charged.
    assert of["fetch", "app"].longestThrottleS == pytest.approx(2.0)
    assert of["fetch", "app"].firstOver.timestamp() == (burst + 2 * SECOND).timestamp()
    assert of["request", "app"].longestThrottleS == 1.0
    assert of["any", "app"].longestThrottleS == pytest.approx(5.0)
    assert of["connection", None].longestThrottleS == pytest.approx(0.2)
    assert of["connection", None].address == "10.0.0.7"
    assert ("request", "silent") not in of
    assert ("produce", "earlier") not in of, "it is charged before the range"
    assert "app" in found.headline
    assert "5.0 s" in found.headline


def test_samples_from_before_the_range_count(spark: SparkSession, tmp_path: Path) -> None:
    name = "\x1b[31m" + "long" * 100
    earlier = request(START + 25 * SECOND, clientId=name, requestBytes=20_000_000)
    here = request(START + 30 * SECOND, clientId=name, requestBytes=1_000)
    write(tmp_path, "requests", [earlier, here])
    found = report(spark, tmp_path, "2026-03-01T10:00:30", "2026-03-01T10:01:00", "--produce-bytes-per-second=1000000")
    row = rows_of(found)["produce"]
    assert (row.secondsOver, row.highestRate) == (1, pytest.approx(2_000_100))
    assert "?[31mlong" in found.headline
    assert len(found.headline) < 300


@pytest.mark.parametrize(
    ("words", "complaint"), [([], "no quota is given"), (["--fetch-bytes-per-second=0"], "greater than 0")]
)
def test_a_quota_that_makes_no_sense_is_refused(
    spark: SparkSession, tmp_path: Path, words: list[str], complaint: str
) -> None:
    write(tmp_path, "requests", [request(START)])
    with pytest.raises(JobFailed, match=complaint):
        report(spark, tmp_path, "2026-03-01T10:00", "2026-03-01T11:00", *words)
