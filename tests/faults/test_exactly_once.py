"""An idempotent producer writes each record once and in order, with any faults and deaths of any handlers."""

from __future__ import annotations

import random
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

from rotunda.broker.testing import RotundaBroker
from tests.support.deadline import deadline_s

TOPIC, PARTITIONS, ROUNDS, RECORDS = "orders", 3, 24, 20


def inject(broker: RotundaBroker, chance: random.Random) -> None:
    """Inject one random fault."""
    times = chance.randint(1, 2)
    match chance.randrange(6):
        case 0:
            broker.fail("Produce", chance.choice(("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT")), times=times)
        case 1:
            broker.disconnect("Produce", times=times)
        case 2:
            broker.disconnect("Produce", when="after", times=times)
        case 3:
            broker.delay("Produce", chance.randint(1, 50), times=times)
        case 4:
            broker.throttle(ms=chance.randint(1, 20), api="Produce", times=times)
        case _:
            broker.kill("handler", chance.randrange(2), wait=False)


def test_each_record_is_there_once_and_in_order() -> None:
    seed = random.randrange(sys.maxsize)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with RotundaBroker({"process.restart.limit": 1000}) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 10, "linger.ms": 1}
        )
        failed: list[object] = []
        for round_number in range(ROUNDS):
            inject(broker, chance)
            for number in range(RECORDS):
                value = str(round_number * RECORDS + number).encode()
                partition = chance.randrange(PARTITIONS)
                producer.produce(
                    TOPIC, value, partition=partition, callback=lambda error, _: error and failed.append(error)
                )
                producer.poll(0)
            if chance.random() < 0.5:
                assert producer.flush(deadline_s(60)) == 0
        assert producer.flush(deadline_s(60)) == 0
        assert not failed
        broker.clear_faults()
        found = [read(broker.bootstrap, partition) for partition in range(PARTITIONS)]
    assert sorted(number for numbers in found for number in numbers) == list(range(ROUNDS * RECORDS))
    assert all(numbers == sorted(numbers) for numbers in found)


def read(bootstrap: str, partition: int) -> list[int]:
    """Return the records of a partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    numbers = []
    while True:
        record = consumer.poll(60)
        assert record is not None
        if record.error() is not None:
            consumer.close()
            return numbers
        numbers.append(int(record.value()))
