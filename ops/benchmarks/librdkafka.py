"""librdkafka as a load: the rate at which one client produces records to a broker, or fetches its cached ones.

Knows neither the broker nor what its rates are compared with.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ops.broker import ProgramError

DEADLINE_S = 120.0
#: The most produced records that wait for a response.
_MOST_QUEUED = 100_000
_ROOM_S = 0.01

#: A client's settings.
Settings = dict[str, Any]


class Load(NamedTuple):
    """One measurement: its name, its function that returns records a second, their number, and the ratio expected."""

    title: str
    measure: Callable[[Settings, str], float]
    records: int
    expected_ratio: float


@contextmanager
def failures() -> Iterator[None]:
    """Raise the client's errors as ProgramError: they end one case only."""
    try:
        yield
    except (KafkaException, TimeoutError) as failure:
        raise ProgramError(f"librdkafka: {failure}") from failure


def create(settings: Settings, topics: Sequence[str], partitions: int = 1) -> None:
    admin = AdminClient(settings)  # its requests end with it
    for future in admin.create_topics([NewTopic(name, partitions) for name in topics]).values():
        future.result(DEADLINE_S)


def produced(settings: Settings, topic: str, values: Sequence[bytes], records: int, partition: int = 0) -> float:
    """Return the rate of produced records, with these values in turns."""
    producer = Producer(settings)
    connect(producer, topic, values[0], partition)
    begun = time.monotonic()
    for number, value in enumerate(islice(cycle(values), records)):
        if not number % 1000:
            producer.poll(0)
            while len(producer) > _MOST_QUEUED - 1000:
                producer.poll(_ROOM_S)
        producer.produce(topic, value, partition=partition)
    if producer.flush(DEADLINE_S):
        raise ProgramError(f"records were not acknowledged in {DEADLINE_S:.0f} s")
    return records / (time.monotonic() - begun)


def fetched(settings: Settings, topic: str, records: int) -> float:
    """Return the rate of fetched records, the last ones of the log, which are cached."""
    own = {"group.id": "bench", "enable.auto.commit": False, "fetch.message.max.bytes": 1 << 20}
    consumer = Consumer(settings | own)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        begun, count = time.monotonic(), 0
        consumer.assign([TopicPartition(topic, 0, end - records)])
        while count < records:
            count += len(consumer.consume(1000, timeout=1.0))
            if time.monotonic() - begun > DEADLINE_S:
                raise ProgramError(f"{count} of {records} records were read in {DEADLINE_S:.0f} s")
        return records / (time.monotonic() - begun)
    finally:
        consumer.close()


def connect(producer: Producer, topic: str, value: bytes, partition: int = 0) -> None:
    """Have the first record acknowledged: handshakes are over then."""
    producer.produce(topic, value, partition=partition)
    if producer.flush(DEADLINE_S):
        raise ProgramError(f"the first record was not acknowledged in {DEADLINE_S:.0f} s")


def texts(count: int, size: int) -> list[bytes]:
    """Return values of words, the same in every run, which a codec shortens as it does logs."""
    chosen = random.Random(1)  # noqa: S311 - no secret
    words = [bytes(chosen.choices(range(97, 123), k=chosen.randint(2, 12))) for _ in range(500)]
    return [b" ".join(chosen.choices(words, k=size))[:size] for _ in range(count)]


_MANY, _FEW = 1_500_000, 400_000
_SHORT_VALUES, _LONG_VALUES = texts(1000, 100), texts(1000, 1000)


def _produce(title: str, more: Settings, values: Sequence[bytes], records: int, expected_ratio: float) -> Load:
    def measure(settings: Settings, topic: str) -> float:
        return produced(settings | more, topic, values, records)

    return Load(f"librdkafka's {title}", measure, records, expected_ratio)


#: In this order: what is fetched has been produced by the one before.
LOADS = (
    _produce("Produce of 1 KB with lz4", {"compression.type": "lz4"}, _LONG_VALUES, _FEW, 1.7),
    _produce("Produce of 100 B with linger.ms=0", {"linger.ms": 0}, _SHORT_VALUES, _MANY, 1.4),
    _produce("idempotent Produce of 100 B", {"enable.idempotence": True}, _SHORT_VALUES, _MANY, 1.3),
    Load("librdkafka's Fetch of records of 100 B", partial(fetched, records=_MANY), _MANY, 1.2),
)
