"""Metrics of a real broker against the traffic of real clients, and all queries of the dashboard and alerts on them.

users rows 17-19.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType

from rotunda.broker.cli.main import main
from rotunda.broker.metrics import prometheus
from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.kafka_metrics import KAFKA_METRICS
from rotunda.broker.metrics.prometheus import exposed_name
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.shm.metrics.catalogue import CATALOGUE
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.exposition import SCRAPE_LABELS, Exposition, Scraper, grouping_labels, selectors
from tests.support.quota_client import QuotaClient
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import PRODUCE, PRODUCE_VERSION, fetch, produce, produce_body

BROKER_SETTINGS = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 2}
MONITORING = Path(__file__).parents[2] / "broker" / "metrics"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
QUERIES += [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
OF_PARTITIONS = [metric.query for metric in KAFKA_METRICS if metric.query and "metrics.per.partition" in metric.text]
QUERIES += [metric.query for metric in KAFKA_METRICS if metric.query and metric.query not in OF_PARTITIONS]
RECORDS = 300
#: Of the client `attic`, which sends more; in bytes a second.
QUOTA = 1000


@pytest.fixture(scope="module")
def scraper(broker: BrokerProcess) -> Iterator[Scraper]:
    """Scrape a broker that has had groups, an open transaction and a deprecated request."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("orders", 2), *(NewTopic(name, 1) for name in ("idle", "cut", "pending"))]
    # The records of `record_batch` are years old.
    topics.append(NewTopic("counted", 1, config={"retention.ms": "-1"}))
    for future in admin.create_topics(topics).values():
        future.result(deadline_s())
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    filled = (("orders", 0, RECORDS), ("orders", 1, RECORDS), ("idle", 0, 10), ("cut", 0, 10), ("pending", 0, 10))
    for topic, partition, count in filled:
        for _ in range(count):
            producer.produce(topic, b"value", partition=partition)
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    # To the end, half-way, never, beyond the end, and to the end of the committed records.
    places = (("idle", 0, 10), ("orders", 0, 100), ("cut", 0, 500), ("pending", 0, 10))
    consumer.commit(offsets=[TopicPartition(*place) for place in places], asynchronous=False)
    consumer.close()
    assert broker.command("quota", "set", "--client-id", "attic", f"producer_byte_rate={QUOTA}").returncode == 0
    with share_reader(broker, admin), WireClient(broker.port) as client:
        alter_configs_of_old(client)
        use_quota(broker)
        looks = Scraper(broker)
        # Unpublished counts die with a process, and a test kills some.
        settled(looks)
        yield looks


@contextmanager
def share_reader(broker: BrokerProcess, admin: AdminClient) -> Iterator[None]:
    """Keep a member of a share group that has read a record."""
    reader = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "sharers"})
    set_configs(admin, ResourceType.GROUP, "sharers", {"share.auto.offset.reset": "earliest"})
    reader.subscribe(["idle"])
    wait_until(lambda: reader.poll(0.1), "a record of the share group")
    yield
    reader.close()


def use_quota(broker: BrokerProcess) -> int:
    """Produce once more than the quota allows; return the throttle time."""

    def produce_once() -> int:
        client = QuotaClient(broker, "attic")
        throttle_ms = client.produce("counted")
        client.wire.close()
        return throttle_ms

    return wait_until(produce_once, "the client to be throttled")


def alter_configs_of_old(client: WireClient) -> None:
    """Introduce a client, and send a request of a deprecated version."""
    names: dict[str, Any] = {"client_software_name": "museum", "client_software_version": "0.1"}
    for key, version, values in ((18, 3, names), (int(ApiKey.ALTER_CONFIGS), 0, {"resources": []})):
        client.send(codec.encode_request(key, version, 1, "old", values))
        client.receive_frame()


@pytest.fixture(scope="module")
def open_transaction(broker: BrokerProcess, scraper: Scraper) -> Iterator[None]:
    """Leave a transaction open after ten records of another topic."""
    del scraper
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "half", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    producer.produce("pending", b"uncommitted", partition=0)
    assert producer.flush(deadline_s()) == 0
    yield
    producer.abort_transaction(deadline_s())


def known(scraper: Scraper) -> Exposition:
    """Return metrics in which every handler has reported its groups, and every age is set."""

    def find() -> Exposition | None:
        found = scraper.scrape()
        lags = found.values("group_lag_records", group="readers")
        ages = found.values("group_lag_seconds", group="readers")
        ready = found.values("groups") and len(lags) == len(ages) == 3 and found.values("deprecated_requests_total")
        return found if ready else None

    return wait_until(find, "what handlers tell of groups")


def settled(scraper: Scraper) -> Exposition:
    """Return metrics that include everything before the call: all serving processes have published their pages."""

    def turns() -> list[float]:
        found = scraper.scrape()
        return found.values("processor_polls_total") + found.values("handler_idle_seconds_total")

    for _ in range(2):
        before = turns()
        wait_until(
            lambda before=before: all(now > then for now, then in zip(turns(), before, strict=True)),
            "processors and handlers to bring up their pages",
        )
    return scraper.scrape()


