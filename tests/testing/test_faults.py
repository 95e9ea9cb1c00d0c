"""Faults as users of the plugin inject them: applications of three libraries in independent projects."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rotunda.broker.errors import UsageError
from rotunda.broker.runtime import run_dir
from rotunda.broker.testing import RotundaBroker
from rotunda.broker.testing.faults import Faults
from tests.support.deadline import deadline_s
from tests.testing.test_plugin import run

#: The beginning of all three: the count of each record shows whether a producer has doubled any.
HEAD = """
import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import NotLeaderForPartitionError


def values(bootstrap, topic, count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = [next(consumer).value for _ in range(count)]
    consumer.poll(timeout_ms=200)
    [partition] = consumer.assignment()
    assert consumer.end_offsets([partition]) == {partition: count}
    consumer.close()
    return found


"""

CONFLUENT_KAFKA = """
def test_confluent_kafka_sends_again(rotunda_broker, rotunda_topic, rotunda_requests):
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "enable.idempotence": True})
    fault = rotunda_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=rotunda_topic)
    producer.produce(rotunda_topic, b"apples")
    assert producer.flush(30) == 0
    assert fault.count == 2
    sent = rotunda_requests("Produce", topic=rotunda_topic)
    assert [(each.error, each.injected) for each in sent] == [
        ("NOT_LEADER_OR_FOLLOWER", "error"), ("NOT_LEADER_OR_FOLLOWER", "error"), (None, None)
    ]
    assert values(rotunda_broker.bootstrap, rotunda_topic, 1) == [b"apples"]


def test_confluent_kafka_idempotent_after_a_lost_response(rotunda_broker, rotunda_topic):
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "enable.idempotence": True})
    with rotunda_broker.disconnect("Produce", when="after", times=1) as fault:
        producer.produce(rotunda_topic, b"once")
        assert producer.flush(30) == 0
    assert fault.count == 1
    assert values(rotunda_broker.bootstrap, rotunda_topic, 1) == [b"once"]


def test_confluent_kafka_consumer_survives(rotunda_broker, rotunda_topic):
    producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap})
    for number in range(20):
        producer.produce(rotunda_topic, str(number).encode())
    assert producer.flush(30) == 0
    delay = rotunda_broker.delay("Fetch", 100, times=2)
    cut = rotunda_broker.disconnect("Fetch", times=1)
    consumer = Consumer({
        "bootstrap.servers": rotunda_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"
    })
    consumer.subscribe([rotunda_topic])
    found = []
    while len(found) < 20:
        record = consumer.poll(30)
        assert record is not None and record.error() is None
        found.append(record.value())
    consumer.close()
    assert found == [str(number).encode() for number in range(20)]
    assert delay.count >= 1 and cut.count == 1
"""

KAFKA_PYTHON = """
def test_kafka_python_sends_again(rotunda_broker, rotunda_topic):
    producer = KafkaProducer(
        bootstrap_servers=rotunda_broker.bootstrap, client_id="shop", enable_idempotence=True, retries=5
    )
    other = KafkaProducer(bootstrap_servers=rotunda_broker.bootstrap, client_id="other")
    fault = rotunda_broker.fail("Produce", NotLeaderForPartitionError, times=1, client="shop")
    lost = rotunda_broker.disconnect("Produce", when="after", times=1, client="shop")
    other.send(rotunda_topic, b"0").get(30)
    assert (fault.count, lost.count) == (0, 0)
    for number in range(1, 3):
        producer.send(rotunda_topic, str(number).encode()).get(30)
    assert (fault.count, lost.count) == (1, 1)
    assert values(rotunda_broker.bootstrap, rotunda_topic, 3) == [b"0", b"1", b"2"]
    producer.close()
    other.close()
