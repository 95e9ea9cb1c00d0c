"""Group members of three client libraries: each reads, commits, and reports its reads and commits.

A member runs in a thread of its own until it is stopped. An exception of the library ends it and is raised by its
future, except for commit errors that a rebalance explains.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

#: A commit in the middle of a rebalance may meet these in Kafka as well.
REBALANCE_ERRORS = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
)


class Report:
    """What all members of one group have read and committed."""

    def __init__(self) -> None:
        self.read: set[bytes] = set()
        #: By partition: the greatest offset that a commit was confirmed for.
        self.committed: defaultdict[int, int] = defaultdict(int)
        self.failed_commits: list[object] = []
        self.polls = 0
        self._lock = threading.Lock()

    def note_read(self, values: list[bytes]) -> None:
        """Record a read."""
        with self._lock:
            self.polls += 1
            self.read.update(values)

    def note_committed(self, positions: dict[int, int]) -> None:
        """Record a confirmed commit."""
        with self._lock:
            for partition, offset in positions.items():
                self.committed[partition] = max(self.committed[partition], offset)


class Orders:
    """A member's orders: its group, its topic, and when to stop."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.stop = threading.Event()
        self.report = Report()


def consumer_of(bootstrap: str, group: str, **settings: object) -> Consumer:
    """Return librdkafka's consumer: reads from the start, commits on request; "_" replaces a dot in a setting."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    base = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **base, **named})


def subscriber(bootstrap: str, group: str, topics: list[str], **settings: object) -> Consumer:
    """Return a `consumer_of` that has subscribed."""
    consumer = consumer_of(bootstrap, group, **settings)
    consumer.subscribe(topics)
    return consumer


def read_to_end(
    bootstrap: str, topic: str, partitions: int, first: int = 0, isolation: str = "read_committed"
) -> list[Message]:
    """Return every message from an offset to the ends of all partitions."""
    consumer = consumer_of(bootstrap, "reader", isolation_level=isolation, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, partition, first) for partition in range(partitions)])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} messages, and no end of each partition of {topic}"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def run_confluent(orders: Orders) -> None:
    """Be a member as librdkafka is."""
    times = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
    consumer = subscriber(orders.bootstrap, orders.group, [orders.topic], **times)
    try:
        while not orders.stop.is_set():
            messages = consumer.consume(50, 0.1)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
            orders.report.note_read([message.value() or b"" for message in messages])
            if messages:
                try:
                    done = consumer.commit(asynchronous=False)
                    orders.report.note_committed({each.partition: each.offset for each in done or ()})
                except KafkaException as error:
                    _rebalance_or_raise(orders.report, error, error.args[0].code() in REBALANCE_ERRORS)
    finally:
        # Closing during a rebalance may hang for ever with the interpreter's lock held: the client's callback waits for
        # a thread of its own that has already ended. So the partitions are released before.
        consumer.unsubscribe()
        while consumer.assignment():
            consumer.poll(0.1)
        consumer.close()


def run_kafka_python(orders: Orders) -> None:
    """Be a member as kafka-python is."""
    consumer = kafka.KafkaConsumer(
        orders.topic,
        bootstrap_servers=orders.bootstrap,
        group_id=orders.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        # A leader that assigns before it has the topic's metadata assigns nothing, and may not notice until its
        # metadata age.
        metadata_max_age_ms=5000,
    )
    try:
        while not orders.stop.is_set():
            found = consumer.poll(timeout_ms=250, max_records=50)
            orders.report.note_read([record.value for records in found.values() for record in records])
            if found:
                positions = {place.partition: records[-1].offset + 1 for place, records in found.items()}
                try:
                    consumer.commit()
                    orders.report.note_committed(positions)
                except kafka.errors.CommitFailedError as error:
                    _rebalance_or_raise(orders.report, error, True)
    finally:
        consumer.close()


def run_aiokafka(orders: Orders) -> None:
    """Be a member as aiokafka is."""
    asyncio.run(_aiokafka(orders))


async def _aiokafka(orders: Orders) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        orders.topic,
        bootstrap_servers=orders.bootstrap,
        group_id=orders.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
    )
    await consumer.start()
    try:
        while not orders.stop.is_set():
            found = await consumer.getmany(timeout_ms=100, max_records=50)
            orders.report.note_read([record.value or b"" for records in found.values() for record in records])
            if found:
                positions = {place.partition: records[-1].offset + 1 for place, records in found.items()}
                try:
                    await consumer.commit()
                    orders.report.note_committed(positions)
                except aiokafka.errors.CommitFailedError as error:
                    _rebalance_or_raise(orders.report, error, True)
    finally:
        await consumer.stop()


def collect_left_sockets() -> None:
    """Close the sockets that kafka-python leaves to the garbage collector: connections that it gave up under load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _rebalance_or_raise(report: Report, error: Exception, explained: bool) -> None:
    if not explained:
        raise error
    report.failed_commits.append(error)


RUNNERS: dict[str, Callable[[Orders], Any]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}
