"""`rotunda bench --topic`: each library sends the requested records, and the figures are for those."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from rotunda.broker.bench.producer_clients import NAMES
from rotunda.broker.bench.producer_load import Acknowledged, Figures, Plan, drive
from tests.support.broker_process import BrokerProcess
from tests.support.fakes import FakeClock

RECORDS = 250


def standing(broker: BrokerProcess, topic: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), 60)[1] for each in range(partitions)]
    consumer.close()
    return sum(ends)


def test_every_library_sends_all_records(broker, topic) -> None:
    words = ["--topic", topic, "--num-records", str(RECORDS), "--partitions", "3", "--bootstrap", broker.bootstrap]
    done = broker.command("bench", *words, "--client", ",".join(NAMES), "--json", "--producer-prop", "linger.ms=0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == list(NAMES)
    for turns in found.values():
        assert [each["records"] for each in turns] == [RECORDS]
        assert turns[0]["errors"] == 0
        assert 0 < turns[0]["p50_ms"] <= turns[0]["p99_ms"] <= turns[0]["max_ms"]
    assert standing(broker, topic, 3) == RECORDS * len(NAMES)


def test_turns_and_rates_are_printed(broker, topic) -> None:
    words = ["--topic", topic, "--num-records", "20", "--throughput", "1000", "--turns", "2"]
    done = broker.command("bench", *words, "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rotunda: 20 records sent, ") == 2
    assert done.stdout.splitlines()[-1].split()[:2] == ["rotunda", "2"]


def test_what_cannot_be_is_said(broker, topic) -> None:
    words = ["--topic", topic, "--bootstrap", broker.bootstrap]
    done = broker.command("bench", *words, "--client", "kafka-pyton")
    assert done.returncode == 2
    assert "did you mean kafka-python?" in done.stderr
    done = broker.command("bench", *words, "--producer-prop", "linger.msx=1")
    assert done.returncode == 2
    assert "did you mean linger.ms?" in done.stderr


class AtOnce:
    """A library that acknowledges at once, with an error for each record that is timed second."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.timed, self.sent = clock, 0, 0

    def send(self, _value: bytes, acknowledged: Acknowledged | None) -> None:
        self.sent += 1
        if acknowledged is not None:
            self.timed += 1
            self.clock.advance_ns(2_000_000)
            acknowledged(None if self.timed % 2 else "refused")

    def flush(self) -> None:
        self.clock.advance_ns(1_000_000_000)

    def close(self) -> None: ...


def test_one_record_in_a_hundred_is_timed_as_fast_as_it_goes() -> None:
    clock = FakeClock()
    client, reports = AtOnce(clock), []
    figures: Figures = drive(client, Plan("t", 1000, 10), clock, reports.append)
    assert (client.sent, client.timed, figures.errors, figures.first_error) == (1000, 10, 5, "refused")
    assert figures.latencies_us == [2000] * 10
    rates = "1000 records sent, 980.4 records/sec (0.01 MB/sec)"
    assert figures.line() == f"{rates}, 2.00 ms avg latency, 2.00 ms max latency"
    assert reports == []


def test_records_that_fail_unseen_are_counted_by_what_the_topic_has() -> None:
    figures = Figures(Plan("t", 1000, 10), 0, sent=1000)
    figures.stand(1000)
    assert figures.errors == 0
    figures.stand(940)
    assert figures.failure() == "60 of 1000 records failed, none whose outcome was asked for"
    figures.acknowledged(0, 1000, "refused")
    assert figures.failure() == "61 of 1000 records failed, the first with: refused"


@pytest.mark.parametrize("name", NAMES)
def test_every_failed_record_is_counted_and_named(broker, topic, name: str) -> None:
    """At full speed as well, where only one outcome in a hundred is checked."""
    assert broker.command("topic", "create", topic, "--config", "max.message.bytes=100").returncode == 0
    words = ["--topic", topic, "--num-records", "150", "--record-size", "500", "--bootstrap", broker.bootstrap]
    done = broker.command("bench", *words, "--client", name, "--json")
    assert done.returncode == 1, done.stderr
    assert done.stdout, done.stderr
    assert json.loads(done.stdout)[name][0]["errors"] == 150
    assert f"{name}: 150 of 150 records failed, the first with: " in done.stderr
