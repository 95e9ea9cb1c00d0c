"""Dynamic broker settings take effect in handlers, and changes of static ones are rejected (KIP-226)."""

from __future__ import annotations

import os

import pytest

from rotunda.broker.errors import ApiError
from rotunda.broker.log.log_manager import EXPIRE_INTERVAL_NS
from rotunda.broker.metadata.configs.config_changes import BROKER, TOPIC
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.transactional import answer_of, produce_errors, send, settled, started

DESCRIBE_PRODUCERS = 61


def alter(broker: SteppedBroker, name: str, value: str | None) -> None:
    """Set the cluster-wide default, or delete it with None."""
    broker.set_config(BROKER, "", name, value)
    broker.settle()


def test_verification_is_switched_off_and_on(broker: SteppedBroker) -> None:
    """KIP-890: records of an older producer for a partition that was not added are rejected only with verification."""
    producer = started(broker, newest=False)

    def errors(partition: int) -> list[int]:
        return produce_errors(settled(broker, producer.produce([("topic", partition, b"a")])))

    assert errors(0) != [0]
    alter(broker, "transaction.partition.verification.enable", "false")
    assert errors(1) == [0]
    alter(broker, "transaction.partition.verification.enable", None)
    assert errors(2) != [0]


def test_idle_producers_are_forgotten_after_another_time(broker: SteppedBroker) -> None:
    """Also in the log of a topic created later."""

    def remembered(topic: str) -> int:
        values = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        answer = answer_of(settled(broker, send(broker.client(), DESCRIBE_PRODUCERS, 0, values)))
        return len(answer.topics[0].partitions[0].active_producers)

    def write(topic: str) -> None:
        now_ms = broker.clock.wall_ms()
        batch = record_batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=0, timestamp_ms=now_ms)
        sent = broker.client().produce([(topic, 0, batch)])
        broker.settle()
        assert [error for error, _ in produced(sent)] == [0]

    def let_the_interval_pass() -> None:
        broker.clock.advance_ns(EXPIRE_INTERVAL_NS)
        broker.settle()

    write("topic")
    let_the_interval_pass()
    assert remembered("topic") == 1
    alter(broker, "producer.id.expiration.ms", "60000")
    broker.create("later", 1)
    write("later")
    assert (remembered("topic"), remembered("later")) == (1, 1)
    let_the_interval_pass()
    assert (remembered("topic"), remembered("later")) == (0, 0)


@pytest.mark.parametrize("name", ["num.partitions", "node.id"])
def test_static_settings_are_not_changed(broker: SteppedBroker, name: str) -> None:
    """Some of these are dynamic in Kafka; here they are described as read-only, and changes are not stored."""
    with pytest.raises(ApiError, match="Cannot update these configs dynamically") as refused:
        alter(broker, name, "1")
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("num.network.threads", "0", "Value must be at least 1"),
        ("num.network.threads", "1", ""),
        ("num.network.threads", "2", ""),
        ("num.network.threads", "3", "value should not be greater than double the current value 1"),
        ("num.network.threads", "256", "value should not be greater than double the current value 1"),
        ("num.io.threads", "0", "Value must be at least 1"),
        ("num.io.threads", "1", ""),
        ("num.io.threads", "3", "at most 2 without a restart"),
        ("num.io.threads", "5", "value should not be greater than double the current value 2"),
    ],
)
def test_a28_e04_processors_and_handlers_change_by_half_or_double(
    broker: SteppedBroker, name: str, value: str, complaint: str
) -> None:
    if complaint:
        with pytest.raises(ApiError, match=complaint) as refused:
            alter(broker, name, value)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
    else:
        alter(broker, name, value)
        words = broker.context.broker_words
        wanted = {"num.network.threads": words.wanted_processors, "num.io.threads": words.wanted_handlers}
        assert wanted[name] == int(value)


# ---- flush.messages --------------------------------------------------------------------------------------------------


#: The setting of one topic, and the default of all.
OF_A_TOPIC, OF_ALL = (TOPIC, "topic", "flush.messages"), (BROKER, "", "log.flush.interval.messages")


@pytest.mark.parametrize("where", [OF_A_TOPIC, OF_ALL], ids=lambda where: str(where[2]))
def test_flush_messages_is_obeyed_as_soon_as_it_is_set(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, where: tuple[int, str, str]
) -> None:
    synced: list[int] = []
    real = os.fdatasync

    def sync(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    client = stepped.client()
    (partition, *_) = stepped.owned_by("topic", 0)

    def syncs_of_a_produce() -> int:
        synced.clear()
        sent = client.produce([batch_for(partition, b"record")])
        stepped.settle()
        assert [error for error, _ in produced(sent)] == [0]
        return len(synced)

    assert syncs_of_a_produce() == 0
    stepped.set_config(*where, "1")
    assert syncs_of_a_produce() == 1
    stepped.set_config(*where, "2")
    assert [syncs_of_a_produce(), syncs_of_a_produce()] == [0, 1]
    stepped.set_config(*where, None)
    assert syncs_of_a_produce() == 0