"""

AIOKAFKA = """
def test_aiokafka_sends_again_and_consumes_on(rotunda_broker, rotunda_topic):
    async def run():
        producer = AIOKafkaProducer(bootstrap_servers=rotunda_broker.bootstrap, enable_idempotence=True)
        await producer.start()
        lost = rotunda_broker.disconnect("Produce", when="after", times=1)
        await asyncio.wait_for(producer.send_and_wait(rotunda_topic, b"once"), 30)
        fault = rotunda_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        await asyncio.wait_for(producer.send_and_wait(rotunda_topic, b"more"), 30)
        await producer.stop()
        assert (lost.count, fault.count) == (1, 1)
        cut = rotunda_broker.disconnect("Fetch", times=1)
        consumer = AIOKafkaConsumer(
            rotunda_topic, bootstrap_servers=rotunda_broker.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)]
        await consumer.stop()
        assert cut.count == 1
        return found

    assert asyncio.run(run()) == [b"once", b"more"]
"""


@pytest.mark.parametrize(
    ("source", "tests"),
    [(CONFLUENT_KAFKA, 3), (KAFKA_PYTHON, 1), (AIOKAFKA, 1)],
    ids=["confluent", "kafka", "aiokafka"],
)
def test_applications_go_on_after_errors_and_lost_connections(
    pytester: pytest.Pytester, source: str, tests: int
) -> None:
    """Retries are seen, and each record is there once."""
    run(pytester, HEAD + source).assert_outcomes(passed=tests)


def test_delivery_errors_are_seen_and_other_topics_are_written(pytester: pytest.Pytester) -> None:
    """Of one request with two topics the one named is not written."""
    result = run(
        pytester,
        """
        import pytest
        from confluent_kafka import Producer, TopicPartition, Consumer, KafkaError
        from kafka import KafkaProducer
        from kafka.errors import PolicyViolationError


        def end(bootstrap, topic):
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "end"})
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
            consumer.close()
            return end


        def test_confluent_kafka(rotunda_broker, rotunda_topic):
            rotunda_broker.create_topic("other")
            said = {}
            producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "linger.ms": 50})
            producer.list_topics(timeout=30)
            rotunda_broker.fail("Produce", KafkaError.TOPIC_AUTHORIZATION_FAILED, topic=rotunda_topic)
            for topic in (rotunda_topic, "other"):
                producer.produce(topic, b"x", callback=lambda error, record: said.update({record.topic(): error}))
            assert producer.flush(30) == 0
            assert said[rotunda_topic].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert said["other"] is None
            assert (end(rotunda_broker.bootstrap, rotunda_topic), end(rotunda_broker.bootstrap, "other")) == (0, 1)


        def test_the_faults_of_a_test_end_with_it(rotunda_broker, rotunda_topic):
            assert not [each for each in rotunda_broker.faults if each.is_in_force]
            # An idempotent one of kafka-python's ends with an error that is none to send again for.
            producer = KafkaProducer(bootstrap_servers=rotunda_broker.bootstrap, enable_idempotence=False)
            assert producer.send(rotunda_topic, b"x").get(30).offset == 0
            with rotunda_broker.fail("Produce", PolicyViolationError) as fault:
                with pytest.raises(PolicyViolationError):
                    producer.send(rotunda_topic, b"x").get(30)
            assert (fault.count, fault.is_in_force) == (1, False)
            assert producer.send(rotunda_topic, b"x").get(30).offset == 1
            producer.close()
        """,
    )
    result.assert_outcomes(passed=2)


def test_what_was_injected_stands_in_the_report_of_a_failed_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from confluent_kafka import Producer


        def test_before(rotunda_broker):
            rotunda_broker.delay("Fetch", 5)


        def test_that_fails(rotunda_broker, rotunda_topic):
            producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap, "client.id": "shop"})
            with rotunda_broker.disconnect("Produce", times=1, client="shop"):
                rotunda_broker.fail("Produce", "REQUEST_TIMED_OUT", times=3, topic=rotunda_topic)
                producer.produce(rotunda_topic, b"x", partition=0)
                assert producer.flush(30) == 0
                assert False
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- rotunda: the last requests -*",
            "*shop: Produce v*: no answer, * us (injected: disconnect)",
            "*shop: Produce v* test_that_fails-*(1 record): REQUEST_TIMED_OUT, * us (injected: error)",
            "*shop: Produce v* test_that_fails-*(1 record): ok, * us",
            "*- rotunda: injected faults -*",
            "disconnect Produce times=1 client=shop: matched 1, cancelled",
            "fail Produce REQUEST_TIMED_OUT times=3 topic=test_that_fails-*: matched 3",
        ]
    )
    assert "delay Fetch" not in result.stdout.str()


@pytest.fixture(scope="module")
def broker() -> object:
    with RotundaBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    ("inject", "complaint"),
    [
        (lambda b: b.fail("Prodce", "REQUEST_TIMED_OUT"), r"unknown API 'Prodce' \(did you mean Produce\?\)"),
        (
            lambda b: b.fail("Produce", "REQUEST_TIMEOUT"),
            r"no error 'REQUEST_TIMEOUT' \(did you mean REQUEST_TIMED_OUT",
        ),
        (lambda b: b.fail("Produce", 999), r"Kafka has no error 999"),
        (lambda b: b.fail("Produce", "NONE"), r"error NONE \(0\) is none"),
        (lambda b: b.fail(None, 7), r"fail needs the name of an API"),
        (lambda b: b.fail("Produce", 7, times=0), r"times=0: expected how often it strikes"),
        (lambda b: b.fail("SaslHandshake", 7), r"SaslHandshake is answered before a client is known"),
        (lambda b: b.fail("Heartbeat", 7, topic="x"), r"topic='x': requests of Heartbeat name no topic"),
        (lambda b: b.delay("Fetch", 5, group="x"), r"group='x': requests of Fetch name no group"),
        (lambda b: b.delay("Fetch", "5"), r"ms='5': expected milliseconds"),
        (lambda b: b.disconnect("Fetch", when="later"), r"when='later': expected \"before\" or \"after\""),
        (lambda b: b.throttle(client="c", ms=0), r"ms=0: expected milliseconds"),
    ],
)
def test_what_makes_no_sense_is_rejected_with_the_reason(broker: RotundaBroker, inject: object, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        inject(broker)  # type: ignore[operator]
    assert not broker.faults


def test_a_broker_that_was_not_started_for_tests_takes_no_faults(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rotunda", "start", "--ephemeral", "--listen", "127.0.0.1:0"]
    command += ["--run-dir", str(tmp_path), "--set", "status.port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        record = run_dir.read(tmp_path)
        assert record is not None
        with pytest.raises(UsageError, match="was not started for tests and rejects faults"):
            Faults(record)
        process.terminate()


def test_no_setting_makes_a_broker_take_faults() -> None:
    for name in ("injects.faults", "injects_faults", "for.tests"):
        done = subprocess.run(
            [sys.executable, "-m", "rotunda", "check-config", "--set", f"{name}=true"], capture_output=True, check=False
        )
        assert done.returncode == 2
        assert b"unknown setting" in done.stderr


def test_reset_takes_faults_back_and_a_cancelled_delay_lets_its_responses_go() -> None:
    from confluent_kafka import Producer  # noqa: PLC0415

    with RotundaBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        broker.create_topic("t")
        producer.produce("t", b"1")
        assert producer.flush(deadline_s()) == 0
        delay = broker.delay("Produce", 3_600_000, topic="t")
        producer.produce("t", b"2")
        deadline = time.monotonic() + 30
        while not delay.count and time.monotonic() < deadline:
            producer.poll(0.01)
        assert producer.flush(0.2) == 1
        faults = [broker.fail("Fetch", 7), broker.disconnect("Metadata", client="nobody"), delay]
        delay.cancel()
        assert producer.flush(deadline_s()) == 0
        assert broker.reset() == []
        assert not [each for each in faults if each.is_in_force]
        assert [each.count for each in faults] == [0, 0, 1]
        # Slots of faults that have ended are reused by others, which count from 0.
        for _ in range(200):
            with broker.fail("Fetch", 7) as fault:
                assert fault.count == 0
