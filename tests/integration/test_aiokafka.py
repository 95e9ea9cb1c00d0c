"""An unmodified aiokafka client, which speaks older versions of most APIs, against a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

pytestmark = pytest.mark.walk

#: Recent, so that retention leaves the records alone.
BASE_MS = time.time_ns() // 1_000_000 - 60_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, deadline_s(60)))


@asynccontextmanager
async def admin_of(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def producer_of(broker: BrokerProcess, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        yield producer


@asynccontextmanager
async def consumer_of(broker: BrokerProcess, **settings: object) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="none", enable_auto_commit=False, **settings
    )
    async with consumer:
        yield consumer


async def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with admin_of(broker) as admin:
        response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
        assert [error[1] for error in response.topic_errors] == [0]


@pytest.mark.parametrize(("codec", "acks"), [(None, 0), ("gzip", 1), ("snappy", "all"), ("lz4", 1), ("zstd", "all")])
def test_records_are_read_as_written(broker, topic, codec, acks) -> None:
    async def work() -> None:
        await create(broker, topic)
        sent = []
        async with producer_of(broker, acks=acks, compression_type=codec) as producer:
            for number in range(200):
                key = None if number % 3 == 0 and number % 50 != 49 else f"key-{number}".encode()
                value = None if number % 50 == 49 else f"value-{number}-".encode() * (number % 7)
                headers = [("one", b"1"), ("one", f"{number}".encode())] if number % 2 else []
                await producer.send(topic, value, key, 0, BASE_MS + number, headers)
                sent.append((number, key, value, headers, BASE_MS + number))
            await producer.flush()
        async with consumer_of(broker) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            records = [await consumer.getone() for _ in range(200)]
        assert [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in records] == sent

    run(work())


def test_positions_are_found_and_one_beyond_the_end_is_out_of_range(broker, topic) -> None:
    async def work() -> None:
        await create(broker, topic)
        async with producer_of(broker) as producer:
            for number in range(50):
                await producer.send(topic, str(number).encode(), None, 0, BASE_MS + 10 * number)
            await producer.flush()
        partition = TopicPartition(topic, 0)
        async with consumer_of(broker) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 42)
            assert (await consumer.getone()).value == b"42"
            for wanted_ms, offset in ((BASE_MS - 1, 0), (BASE_MS + 250, 25), (BASE_MS + 251, 26)):
                found = await consumer.offsets_for_times({partition: wanted_ms})
                assert found[partition].offset == offset
            beyond = await consumer.offsets_for_times({partition: BASE_MS + 491})
            assert beyond[partition] is None
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 50}
            consumer.seek(partition, 1000)
            with pytest.raises(errors.OffsetOutOfRangeError):
                await consumer.getone()

    run(work())


def test_idempotent_producer_writes_in_order(broker, topic) -> None:
    async def work() -> None:
        await create(broker, topic, 3)
        async with producer_of(broker, enable_idempotence=True) as producer:
            futures = [await producer.send(topic, str(n).encode(), partition=n % 3) for n in range(600)]
            offsets = [(await future).offset for future in futures]
        assert offsets == [n // 3 for n in range(600)]

    run(work())


def test_topic_life_cycle(broker, topic) -> None:
    async def work() -> None:
        await create(broker, topic, 2)
        async with admin_of(broker) as admin:
            again = await admin.create_topics([NewTopic(topic, 1, 1)])
            assert [error[1] for error in again.topic_errors] == [errors.TopicAlreadyExistsError.errno]
            described = await admin.describe_topics([topic])
            assert len(described[0]["partitions"]) == 2
            await admin.create_partitions({topic: NewPartitions(4)})
            assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 4
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()

    run(work())
