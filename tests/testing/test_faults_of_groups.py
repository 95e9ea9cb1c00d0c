"""Consumers, groups and transactions under faults: how their libraries react to each, as users would test it."""

from __future__ import annotations

import pytest

from tests.testing.test_plugin import run

HEAD = """
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer


@pytest.fixture
def topic(rotunda_bootstrap, rotunda_topic):
    producer = Producer({"bootstrap.servers": rotunda_bootstrap})
    producer.produce(rotunda_topic, b"x")
    assert producer.flush(30) == 0
    return rotunda_topic


def consumer_of(bootstrap, topic, **settings):
    settings = {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest", **settings}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    return consumer


def first(consumer):
    # An error that is told to the application is none of its end.
    while True:
        record = consumer.poll(60)
        assert record is not None
        if record.error() is None:
            return record.value()

"""

RECOVERY = """
ERRORS = [
    ("ApiVersions", "UNSUPPORTED_VERSION"),
    ("Metadata", "LEADER_NOT_AVAILABLE"),
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("SyncGroup", "REBALANCE_IN_PROGRESS"),
    ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("Fetch", "OFFSET_OUT_OF_RANGE"),
]


@pytest.mark.parametrize(("api", "error"), ERRORS)
def test_confluent_kafka(rotunda_broker, topic, api, error):
    fault = rotunda_broker.fail(api, error, times=1)
    consumer = consumer_of(rotunda_broker.bootstrap, topic)
    assert first(consumer) == b"x"
    consumer.close()
    assert fault.count == 1


@pytest.mark.parametrize(("api", "error"), ERRORS)
def test_kafka_python(rotunda_broker, topic, api, error):
    fault = rotunda_broker.fail(api, error, times=1)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=rotunda_broker.bootstrap, group_id=f"of-{topic}", auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    assert next(consumer).value == b"x"
    consumer.close()
    assert fault.count == 1
"""

COMMITS = """
def test_a_commit_that_is_rejected_is_none(rotunda_broker, topic):
    consumer = consumer_of(rotunda_broker.bootstrap, topic, **{"enable.auto.commit": False})
    assert first(consumer) == b"x"
    with rotunda_broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", group=f"of-{topic}") as fault:
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(asynchronous=False)
    assert fault.count == 1
    consumer.close()
    again = consumer_of(rotunda_broker.bootstrap, topic)
    assert first(again) == b"x"
    again.close()


def test_a_member_that_is_thrown_out_comes_back(rotunda_broker, topic):
    fault = rotunda_broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", times=1, group=f"of-{topic}")
    # It comes back as another member, and the group waits for the one that it was.
    settings = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000}
    consumer = consumer_of(rotunda_broker.bootstrap, topic, **settings)
    assert first(consumer) == b"x"
    while not fault.count:
        consumer.poll(0.05)
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap})
    producer.produce(topic, b"y")
    assert producer.flush(30) == 0
    while first(consumer) != b"y":
        pass
    consumer.close()


def test_a_transaction_is_committed_once_whatever_its_coordinator_says(rotunda_broker, rotunda_topic):
    faults = [
        rotunda_broker.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=1),
        rotunda_broker.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE", times=1),
        rotunda_broker.disconnect("EndTxn", when="after", times=1),
    ]
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "transactional.id": rotunda_topic})
    producer.init_transactions(60)
    for value in (b"x", b"y"):
        producer.begin_transaction()
        producer.produce(rotunda_topic, value)
        producer.commit_transaction(60)
    assert [fault.count for fault in faults] == [1, 1, 1]
    consumer = consumer_of(rotunda_broker.bootstrap, rotunda_topic, **{"isolation.level": "read_committed"})
    assert [first(consumer), first(consumer)] == [b"x", b"y"]
    consumer.close()


def test_a_producer_that_is_fenced_ends(rotunda_broker, rotunda_topic):
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "transactional.id": rotunda_topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(rotunda_topic, b"x")
    assert producer.flush(60) == 0
    rotunda_broker.fail("EndTxn", "PRODUCER_FENCED")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(60)
    assert raised.value.args[0].fatal()
"""


@pytest.mark.parametrize(("source", "tests"), [(RECOVERY, 18), (COMMITS, 4)], ids=["recovery", "commits"])
def test_consumers_groups_and_transactions(pytester: pytest.Pytester, source: str, tests: int) -> None:
    run(pytester, HEAD + source).assert_outcomes(passed=tests)
