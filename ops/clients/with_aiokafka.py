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
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[int, int], member: AiokafkaConsumer) -> None:
        self._loop.run(self._producer.send_offsets_to_transaction(member.places(offsets), member.group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        """Drop records in flight."""
        self._loop.run(self._producer.stop())


class AiokafkaConsumer:
    """A consumer of one topic: a reader of partitions, or a member of a classic group."""

    def __init__(self, loop: EventLoop, topic: str, consumer: AIOKafkaConsumer, group: str = "") -> None:
        self._loop, self._topic, self._consumer, self.group = loop, topic, consumer, group

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        records = (each for batch in batches.values() for each in batch)
        return [Record(each.partition, each.offset, each.key, each.value) for each in records]

    def assignment(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def ends(self) -> dict[int, int]:
        ends = self._loop.run(self._consumer.end_offsets(list(self._consumer.assignment())))
        return {place.partition: end for place, end in ends.items()}

    def positions(self) -> dict[int, int]:
        places = self._consumer.assignment()
        return {place.partition: self._loop.run(self._consumer.position(place)) for place in places}

    def places(self, offsets: Mapping[int, int]) -> dict[Place, int]:
        """Return offsets as the library has them."""
        return {Place(self._topic, partition): offset for partition, offset in offsets.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._loop.run(self._consumer.commit(self.places(offsets)))

    def close(self) -> None:
        """Close it, and leave the group."""
        self._loop.run(self._consumer.stop())


async def reader(bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> AIOKafkaConsumer:
    """Return a consumer with all partitions assigned."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=f"{topic}-reader",
        enable_auto_commit=False,
        isolation_level=isolation.value,
        auto_offset_reset="none",
    )
    await started(consumer)
    consumer.assign([Place(topic, partition) for partition in offsets])
    for partition, offset in offsets.items():
        consumer.seek(Place(topic, partition), offset)
    return consumer


async def member(bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None) -> AIOKafkaConsumer:
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
    consumer.subscribe([topic], listener=Listener(assigned) if assigned else None)
    await started(consumer)
    return consumer


class Listener(ConsumerRebalanceListener):
    """Passes on the newly assigned partitions."""

    def __init__(self, assigned: Assigned) -> None:
        self._assigned = assigned

    async def on_partitions_assigned(self, assigned: Sequence[Place]) -> None:
        self._assigned([place.partition for place in assigned])

    async def on_partitions_revoked(self, revoked: Sequence[Place]) -> None:
        """Do nothing: only assignments count."""


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


def remedy_for(failure: BaseException) -> Remedy:
    # Its states are asserted: a call to a producer in its fatal state raises AssertionError.
    if isinstance(failure, AssertionError) or type(failure).__name__ in FATAL:
        return Remedy.REPLACE
    return Remedy.RETRY if getattr(failure, "retriable", False) else Remedy.ABORT


async def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(name, partitions, 1)])
    await client.close()


def library(bootstrap: str) -> Library:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    loop = EventLoop()

    def make_reader(topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> AiokafkaConsumer:
        return AiokafkaConsumer(loop, topic, loop.run(reader(bootstrap, topic, isolation, offsets)))

    def make_member(topic: str, membership: Membership, assigned: Assigned | None) -> AiokafkaConsumer:
        consumer = loop.run(member(bootstrap, topic, membership, assigned))
        return AiokafkaConsumer(loop, topic, consumer, membership.group)

    return Library(
        "aiokafka",
        partial(AiokafkaProducer, loop, bootstrap),
        make_reader,
        make_member,
        lambda name, partitions: loop.run(make_topic(bootstrap, name, partitions)),
        protocols=("classic",),
        plain_repeats=True,
        records_per_second=50,
    )
