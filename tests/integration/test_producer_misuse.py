"""Mistakes of a program with a producer: they raise at once, and everything else continues."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.client import Producer
from rotunda.broker.client.errors import (
    BufferExhausted,
    DeliveryTimeout,
    IllegalState,
    ProducerClosed,
    RecordTooLarge,
    SerializationFailed,
)
from rotunda.broker.client.producer.transactions.transaction_state import ConsumerGroupMetadata, OffsetAndMetadata
from rotunda.broker.client.topic_partition import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

#: Longer than anything here needs, and shorter than delivery.timeout.ms: a lost record would expire later.


def outcome_in_callback(producer: Producer, topic: str, call: Callable[[], object]) -> Any:
    """Return the result or exception of a call on the I/O thread."""
    found: queue.SimpleQueue[object] = queue.SimpleQueue()

    def called(_metadata: object, _error: object) -> None:
        try:
            found.put(call())
        except BaseException as failure:
            found.put(failure)

    producer.send(topic, b"v", on_delivery=called)
    return found.get(timeout=deadline_s())


def test_g35_flush_in_a_callback_would_wait_for_itself_and_is_rejected(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:

        def send_and_flush() -> None:
            producer.send(topic, b"more")
            producer.flush()

        refused = outcome_in_callback(producer, topic, send_and_flush)
        assert isinstance(refused, IllegalState)
        assert "flush() in a callback" in str(refused)
        producer.flush(deadline_s())


def test_g05_a_callback_does_not_wait_for_metadata(broker: BrokerProcess, topic: str) -> None:
    """No other thread would fetch them meanwhile, and nothing would be sent."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        refused = outcome_in_callback(producer, topic, lambda: producer.send(f"{topic}-b", b"v").result(deadline_s()))
        assert isinstance(refused, DeliveryTimeout)
        assert "a callback cannot wait for it" in str(refused)
        assert producer.send(f"{topic}-b", b"v").result(deadline_s()).offset == 0


def test_g17_a_callback_does_not_wait_for_room(broker: BrokerProcess, topic: str) -> None:
    """It would be made by the thread that it is called on."""
    with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=20_000, batch_size=20_000) as producer:

        def fill() -> object:
            futures = [producer.send(topic, bytes(15_000), key=b"k") for _ in range(2)]
            return futures[-1].exception(deadline_s())

        assert isinstance(outcome_in_callback(producer, topic, fill), BufferExhausted)
        assert producer.send(topic, b"v").result(deadline_s())


def test_transactional_calls_that_wait_are_rejected_in_a_callback(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        refused = outcome_in_callback(producer, topic, producer.commit_transaction)
        assert isinstance(refused, IllegalState)
        assert "commit_transaction() in a callback" in str(refused)
        producer.commit_transaction()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"timestamp_ms": time.time() * 1000}, "timestamp_ms is of type float"),
        ({"timestamp_ms": 1 << 70}, "timestamp_ms is 1180591620717411303424"),
        ({"timestamp_ms": -5}, "timestamp_ms is -5"),
        ({"partition": 0.0}, "partition is of type float"),
        ({"partition": "0"}, "partition is of type str"),
        ({"partition": 1 << 40}, "partition is 1099511627776"),
    ],
)
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_number_that_is_none_is_rejected_and_nothing_is_lost(broker, topic, key, wrong, said) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=1000) as producer:
        # The batch is open: the wrong record would be added to it, by the short way where there is no key.
        producer.send(topic, b"v").result(deadline_s())
        before = producer.send(topic, b"before")
        with pytest.raises((TypeError, ValueError), match=said):
            producer.send(topic, b"wrong", key=key, **wrong)
        after = producer.send(topic, b"after")
        producer.flush(deadline_s())
        assert after.result(0).offset == before.result(0).offset + 1
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]


@pytest.mark.parametrize("wrong", [b"bytes", None, 7, "half a \ud800 character"])
def test_a_topic_that_is_no_text_is_rejected_and_metadata_continue(broker, topic, wrong) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for call in (lambda: producer.send(wrong, b"v"), lambda: producer.partitions_for(wrong)):
            with pytest.raises((TypeError, ValueError), match="topic"):
                call()
        assert producer.send(topic, b"v").result(deadline_s()).offset == 0


