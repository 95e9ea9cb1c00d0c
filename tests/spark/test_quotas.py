"""The report on quotas: rates and throttle times by Kafka's rules, and as computed by DuckDB."""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import Row, SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.quotas import ENTITIES, JOB
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange
from tests.spark.questions import charges
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

NOW = datetime(2026, 3, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OPTIONS = {
    "produce": "produce-bytes-per-second", "fetch": "fetch-bytes-per-second", "request": "request-percentage",
    "connection": "connections-per-second", "mutation": "mutations-per-second",
}  # fmt: skip


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
    start, end = "2026-03-01T10:00:20", "2026-03-01T10:03:40"
    bounds = {"produce": 60_000.0, "fetch": 3_000.0, "request": 4.0}
    if per == "address":
        # Connections are always an address's.
        bounds["connection"] = 0.3
        write(tmp_path, "connections", random_connections(chance))
    else:
        bounds["mutation"] = 0.5
        for row in chance.sample(rows, 80):
            key, strict_from = chance.choice([(19, 6), (20, 5), (37, 3)])
            version = strict_from - chance.randint(0, 1)
            row |= {"requestApiKey": key, "requestApiKeyName": "", "requestApiVersion": version, "topic": None,
                    "partitionCount": chance.randint(0, 9)}  # fmt: skip
    write(tmp_path, "requests", rows)
    words = [f"--{OPTIONS[name]}={value}" for name, value in bounds.items()]
    found = report(spark, tmp_path, start, end, *words, f"--per={per}")

    by = ENTITIES[per]
    sql = charges(tmp_path, (start, end), by, bounds)
    seconds = [dict(zip(["quota", *by, "sec", "requests", "amount", "elapsed", "rate", "asked"], row, strict=True))
               for row in duckdb.sql(sql).fetchall()]  # fmt: skip
    throttle_at = {key: throttles_of(key[0], of_key, bounds) for key, of_key in grouped(seconds, by).items()}
    if "mutation" in bounds:
        since = datetime.fromisoformat(f"{start}+00:00") - 11 * SECOND
        in_range = [row for row in rows if since <= row["time"] < datetime.fromisoformat(f"{end}+00:00")]
        throttle_at |= mutation_throttles(in_range, by, bounds["mutation"])
    expected = expected_rows([row for row in seconds if row["asked"]], by, throttle_at)
    actual = {(row.quota, *(row[name] for name in by)): row for row in found.tables["quotas"].collect()}
    assert actual.keys() == expected.keys()
    for key, row in actual.items():
        known = {name: value for name, value in expected[key].items() if value is not None}
        assert {name: row[name] for name in known} == pytest.approx(known, rel=1e-9), key
        assert all(row[name] is None for name in expected[key].keys() - known.keys())
    over = sum(row["secondsOver"] for row in expected.values())
    assert {quota for (quota, *_), row in expected.items() if row["secondsOver"]} == {*bounds, "any"}
    assert sum(row.secondsOver for row in found.tables["timeline"].collect()) == over


def random_connections(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {"time": START + timedelta(microseconds=chance.randrange(240_000_000)),
         "event": chance.choice(["open", "close"]), "connection": f"0-1-{number}",
         "address": f"10.0.0.{chance.randint(1, 4)}"}
        for number in range(400)
    ]  # fmt: skip


def grouped(seconds: list[dict[str, Any]], by: tuple[str, ...]) -> dict[Any, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in seconds:
        found[row["quota"], *(row[name] for name in by)].append(row)
    return found


def throttles_of(quota: str, seconds: list[dict[str, Any]], bounds: dict[str, float]) -> dict[int, float]:
    """Return the throttle of each second of one client, which are in order."""
    bound = bounds[quota]
    if quota == "fetch":
        return {second: late / bound for second, late in late_at({row["sec"]: row["amount"] for row in seconds}, bound)}
    longest = 1.0 if quota in {"request", "connection"} else float("inf")
    over = {row["sec"]: (row["rate"] - bound) / bound * row["elapsed"] for row in seconds}
    return {second: min(max(0.0, throttle), longest) for second, throttle in over.items()}


def late_at(asked: dict[int, int], bound: float) -> Iterator[tuple[int, float]]:
    """Yield how much of the demand is still late, when as much passes as eleven samples allow (E12)."""
    came = defaultdict(float)
    total = 0
    for second in range(min(asked), max(asked) + 1):
        total += asked.get(second, 0)
        came[second] = min(total, *(came[second - span] + bound * max(10, span) for span in range(1, 12)))
        if second in asked:
            yield second, total - came[second]


def mutation_throttles(rows: list[dict[str, Any]], by: tuple[str, ...], bound: float) -> dict[Any, dict[int, float]]:
    """Return the longest throttle of each second of each client, by emptying its bucket request by request (E15)."""
    changes = defaultdict(list)
    for row in rows:
        if row["requestApiKey"] in {19, 20, 37} and row["partitionCount"]:
            taken_us = (row["time"] - START) // timedelta(microseconds=1) + row["requestQueueTimeUs"]
            is_strict = row["requestApiVersion"] >= {19: 6, 20: 5, 37: 3}[row["requestApiKey"]]
            tokens = row["partitionCount"] * row["sampleWeight"]
            changes["mutation", *(row[name] for name in by)].append((taken_us, tokens, is_strict))
    found: dict[Any, dict[int, float]] = defaultdict(dict)
    for key, of_key in changes.items():
        left, before_us = 11 * bound, 0
        for taken_us, tokens, is_strict in sorted(of_key):
            left = min(11 * bound, left + bound * (taken_us - before_us) / 1e6)
            before_us = taken_us
            throttle = max(0.0, -(left if is_strict else left - tokens) / bound)
            left -= tokens
            second = int(START.timestamp()) + taken_us // 1_000_000
            found[key][second] = max(found[key].get(second, 0.0), throttle)
    return found


def expected_rows(
    seconds: list[dict[str, Any]], by: tuple[str, ...], throttle_at: dict[Any, dict[int, float]]
) -> dict[Any, dict[str, Any]]:
    """Return the expected rows of the table, of seconds in order; E14 in `any`."""
    spans: dict[Any, dict[int, tuple[float, float | None, int | None]]] = defaultdict(dict)
    for row in seconds:
        who = tuple(row[name] for name in by)
        throttle = throttle_at[row["quota"], *who][row["sec"]]
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
    # The response is two seconds later: it is charged then.
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


def test_a_consumer_is_held_back_until_it_has_read_what_it_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """E12: of 4 MB/s for 20 s at 1 MB/s 60 MB are late at the end, and a read of 1 KB in between waits for them."""
    large = {"requestApiKeyName": "FETCH", "acks": None, "responseBytes": 4_000_000}
    fetches = [request(START + number * SECOND, **large) for number in range(20)]
    small = [request(START + seconds * SECOND, **large | {"responseBytes": 1_000}) for seconds in (60, 81)]
    write(tmp_path, "requests", [*fetches, *small])
    found = report(spark, tmp_path, "2026-03-01T10:00", "2026-03-01T10:02", "--fetch-bytes-per-second=1000000")
    row = rows_of(found)["fetch"]
    # 20 MB pass in 20 s, 10 of them at once: of the demand of the first two seconds nothing is late.
    assert (row.secondsOver, row.requestsOver) == (19, 19)
    assert row.longestThrottleS == pytest.approx(60.0)
    assert row.throttledS == pytest.approx(77.001)
    assert row.highestRate == pytest.approx(4_000_000)


def test_changes_of_partitions_empty_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """E15: at 5/s 55 are free; 60 leave -5, for which a later request, or an older client, waits a second."""
    created = {"requestApiKey": 19, "requestApiKeyName": "CREATE_TOPICS", "requestApiVersion": 7, "topic": None}
    rows = [
        request(START + at * SECOND, **created | {"clientId": client, "requestApiVersion": version,
                                                  "partitionCount": count})
        for client, version, at, count in [
            ("strict", 7, 0, 60), ("strict", 7, 0.5, 1), ("strict", 7, 60, 55), ("old", 5, 0, 60), ("few", 7, 0, 56),
            ("none", 7, 0, 0),
        ]
    ]  # fmt: skip
    write(tmp_path, "requests", rows)
    found = report(spark, tmp_path, "2026-03-01T10:00", "2026-03-01T10:02", "--mutations-per-second=5")
    of = {row.clientId: row for row in found.tables["quotas"].collect()}
    assert (of["strict"].secondsOver, of["strict"].longestThrottleS) == (1, pytest.approx(0.5))
    assert (of["old"].secondsOver, of["old"].longestThrottleS) == (1, pytest.approx(1.0))
    assert (of["few"].secondsOver, of["few"].highestRate) == (0, pytest.approx(5.6))
    assert "none" not in of
    assert "by the mutation quota of 5 partitions/s" in found.headline


def test_a_row_may_stand_for_more_partitions_than_an_int_holds(spark: SparkSession, tmp_path: Path) -> None:
    created = {"requestApiKey": 19, "requestApiKeyName": "CREATE_TOPICS", "requestApiVersion": 7, "topic": None}
    rows = [request(START, **created, clientId="many", partitionCount=30_000_000, sampleWeight=100)]
    write(tmp_path, "requests", rows)
    found = report(spark, tmp_path, "2026-03-01T10:00", "2026-03-01T10:02", "--mutations-per-second=1000000000")
    [row] = found.tables["quotas"].collect()
    assert (row.clientId, row.secondsOver, row.highestRate) == ("many", 0, pytest.approx(3e8))


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


def test_without_options_there_are_default_quotas_and_an_invalid_one_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "requests", [request(START)])
    asked = "2026-03-01T10:00", "2026-03-01T11:00"
    assert report(spark, tmp_path, *asked).facts["bounds"] == {"produce": 1e7, "fetch": 1e7, "request": 100.0}
    with pytest.raises(JobFailed, match="greater than 0"):
        report(spark, tmp_path, *asked, "--fetch-bytes-per-second=0")
