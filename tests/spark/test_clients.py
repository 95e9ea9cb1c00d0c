"""The report on clients against the same numbers computed by DuckDB, and against connections of known behaviour."""

import random
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rotunda.spark.analysis.connections import EVENT_COLUMNS, REQUEST_COLUMNS, by_client, is_idle, is_short_lived, lives
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.clients import DEPRECATED_COLUMNS, answer, dropped, software, versions
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import DROPPED, LIVES, SOFTWARE, VERSIONS
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, request, write

RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def test_every_number_is_that_of_an_independent_computation(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    rows = random_requests(seed, 2000)
    for row in rows:
        row["requestApiVersionDeprecated"] = row["requestApiVersion"] == 0
    write(tmp_path, "requests", rows)
    write(tmp_path, "connections", _random_events(random.Random(seed)))
    log, time_range = RequestLog(spark, str(tmp_path)), TimeRange.of(*RANGE, NOW)
    requests, _ = Rollups(spark, str(tmp_path / "rollups"), log).read(time_range)
    old = dropped(log.read("requests", time_range, DEPRECATED_COLUMNS))
    events = log.read("connections", time_range, EVENT_COLUMNS)
    lived = lives(events, log.read("requests", time_range, REQUEST_COLUMNS), time_range.end_us)
    clients = by_client(lived, is_idle(600_000_000, 2), is_short_lived(30_000_000), 2)
    for table, dataset, sql in (
        (software(requests), "requests", SOFTWARE),
        (versions(requests), "requests", VERSIONS),
        (old, "requests", DROPPED),
        (clients, "connections", LIVES.format(end=RANGE[1], idle_s=600, idle_requests=2, short_s=30, looping=2)),
    ):
        seen = {name: f"unix_micros({name}) AS {name}" for name in ("firstSeen", "lastSeen")}
        assert_same(
            table.selectExpr(*(seen.get(name, name) for name in table.columns)), ask(tmp_path, dataset, RANGE, sql)
        )


def _random_events(chance: random.Random) -> list[dict[str, Any]]:
    """Return openings and closings; names are used again after a while, and every fifth closing is missing."""
    events = []
    for number in range(60):
        begin = chance.randrange(3600)
        for _ in range(chance.randint(1, 4)):
            name = {"connection": f"0-1-{number}", "address": f"10.0.0.{chance.randint(1, 3)}", "listener": "PLAINTEXT"}
            length_us = int(chance.expovariate(1) * 10 ** chance.randint(5, 9))
            opened = START + timedelta(seconds=begin, microseconds=chance.randrange(1_000_000))
            closed = opened + timedelta(microseconds=length_us)
            events.append({"time": opened, "event": "open", **name})
            if chance.random() > 0.2:
                who = {"clientId": chance.choice(["app", "billing", None]), "requests": chance.randrange(50)}
                cause = chance.choice(["client", "idle", "io_error"])
                events.append(
                    {"time": closed, "event": "close", "durationUs": length_us, "cause": cause, **name, **who}
                )
            begin = int((closed - START).total_seconds()) + chance.randint(1, 60)
    return events


def _context(spark: SparkSession, path: Path) -> Context:
    """Return the context of a job over the first hour of a log, with the default options."""
    log, time_range = RequestLog(spark, str(path)), TimeRange.of("2026-03-01T10:00", "2026-03-01T11:00", NOW)
    thresholds = Namespace(idle_after=600_000_000, idle_requests=1, short_lived=5_000_000, loop_connections=30)
    return Context(spark, log, Rollups(spark, str(path / "r"), log), time_range, thresholds, NOW)


def test_idle_short_lived_and_looping_connections_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """A client opens 40 connections in a minute; one stays open with a single request; a healthy one is busy."""
    events, rows = [], []
    for number in range(40):
        opened, name = START + timedelta(seconds=number), {"connection": f"0-1-{number}", "address": "10.0.0.7"}
        closed = opened + timedelta(milliseconds=300)
        end = {"durationUs": 300_000, "cause": "client", "clientId": "cron", "requests": 2}
        events += [{"time": opened, "event": "open", **name}, {"time": closed, "event": "close", **name, **end}]
    for connection, client, count in (("0-1-90", "dashboard", 1), ("0-1-91", "app", 600)):
        events.append({"time": START, "event": "open", "connection": connection, "address": "10.0.0.8"})
        rows += [
            request(START + timedelta(seconds=1 + i), connection=connection, clientId=client) for i in range(count)
        ]
    rows.append(request(START, clientId="old", requestApiVersion=2, requestApiVersionDeprecated=True, sampleWeight=4))
    write(tmp_path, "connections", events)
    write(tmp_path, "requests", rows)
    result = answer(_context(spark, tmp_path))
    table = {row.clientId: row for row in result.tables["connections"].collect()}
    cron, dashboard, app = table["cron"], table["dashboard"], table["app"]
    assert (cron.looping, cron.mostInMinute, cron.shortLived, cron.causes) == (True, 40, 40, "client 40")
    assert (dashboard.open, dashboard.idle, dashboard.requests, dashboard.looping) == (1, 1, 1, False)
    assert (app.open, app.idle, app.requests) == (1, 0, 600)
    assert "1 of them, 4 requests, with API versions that later brokers have dropped" in result.headline
    assert result.headline.endswith("; no client pushed metrics")
    assert (
        "42 connections: 1 idle, 40 short-lived; 1 client in a loop: cron at 10.0.0.7 opened 40 in one minute"
        in result.headline
    )


def test_pushed_metrics_are_those_of_each_instance_the_slowest_first(spark: SparkSession, tmp_path: Path) -> None:
    """Two producers and a consumer; intervals without requests, and growth as well as totals of a sum."""
    common = "org.apache.kafka."
    latency = f"{common}producer.request.latency."
    pushes: list[tuple[str, int, str, float, bool]] = [
        ("quick", 0, f"{latency}avg", 4.0, False),
        ("quick", 1, f"{latency}avg", 0.0, False),
        ("quick", 2, f"{latency}avg", 8.0, False),
        ("quick", 0, f"{latency}max", 20.0, False),
        ("quick", 0, f"{common}producer.node.request.latency.max", 900.0, False),
        ("slow", 1, f"{latency}avg", 30.0, False),
        ("slow", 1, f"{latency}max", 45.0, False),
        ("slow", 0, f"{common}producer.connection.creation.total", 3.0, True),
        ("slow", 1, f"{common}producer.connection.creation.total", 2.0, True),
        ("reader", 3, f"{common}consumer.fetch.manager.fetch.latency.avg", 100.0, False),
        ("reader", 3, f"{common}consumer.fetch.manager.fetch.latency.max", 500.0, False),
        ("reader", 3, f"{common}consumer.fetch.manager.records.lag.max", 70.0, False),
        ("reader", 3, f"{common}consumer.fetch.manager.records.lag.avg", 90.0, False),
        ("reader", 3, f"{common}consumer.connection.creation.total", 2.0, False),
        ("reader", 4, f"{common}consumer.connection.creation.total", 4.0, False),
    ]
    rows = []
    for client, second, name, value, is_delta in pushes:
        time, software = START + timedelta(seconds=second), "librdkafka" if second else ""
        who = {"clientInstanceId": f"id-{client}", "clientId": client, "softwareName": software, "address": "10.0.0.7"}
        rows.append({"time": time, "valueTime": time, "name": name, "value": value, "isDelta": is_delta, **who})
    write(tmp_path, "client_metrics", rows)
    write(tmp_path, "requests", [request(START)])
    result = answer(_context(spark, tmp_path))
    found = result.tables["pushed"].collect()
    numbers = [
        (row.clientId, row.requestMeanMs, row.requestMaxMs, row.fetchMeanMs, row.fetchMaxMs, row.lagMax,
         row.connectionsOpened)
        for row in found
    ]  # fmt: skip
    assert numbers == [
        ("slow", 30, 45, None, None, None, 5),
        ("quick", 6, 20, None, None, None, None),
        ("reader", None, None, 100, 500, 70, 4),
    ]
    assert {(row.softwareName, row.address) for row in found} == {("librdkafka", "10.0.0.7")}
    assert found[2].lastPush.astimezone(UTC) == START + timedelta(seconds=4)
    slowest = "slowest is slow at 10.0.0.7: 30.0 ms a request, at most 45.0 ms"
    assert result.headline.endswith(f"; 3 clients pushed metrics, {slowest}")
