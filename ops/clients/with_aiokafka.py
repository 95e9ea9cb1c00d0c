"""aiokafka with the interface of `clients`: all of its clients share one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as Place
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from ops.clients.library import (
    ACKNOWLEDGED,
    WAIT_SECONDS,
    Assigned,
    ClientError,
    Isolation,
    Kind,
    Library,
    Membership,
    Record,
    Remedy,
    ToSend,
    text_of,
)

Value = TypeVar("Value")
POLL_SECONDS = 0.2
ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}
FATAL = ("ProducerFenced", "InvalidProducerEpoch", "IllegalOperation", "OutOfOrderSequenceNumber")


class EventLoop:
    """The loop of all clients: `run` waits for a coroutine of it from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Value], seconds: float = 3 * WAIT_SECONDS) -> Value:
        """Return the coroutine's result; an exception of the library becomes a ClientError."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (KafkaError, TimeoutError, CancelledError, AssertionError) as failure:
            future.cancel()
            raise ClientError(failure, remedy_for(failure)) from failure


class AiokafkaProducer:
    """A producer; each record has a future."""

    def __init__(self, loop: EventLoop, bootstrap: str, kind: Kind, topic: str, transactional_id: str) -> None:
        self._loop, self._topic = loop, topic
        self._producer = loop.run(self._started(bootstrap, kind, transactional_id))

    async def _started(self, bootstrap: str, kind: Kind, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=self._topic,
            acks="all",
            enable_idempotence=kind is Kind.IDEMPOTENT,
            transactional_id=transactional_id if kind is Kind.TRANSACTIONAL else None,
        )
        await started(producer)
        return producer

    def send(self, records: Sequence[ToSend]) -> list[int | str]:
        """Send all and wait for each."""
        return self._loop.run(self._send(records))

    async def _send(self, records: Sequence[ToSend]) -> list[int | str]:
        futures = [await self._send_one(record) for record in records]
        return [future if isinstance(future, str) else await outcome_of(future) for future in futures]

    async def _send_one(self, record: ToSend) -> object:
        try:
            return await self._producer.send(self._topic, record.value, record.key, partition=record.partition)
        except KafkaError as failure:
            return text_of(failure)

    def begin(self) -> None:
        """Begin a transaction."""
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[int, int], member: AiokafkaMember) -> None:
        """Commit offsets of a group with the transaction."""
        self._loop.run(self._producer.send_offsets_to_transaction(member.places(offsets), member.group))

    def commit(self) -> None:
        """Commit the transaction."""
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        """Abort the transaction."""
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        """Drop records in flight."""
        self._loop.run(self._producer.stop())


class AiokafkaReader:
    """A consumer with all partitions assigned."""

    def __init__(
        self, loop: EventLoop, bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]
    ) -> None:
        self._loop = loop
        self._places = {partition: Place(topic, partition) for partition in offsets}
        self._consumer = loop.run(self._started(bootstrap, topic, isolation, offsets))

    async def _started(
        self, bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]
    ) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=f"{topic}-reader",
            enable_auto_commit=False,
            isolation_level=isolation.value,
            auto_offset_reset="none",
        )
        await started(consumer)
        consumer.assign(list(self._places.values()))
        for partition, offset in offsets.items():
            consumer.seek(self._places[partition], offset)
        return consumer

    def poll(self) -> list[Record]:
        """Return the next records."""
        return self._loop.run(polled(self._consumer))

    def ends(self) -> dict[int, int]:
        """Return the end of each partition."""
        ends = self._loop.run(self._consumer.end_offsets(list(self._places.values())))
        return {place.partition: end for place, end in ends.items()}

    def positions(self) -> dict[int, int]:
        """Return the next offset to read, by partition."""
        return {each: self._loop.run(self._consumer.position(place)) for each, place in self._places.items()}

    def close(self) -> None:
        """Close it."""
        self._loop.run(self._consumer.stop())


class Listener(ConsumerRebalanceListener):
    """Passes on the newly assigned partitions."""

    def __init__(self, assigned: Assigned) -> None:
        self._assigned = assigned

    async def on_partitions_assigned(self, assigned: Sequence[Place]) -> None:
        """Pass them on."""
        self._assigned([place.partition for place in assigned])

    async def on_partitions_revoked(self, revoked: Sequence[Place]) -> None:
        """Do nothing: only assignments count."""


class AiokafkaMember:
    """A member of a classic group."""

    def __init__(
        self, loop: EventLoop, bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None
    ) -> None:
        self._loop, self._topic, self.group = loop, topic, membership.group
        self._consumer = loop.run(self._started(bootstrap, membership, assigned))

    async def _started(self, bootstrap: str, membership: Membership, assigned: Assigned | None) -> AIOKafkaConsumer:
        assignors = {"partition_assignment_strategy": (ASSIGNORS[membership.assignor],)} if membership.assignor else {}
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=membership.group,
            group_id=membership.group,
            group_instance_id=membership.instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=1000,
            **assignors,
        )
        consumer.subscribe([self._topic], listener=Listener(assigned) if assigned else None)
        await started(consumer)
        return consumer

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        """Return the next records."""
        return self._loop.run(polled(self._consumer, seconds))

    def assignment(self) -> set[int]:
        """Return its partitions."""
        return {place.partition for place in self._consumer.assignment()}

    def places(self, offsets: Mapping[int, int]) -> dict[Place, int]:
        """Return offsets as the library has them."""
        return {Place(self._topic, partition): offset for partition, offset in offsets.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit and wait."""
        self._loop.run(self._consumer.commit(self.places(offsets)))

    def close(self) -> None:
        """Leave."""
        self._loop.run(self._consumer.stop())


async def started(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Start a client; one that cannot start is closed."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise


async def outcome_of(future: asyncio.Future[Any]) -> int | str:
    """Wait for a record's future and return its offset, or the error."""
    try:
        offset = (await future).offset
    except KafkaError as failure:
        return text_of(failure)
    return offset if offset is not None and offset >= 0 else ACKNOWLEDGED


async def polled(consumer: AIOKafkaConsumer, seconds: float = POLL_SECONDS) -> list[Record]:
    """Return the records that a consumer has."""
    batches = await consumer.getmany(timeout_ms=int(seconds * 1000))
    return [Record(each.partition, each.offset, each.key, each.value) for batch in batches.values() for each in batch]


def remedy_for(failure: BaseException) -> Remedy:
    """Return the remedy for an exception of the library."""
    # Its states are asserted: a call to a producer in its fatal state raises AssertionError.
    if isinstance(failure, AssertionError) or type(failure).__name__ in FATAL:
        return Remedy.REPLACE
    return Remedy.RETRY if getattr(failure, "retriable", False) else Remedy.ABORT


async def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(name, partitions, 1)])
    await client.close()


def library(bootstrap: str) -> Library:
    """Return the library with the address of its broker."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    loop = EventLoop()
    return Library(
        "aiokafka",
        partial(AiokafkaProducer, loop, bootstrap),
        partial(AiokafkaReader, loop, bootstrap),
        partial(AiokafkaMember, loop, bootstrap),
        lambda name, partitions: loop.run(make_topic(bootstrap, name, partitions)),
        protocols=("classic",),
        plain_repeats=True,
        records_per_second=50,
    )
