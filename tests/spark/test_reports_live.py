"""The reports on a real broker's log, written by two client libraries: they agree with the clients' own numbers."""

import warnings
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from rotunda.spark.analysis.objectives import Objective
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs import clients, errors, latency, quotas, slo, traffic
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange, to_us
from tests.support.broker_process import BrokerProcess
from tests.support.client_metrics import subscribe
from tests.support.deadline import deadline_s, wait_until
from tests.support.request_log import rows
from tests.support.wire_client import WireClient

with warnings.catch_warnings():
    # The client reads its schemas by a function that Python 3.11 deprecates, some of them while it runs.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

#: Records by partition.
SENT = {0: 180, 1: 20}
FAILURES = 7
SETTINGS = {"client.telemetry.receiver.enable": "true", "request.log.roll.ms": 500}
DAY_US = 86_400_000_000
#: All options of the jobs together.
OPTIONS = Namespace(
    linger_ms=[5],
    batch_bytes=[16_384],
    burst_gap=60_000_000,
    burst_errors=5,
    idle_after=600_000_000,
    idle_requests=1,
    short_lived=3_600_000_000,
    loop_connections=1000,
    by="client",
    window=3_600_000_000,
    per="client",
    produce_bytes_per_second=None,
    fetch_bytes_per_second=None,
    request_percentage=None,
    connections_per_second=None,
    mutations_per_second=0.1,
    objectives=[
        Objective("deletes", 0.9, None, 30 * DAY_US, {"requestApiKeyName": ("DELETE_TOPICS",)}),
        Objective("sends", 0.9, None, 30 * DAY_US, {"clientId": ("writer",)}),
    ],
)


def has_pushed_latency(broker: BrokerProcess) -> bool:
    pushed = rows(broker, "client_metrics")
    return any(row["name"].endswith("producer.request.latency.avg") and row["value"] > 0 for row in pushed)


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log of a broker that one library wrote to, another read from, and a third client had errors of."""
    directory = tmp_path_factory.mktemp("live")
    broker = BrokerProcess(directory, SETTINGS, ephemeral=False).start()
    try:
        with WireClient(broker.port) as wire:
            subscribe(wire, metrics="*", interval_ms="100")
        created = broker.command("topic", "create", "orders", "--partitions", "2")
        assert created.returncode == 0, created.stderr
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "writer"})
        for partition, count in SENT.items():
            for _ in range(count):
                producer.produce("orders", b"x" * 100, partition=partition)
        assert producer.flush(deadline_s()) == 0
        wait_until(lambda: has_pushed_latency(broker), "a push")
        reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, client_id="reader", auto_offset_reset="earliest")
        reader.assign([TopicPartition("orders", partition) for partition in SENT])
        read = 0
        while read < sum(SENT.values()):
            read += sum(len(records) for records in reader.poll(10_000).values())
        reader.close()
        cleaner = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "cleaner"})
        for _ in range(FAILURES):
            with pytest.raises(KafkaException):
                cleaner.delete_topics(["missing"])["missing"].result(deadline_s())
        changer = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "changer"})
        changer.create_topics([NewTopic("spare", 2)])["spare"].result(deadline_s())
        changer.create_partitions([NewPartitions("spare", 5)])["spare"].result(deadline_s())
        changer.delete_topics(["spare"])["spare"].result(deadline_s())
        # Their connections end with them.
        del producer, cleaner, changer
    finally:
        broker.stop()
    return broker.data_dir / "request-log"


@pytest.fixture(scope="module")
def context(spark: SparkSession, log_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Return the context of a job, for all of the log."""
    now = datetime.now(UTC)
    time_range = TimeRange(to_us(now - timedelta(hours=1)), to_us(now + timedelta(hours=1)))
    log = RequestLog(spark, str(log_path))
    return Context(spark, log, Rollups(spark, str(tmp_path_factory.mktemp("r")), log), time_range, OPTIONS, now)


@pytest.fixture(scope="module")
def by_client(log_path: Path) -> dict[str, int]:
    """Return how many requests each client has in the log."""
    source = f"read_parquet('{log_path}/requests/**/*.parquet', hive_partitioning = true)"
    return dict(duckdb.sql(f"SELECT clientId, sum(sampleWeight) FROM {source} GROUP BY ALL").fetchall())  # noqa: S608


def test_traffic_counts_the_records_that_were_sent(context: Context, by_client: dict[str, int]) -> None:
    moved = traffic.answer(context).tables
    topics = {row.topic: row for row in moved["topics"].collect()}
    assert topics["orders"].recordsIn == sum(SENT.values())
    assert topics["orders"].recordsOut >= sum(SENT.values())
    assert {row.partition: row.recordsIn for row in moved["partitions"].collect()} == SENT
    assert {row.clientId: row.requests for row in moved["clients"].collect()} == by_client


def test_errors_are_those_that_the_client_got(context: Context, by_client: dict[str, int]) -> None:
    failed = {row.clientId: row for row in errors.answer(context).tables["errors"].collect()}
    assert (failed["cleaner"].requestApiKeyName, failed["cleaner"].errors) == ("DELETE_TOPICS", FAILURES)
    assert (failed["cleaner"].errorName, failed["cleaner"].bursts) == ("UNKNOWN_TOPIC_OR_PARTITION", 1)
    assert failed["cleaner"].shareOfClient == FAILURES / by_client["cleaner"]


def test_clients_are_named_and_their_connections_have_ended(context: Context) -> None:
    who = clients.answer(context).tables
    libraries = {row.clientId: row.softwareName for row in who["software"].collect() if row.softwareName}
    assert libraries["reader"] == "kafka-python"
    assert libraries["writer"].startswith("confluent-kafka")
    ended = {row.clientId: row for row in who["connections"].collect()}
    assert all((row.open, row.lost, row.shortLived) == (0, 0, row.connections) for row in ended.values())
    assert {"writer", "reader", "cleaner"} <= ended.keys()
    (writer,) = [row for row in who["pushed"].collect() if row.clientId == "writer"]
    assert 0 < writer.requestMeanMs <= writer.requestMaxMs
    assert (writer.softwareName, writer.address) == (libraries["writer"], "127.0.0.1")


def test_an_objective_that_is_missed_burns(context: Context, by_client: dict[str, int]) -> None:
    deletes, sends = slo.answer(context).tables["objectives"].collect()
    assert (deletes.requests, deletes.bad, deletes.state) == (FAILURES + 1, FAILURES, "burning")
    assert (sends.requests, sends.bad, sends.state) == (by_client["writer"], 0, "ok")


def test_windows_have_every_request_once(context: Context, by_client: dict[str, int]) -> None:
    asked = latency.answer(context).tables["latency"].groupBy("clientId").sum("requests").collect()
    assert {row.clientId: row["sum(requests)"] for row in asked} == by_client


def test_partitions_that_come_and_go_are_charged(context: Context, log_path: Path) -> None:
    """E15: two were created, three added and all five deleted; requests that fail cost nothing."""
    source = f"read_parquet('{log_path}/requests/**/*.parquet')"
    changed = f"SELECT partitionCount FROM {source} WHERE clientId = 'changer' AND requestApiKey IN (19, 20, 37)"  # noqa: S608
    assert sorted(duckdb.sql(changed).fetchall()) == [(2,), (3,), (5,)]
    charged = {row.clientId: row.requests for row in quotas.answer(context).tables["quotas"].collect()}
    assert charged["changer"] == 3
    assert "cleaner" not in charged