def test_prometheus_reads_every_declared_metric(scraper: Scraper) -> None:
    """Row 18 of users.md and its section 3; names are an interface."""
    found = known(scraper)
    declared = {exposed_name(role, m): m.kind for role, metrics in CATALOGUE.items() for m in metrics}
    declared |= {f"rotunda_{m.name}": m.kind for metrics in DERIVED.values() for m in metrics}
    assert {name: kind for name, kind in declared.items() if name.removesuffix("_total") in found.kinds} == {
        name + ("_total" if kind == "counter" else ""): kind for name, kind in found.kinds.items()
    }
    series = [line.rsplit(" ", 1)[0] for line in found.text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    missing = {name for name in declared if name.removesuffix("_total") not in found.kinds}
    only_when_asked = {name for name in missing if "partition_" in name}
    assert missing - only_when_asked <= {
        "rotunda_transactions",
        "rotunda_cleaner_last_look_timestamp_seconds",
        "rotunda_certificate_expiry_timestamp_seconds",
        # With metrics.per.client alone.
        "rotunda_client_metric",
        "rotunda_client_instances_left_out",
    }
    everything = scraper.scrape(per_partition=True)
    assert all(name in everything.kinds for name in only_when_asked)
    with_ids = {
        name for name, samples in everything.samples.items() if any("client_id" in each.labels for each in samples)
    }
    assert all(name.startswith("rotunda_client_quota_") for name in with_ids)


def test_row_17_lag_is_of_one_instant_and_unknown_is_absent(scraper: Scraper) -> None:
    found = known(scraper)
    assert found.value("group_lag_records", group="readers", topic="idle") == 0
    assert found.value("group_lag_seconds", group="readers", topic="idle") == 0
    assert found.value("group_lag_records", group="readers", topic="orders") == RECORDS - 100
    seconds = found.value("group_lag_seconds", group="readers", topic="orders")
    assert seconds is not None
    assert 0 < seconds < 300
    assert found.value("group_lag_records", group="readers", topic="cut") is None
    assert found.value("group_lag_seconds", group="readers", topic="cut") is None
    assert found.value("group_unknown_lag_partitions", group="readers", topic="cut") == 1
    assert found.value("group_members", group="readers") == 0
    assert found.value("groups", kind="classic", state="Empty") == 1
    partition = scraper.scrape(per_partition=True).value(
        "group_partition_lag_records", group="readers", topic="orders", partition="0"
    )
    assert partition == RECORDS - 100


@pytest.mark.usefixtures("open_transaction")
def test_row_17_committed_readers_lag_up_to_the_last_stable_offset(scraper: Scraper) -> None:
    def lag() -> Exposition | None:
        found = scraper.scrape()
        has_lag = found.value("group_lag_records", group="readers", topic="pending") == 1
        # Another handler coordinates the transaction, and publishes in its own time.
        return found if has_lag and found.value("transactions", state="Ongoing") is not None else None

    found = wait_until(lag, "the open transaction's record")
    assert found.value("group_committed_lag_records", group="readers", topic="pending") == 0
    assert found.value("transactions", state="Ongoing") == 1
    assert found.total("transaction_oldest_age_seconds") >= 0


def test_d18_requests_and_errors_are_counted_one_by_one(broker: BrokerProcess, scraper: Scraper) -> None:
    def count(found: Exposition) -> dict[str, float]:
        errors = {code: found.total("request_errors_total", api="Produce", error=code) for code in ("NONE", other)}
        return {"requests": found.total("requests_total", api="Produce", version="7"), **errors}

    other = "UNKNOWN_TOPIC_OR_PARTITION"
    topic_before = settled(scraper)
    before = count(topic_before)
    batch = record_batch(values=[b"x"] * 3)
    with WireClient(broker.port) as client:
        for _ in range(20):
            assert produce(client, "counted", 0, batch).error_code == 0
        for _ in range(5):
            assert produce(client, "no-such-topic", 0, batch).error_code == 3
        assert fetch(client, "counted", 0, 0).error_code == 0
    # A client with acks=0 sees an error as the end of its connection.
    with WireClient(broker.port) as client:
        body = produce_body([("no-such-topic", 0, batch)], acks=0)
        client.send(request_frame(PRODUCE, PRODUCE_VERSION, 1, body))
        client.expect_closed()
    wanted = {"requests": 26.0, "NONE": 20.0, other: 6.0}

    def grown() -> bool:
        now = count(scraper.scrape())
        return {name: now[name] - before[name] for name in wanted} == wanted

    wait_until(grown, "26 requests to be counted")
    found = settled(scraper)
    assert {name: count(found)[name] - before[name] for name in wanted} == wanted
    for name, least in (("records_in", 60), ("bytes_in", 20 * len(batch)), ("bytes_out", len(batch))):
        growth = found.total(f"topic_{name}_total", topic="counted") - topic_before.total(
            f"topic_{name}_total", topic="counted"
        )
        assert growth >= least
        assert name == "bytes_out" or growth == least


def test_the_use_of_a_quota_is_a_metric_with_its_limit(
    broker: BrokerProcess, scraper: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's byte-rate and throttle-time of quotas (issue 13), as the client itself received them."""
    whose = {"quota": "producer_byte_rate", "user": "", "client_id": "attic"}

    def of(found: Exposition, name: str) -> float:
        value = found.value(f"client_quota_{name}", **whose)
        assert value is not None
        return value

    before = scraper.scrape()
    assert of(before, "limit") == QUOTA
    told_ms: list[int] = []

    def seen() -> Exposition | None:
        told_ms.append(use_quota(broker))
        found = scraper.scrape()
        # A pause of the machine lets the windows pass.
        return found if of(found, "rate") > QUOTA else None

    after = wait_until(seen, "the rate of who was throttled")
    assert of(after, "throttled_total") == of(before, "throttled_total") + len(told_ms)
    spent = of(after, "throttle_seconds_total") - of(before, "throttle_seconds_total")
    assert spent == pytest.approx(sum(told_ms) / 1000)
    assert after.value("client_quotas_left_out") == 0
    monkeypatch.setattr(prometheus, "MOST_LISTED", 0)
    assert (scraper.scrape().value("client_quotas_left_out"), scraper.scrape().values("client_quota_rate")) == (1, [])


@pytest.mark.usefixtures("open_transaction")
def test_every_query_finds_its_metrics_and_labels(scraper: Scraper) -> None:
    """Every metric, label and label value of the dashboard and the alerts is there."""
    # The transaction's coordinator publishes in its own time.
    wait_until(lambda: scraper.scrape().values("transactions"), "the open transaction")
    found = known(scraper)
    for query in QUERIES:
        if "certificate" in query:
            continue  # this broker has no TLS; see test_certificate_expiry.py
        check_query(found, query)
    for query in OF_PARTITIONS:
        check_query(scraper.scrape(per_partition=True), query)


def check_query(found: Exposition, query: str) -> None:
    labels: set[str] = set()
    assert list(selectors(query)), query
    for name, matchers in selectors(query):
        samples = found.samples[name]
        assert samples, f"{name} is not there"
        own = {label for each in samples for label in each.labels}
        labels |= own
        for label, operator, value in matchers:
            assert label in own | SCRAPE_LABELS, f"{name} has no label {label}"
            if operator == "=" and label != "cause" and not value.startswith("$"):
                assert any(each.labels.get(label) == value for each in samples), f"{name} has no {label}={value}"
    assert grouping_labels(query) <= labels | SCRAPE_LABELS, query


def test_dashboard_and_alerts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-alerts"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == ALERTS
    assert main(["print-dashboard"]) == 0
    assert json.loads(capsys.readouterr().out) == DASHBOARD


def test_dashboard_and_alerts_are_complete() -> None:
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]
    for variable in DASHBOARD["templating"]["list"]:
        assert "label_values(rotunda_" in variable["definition"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description"}
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run(
            [promtool, "check", "rules", str(MONITORING / "alerts.yml")], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_prints_the_same(broker: BrokerProcess, scraper: Scraper) -> None:
    known(scraper)
    done = broker.command("metrics")
    assert done.returncode == 0, done.stderr
    printed = Exposition(done.stdout)
    assert printed.value("group_lag_records", group="readers", topic="orders") is not None
    assert printed.value("build_info") == 1
    assert broker.command("metrics", "--per-partition").stdout.count("rotunda_partition_log_end_offset{") > 4


def test_counters_survive_the_death_of_a_handler_and_a_processor(broker: BrokerProcess, scraper: Scraper) -> None:
    """Whichever process is killed, no counter decreases, and the restart is reported."""
    before = scraper.scrape()
    for role in ("handler", "processor"):
        os.kill(broker.processes(role)[0]["pid"], signal.SIGKILL)
        wait_until(lambda role=role: scraper.scrape().total("process_restarts_total", role=role) == 1, f"a new {role}")
    wait_until(lambda: not scraper.scrape().values("process_ready").count(0.0), "everybody to be ready")
    with WireClient(broker.port) as client:
        assert produce(client, "counted", 0, record_batch(values=[b"x"])).error_code == 0
    after = scraper.scrape()
    for name, samples in before.samples.items():
        if name.endswith(("_total", "_count", "_sum", "_bucket")):
            now = {tuple(sorted(each.labels.items())): each.value for each in after.samples[name]}
            for each in samples:
                assert now[tuple(sorted(each.labels.items()))] >= each.value, (name, each)
