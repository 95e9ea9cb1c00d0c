"""aiokafka, which speaks old versions of most APIs: groups, static members, transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata
from checks import require, run, unique

LIMIT_SECONDS = 40


def in_loop(work: Callable[[str, AsyncExitStack], Awaitable[None]], bootstrap: str) -> None:
    """Run one feature; clients on the stack are closed at its end."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            await work(bootstrap, stack)

    asyncio.run(asyncio.wait_for(whole(), LIMIT_SECONDS))


async def new_topic(bootstrap: str, partitions: int) -> str:
    """Create a topic and return its name."""
    name, client = unique("topic"), AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(name, partitions, 1)])
    await client.close()
    return name


async def fill(bootstrap: str, topic: str, partitions: int, count: int, prefix: str = "v") -> None:
    """Produce `count` values in turns to the partitions."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, f"{prefix}{number}".encode(), partition=number % partitions)


def consumer_of(bootstrap: str, group: str | None, *topics: str, **settings: object) -> AIOKafkaConsumer:
    """Return a consumer without automatic commits."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
    return AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **defaults, **settings)


async def poll_until(consumers: tuple[AIOKafkaConsumer, ...], into: list[str], condition: Callable[[], bool]) -> None:
    """Poll alternately until the condition is true; the feature's time limit ends it."""
    while not condition():
        for consumer in consumers:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                into += [record.value.decode() for record in records]


async def two_members(assignor: object, bootstrap: str, stack: AsyncExitStack) -> None:
    """Share four partitions, leave, and continue with a third member from the committed offsets."""
    topic, group = await new_topic(bootstrap, 4), unique("group")
    values: list[str] = []
    strategy = {"partition_assignment_strategy": (assignor,)}
    first, second = (consumer_of(bootstrap, group, topic, **strategy) for _ in range(2))
    await first.start()
    await second.start()
    await poll_until((first, second), values, lambda: [len(one.assignment()) for one in (first, second)] == [2, 2])
    await fill(bootstrap, topic, 4, 100)
    await poll_until((first, second), values, lambda: len(values) >= 100)
    require(len(set(values)) == len(values) == 100, "len(set(values)) == len(values) == 100")
    for consumer in (first, second):
        await consumer.commit()
    await second.stop()
    await poll_until((first,), values, lambda: len(first.assignment()) == 4)
    await first.stop()
    await fill(bootstrap, topic, 4, 8, "later")
    third = await stack.enter_async_context(consumer_of(bootstrap, group, topic, **strategy))
    found: list[str] = []
    await poll_until((third,), found, lambda: len(found) >= 8)
    require(
        sorted(found) == [f"later{number}" for number in range(8)],
        "sorted(found) == [f'later{number}' for number in range(8)]",
    )


async def static_member(bootstrap: str, stack: AsyncExitStack) -> None:
    """Restart a static member: it gets its partitions again."""
    topic, group = await new_topic(bootstrap, 4), unique("group")
    ignored: list[str] = []
    first = await stack.enter_async_context(consumer_of(bootstrap, group, topic, group_instance_id="a"))
    second = consumer_of(bootstrap, group, topic, group_instance_id="b")
    await second.start()
    await poll_until((first, second), ignored, lambda: [len(one.assignment()) for one in (first, second)] == [2, 2])
    before = second.assignment()
    await second.stop()
    again = await stack.enter_async_context(consumer_of(bootstrap, group, topic, group_instance_id="b"))
    await poll_until((first, again), ignored, lambda: len(again.assignment()) == 2)
    require(again.assignment() == before, "again.assignment() == before")


async def transactions(bootstrap: str, stack: AsyncExitStack) -> None:
    """Commit and abort alternately, with offsets of a group; only committed records are read."""
    topic, group = await new_topic(bootstrap, 2), unique("group")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
    await stack.enter_async_context(producer)
    partition = TopicPartition(topic, 0)
    for turn in range(6):
        keep = turn % 2 == 0
        await producer.begin_transaction()
        for number in range(10):
            await producer.send_and_wait(topic, f"{'kept' if keep else 'lost'}-{number}".encode(), partition=number % 2)
        await producer.send_offsets_to_transaction({partition: OffsetAndMetadata(turn, "")}, group)
        await (producer.commit_transaction() if keep else producer.abort_transaction())
    consumer = await stack.enter_async_context(consumer_of(bootstrap, None, isolation_level="read_committed"))
    consumer.assign([TopicPartition(topic, number) for number in range(2)])
    await consumer.seek_to_beginning()
    values: list[str] = []
    await poll_until((consumer,), values, lambda: len(values) >= 30)
    for _ in range(5):
        await poll_until((consumer,), values, lambda: True)
    require(len(values) == 30, "len(values) == 30")
    require(all(value.startswith("kept") for value in values), "all((value.startswith('kept') for value in values))")
    reader = await stack.enter_async_context(consumer_of(bootstrap, group))
    require(await reader.committed(partition) == 4, "await reader.committed(partition) == 4")


async def fencing(bootstrap: str, stack: AsyncExitStack) -> None:
    """Start a second producer of one transactional id: it fences the first."""
    topic, name = await new_topic(bootstrap, 1), unique("tx")
    first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await first.start()
    await first.begin_transaction()
    await first.send_and_wait(topic, b"lost")
    second = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await stack.enter_async_context(second)
    try:
        await first.send_and_wait(topic, b"refused")
        await first.commit_transaction()
    except KafkaError:
        await first.stop()
    else:
        raise AssertionError("the first producer was not fenced")


if __name__ == "__main__":
    run(
        {
            "group: range": partial(in_loop, partial(two_members, RangePartitionAssignor)),
            "group: sticky": partial(in_loop, partial(two_members, StickyPartitionAssignor)),
            "group: static member returns": partial(in_loop, static_member),
            "transactions: commit and abort, offsets": partial(in_loop, transactions),
            "transactions: a second producer fences the first": partial(in_loop, fencing),
        }
    )
