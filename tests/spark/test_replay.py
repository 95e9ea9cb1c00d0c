"""The load profile: the properties it preserves of a log, and that the bench puts the same load on another broker."""

import argparse
import json
import random
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from rotunda.broker.bench.profile import read
from rotunda.broker.bench.requests import KINDS
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.replay import JOB, PROFILE_VERSION
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.results.output import write_tables
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import REPLAYED
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, write
from tests.support.request_log import recording_brokers, rows

with warnings.catch_warnings():
    # The client reads its schemas by a function that Python 3.11 deprecates, some of them while it runs.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonTopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

NOW = datetime(2026, 3, 2, tzinfo=UTC)
RANGE = ("2026-03-01T10:07:00", "2026-03-01T11:55:00")
TOPIC, PARTITIONS, BATCHES = "orders", 2, 12


def report(spark: SparkSession, log_path: Path, time_range: TimeRange, *words: str) -> Result:
    parser = argparse.ArgumentParser()
    JOB.add_options(parser)
    log = RequestLog(spark, str(log_path))
    rollups = Rollups(spark, str(log_path / "rollups"), log)
    return JOB.answer(Context(spark, log, rollups, time_range, parser.parse_args(words), NOW))


def test_a_profile_has_what_the_log_has(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    requests = random_requests(seed, 1000)
    # The weight of one row is more than an int holds.
    requests[0] |= {"time": START + timedelta(minutes=30), "requestBytes": 100_000_000, "sampleWeight": 100}
    opened = [
        {"time": START + timedelta(seconds=chance.randrange(7200)), "event": event, "connection": f"0-1-{number}"}
        for number in range(1, 21)
        for event in ("open", "close", "open")
    ]
    write(tmp_path, "requests", requests)
    write(tmp_path, "connections", opened)
    found = report(spark, tmp_path, TimeRange.of(*RANGE, NOW))
    assert_same(found.tables["apis"], ask(tmp_path, "requests", RANGE, REPLAYED))
    profile = found.tables["profile"].collect()
    start, end = (datetime.fromisoformat(f"{text}+00:00") for text in RANGE)
    events = Counter(row["event"] for row in opened if start <= row["time"] < end)
    assert Counter(row.event for row in profile if row.event != "request") == events
    times = sorted(row["time"] for row in [*requests, *opened] if start <= row["time"] < end)
    assert [row.atUs for row in profile] == [(time - times[0]) // timedelta(microseconds=1) for time in times]
    assert {row.profileVersion for row in profile} == {PROFILE_VERSION}
    # Of one name there are as many connections as it was opened, and one more if it was used before.
    expected = 0
    for name in {row["connection"] for row in [*requests, *opened]}:
        mine = sorted((row["time"], row.get("event") != "open") for row in [*requests, *opened]
                      if row["connection"] == name and start <= row["time"] < end)  # fmt: skip
        expected += sum(not used for _, used in mine) + mine[0][1]
    assert len({row.connection for row in profile}) == expected


def test_a_profile_ends_with_the_last_request_that_there_is_room_for(spark: SparkSession, tmp_path: Path) -> None:
    requests = random_requests(random_seed(), 60)
    times = sorted(row["time"] for row in requests)
    later = {"time": times[-1], "event": "open", "connection": "0-1-99"}
    write(tmp_path, "requests", requests)
    write(tmp_path, "connections", [later, later | {"time": times[0]}])
    found = report(spark, tmp_path, TimeRange.of("2026-03-01T10:00", "2026-03-01T13:00", NOW), "--requests=10")
    profile = found.tables["profile"].collect()
    assert [row.event for row in profile].count("request") == 10
    assert [row.event for row in profile].count("open") == 1
    assert found.facts["rowsLeftOut"] == 50
    assert "50 later rows" in found.headline
    # The bench reads it in either format, without Spark.
    for file_format in ("parquet", "json"):
        write_tables(found, str(tmp_path / file_format), file_format)
        assert [event.atUs for event in read(tmp_path / file_format)] == [row.atUs for row in profile]


def put_load_upon(broker: BrokerProcess) -> None:
    """Produce and consume with two libraries, without groups, each all records."""
    assert (
        broker.command(
            "topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--bootstrap", broker.bootstrap
        ).returncode
        == 0
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app", "compression.type": "lz4"})
    other = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="billing")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "client.id": "mail", "group.id": "mail",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, client_id="audit", auto_offset_reset="earliest")
    reader.assign([PythonTopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
    counts = Counter[str]()
    for number in range(BATCHES):
        for record in range(number + 1):
            producer.produce(TOPIC, random.randbytes(100 * number + record), partition=number % PARTITIONS)
        assert producer.flush(deadline_s()) == 0
        other.send(TOPIC, bytes(500), partition=0).get(deadline_s())
        counts["mail"] += consumer.poll(0.1) is not None
        counts["audit"] += sum(len(part) for part in reader.poll(timeout_ms=100).values())
    written = BATCHES * (BATCHES + 1) // 2 + BATCHES

    def all_read() -> bool:
        counts["mail"] += consumer.poll(0.1) is not None
        counts["audit"] += sum(len(part) for part in reader.poll(timeout_ms=100).values())
        return counts["mail"] == counts["audit"] == written

    wait_until(all_read, "both have read everything", 60)
    for client in (producer, consumer, reader, other):
        client.close()


def totals(log: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """Return requests, records and bytes of records by API, of those that the bench can send."""
    found = {}
    for api, name in {(row["requestApiKey"], row["requestApiKeyName"]) for row in log}:
        mine = [row for row in log if row["requestApiKey"] == api]
        if api in KINDS:
            found[name] = (len(mine), *(sum(row[column] or 0 for row in mine) for column in ("records", "recordBytes")))
    return found


@pytest.mark.slow
def test_the_bench_repeats_the_load_of_real_clients(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    load = load_of(first, put_load_upon)
    now = datetime.now(UTC)
    found = report(spark, first / "data" / "request-log", TimeRange.of("1h", "now", now))
    write_tables(found, str(tmp_path / "report"), "parquet")

    summaries = []

    def bench(broker: BrokerProcess) -> None:
        words = ["--profile", str(tmp_path / "report"), "--bootstrap", broker.bootstrap, "--speed", "2", "--json"]
        done = broker.command("bench", *words)
        assert done.returncode == 0, done.stderr + broker.log_text()
        summaries.append(json.loads(done.stdout))

    log = load_of(second, bench)
    # The one connection over which the bench creates its topics is no part of the profile.
    own = {row["connection"] for row in log if row["requestApiKeyName"] == "CREATE_TOPICS"}
    assert len(own) == 1
    wanted, sent = totals(load), totals([row for row in log if row["connection"] not in own])
    assert {name: count for name, (count, _, _) in sent.items()} == {
        name: count for name, (count, _, _) in wanted.items()
    }
    assert sent["PRODUCE"][1] == wanted["PRODUCE"][1]
    assert sent["PRODUCE"][2] == pytest.approx(wanted["PRODUCE"][2], rel=0.02)
    assert sent["FETCH"][1] == pytest.approx(wanted["FETCH"][1], rel=0.25)
    (summary,) = summaries
    of = {each["API"]: each for each in summary["apis"]}
    assert all(each["responses"] == each["sent"] == each["profile"] for name, each in of.items() if name in sent)
    assert sum(each["errors"] for each in summary["apis"]) == 0
    assert of["CREATE_TOPICS"]["left out"] == 1
    assert {row["topic"] for row in log} <= {None, f"bench-{TOPIC}"}
    assert {row["clientId"] for row in log} == {row["clientId"] for row in load}
    opened = [sum(row["event"] == "open" for row in rows_of(each, "connections")) for each in (first, second)]
    assert opened[1] == opened[0] + len(own)


def load_of(directory: Path, put: Callable[[BrokerProcess], None]) -> list[dict[str, Any]]:
    """Return the requests that a broker has recorded while there was some load upon it."""
    brokers = recording_brokers(directory)
    broker = next(brokers)()
    put(broker)
    list(brokers)
    return rows(broker, "requests")


def rows_of(directory: Path, dataset: str) -> list[dict[str, Any]]:
    return rows(BrokerProcess(directory, ephemeral=False), dataset)