@pytest.mark.parametrize("headers", [{"h": "text"}, {"h": 5}, {b"h": b"v"}, ["h"]])
def test_headers_that_are_none_are_rejected_with_their_name(broker, topic, headers) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.raises(SerializationFailed, match="the headers of a record for"):
            producer.send(topic, b"v", headers=headers)
        producer.send(topic, b"v", headers={"bytes": bytearray(b"1"), "null": None}).result(deadline_s())


def test_a_record_that_was_rejected_outside_of_a_transaction_is_not_in_the_next_one(broker, topic) -> None:
    """Java appends it before it is rejected, and the next transaction writes it."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        for prepare in (lambda: None, producer.init_transactions):
            prepare()
            for _ in range(2):  # the second would use the short way
                with pytest.raises(IllegalState, match=r"records can (only )?be sent"):
                    producer.send(topic, b"outside")
            assert not producer._accumulator.has_incomplete()
        producer.begin_transaction()
        inside = producer.send(topic, b"inside")
        producer.commit_transaction()
        assert inside.result(0).offset == 0


def test_a_record_that_is_rejected_after_an_error_has_one_outcome(broker, topic) -> None:
    outcomes: list[object] = []
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic, max_request_size=5000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, bytes(6000)).exception(deadline_s())
        refused = producer.send(topic, b"v", on_delivery=lambda _, error: outcomes.append(error))
        assert refused.done()
        producer.abort_transaction()
        assert len(outcomes) == 1


@pytest.mark.parametrize(
    ("place", "group", "said"),
    [
        (5, ConsumerGroupMetadata("g"), "expected an OffsetAndMetadata"),
        (OffsetAndMetadata(-1), ConsumerGroupMetadata("g"), "offset -1"),
        (OffsetAndMetadata(1 << 63), ConsumerGroupMetadata("g"), "offset 9223372036854775808"),
        (OffsetAndMetadata(5, None), ConsumerGroupMetadata("g"), "metadata"),
        (OffsetAndMetadata(5), "g", "give a ConsumerGroupMetadata"),
        (OffsetAndMetadata(5), ConsumerGroupMetadata("g", 3), "member"),
    ],
)
def test_invalid_offsets_are_rejected_and_the_transaction_continues(broker, topic, place, group, said) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises((TypeError, ValueError), match=said):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): place}, group)
        producer.send(topic, b"v")
        producer.commit_transaction()


def test_long_max_value_is_a_time_to_wait(broker, topic) -> None:
    """`G38`: the replacement for block.on.buffer.full; Java programs set it to wait for ever."""
    with Producer({"bootstrap.servers": broker.bootstrap, "max.block.ms": (1 << 63) - 1}) as producer:
        assert producer.send(topic, b"v").result(deadline_s()).offset == 0
    with Producer(
        {"bootstrap.servers": broker.bootstrap, "block.on.buffer.full": True, "transactional.id": topic}
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.commit_transaction()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_g01_the_death_of_the_io_thread_fails_all_waiting_calls(broker, topic, monkeypatch, caplog) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
    waiting = producer.send(topic, b"v")

    def died(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(producer._core.sender, "run_once", died)
    producer._core.sender.wakeup()
    with pytest.raises(ProducerClosed):
        waiting.result(deadline_s())
    producer._core.thread.join(deadline_s())
    with pytest.raises(ProducerClosed):
        producer.send(topic, b"v")
    producer.flush(deadline_s())
    producer.close()
    assert "The I/O thread of producer" in caplog.text


def test_a_forked_child_needs_a_producer_of_its_own(broker, topic) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
    waiting = producer.send(topic, b"of the parent")  # its batch is open, as the child inherits it
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(deadline_s()))
        refused = 0
        for call in (lambda: producer.send(topic, b"v"), producer.flush, lambda: producer.partitions_for(topic)):
            try:
                call()
            except ProducerClosed as failure:
                refused += "forked" in str(failure)
        producer.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    producer.close()
    assert waiting.result(0).offset == 0


def test_g15_a_record_that_fits_its_batch_is_not_larger_than_a_request(broker, topic) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap, batch_size=8000, max_request_size=1000, linger_ms=1000
    ) as producer:
        producer.send(topic, b"v")
        assert isinstance(producer.send(topic, bytes(1500)).exception(deadline_s()), RecordTooLarge)
