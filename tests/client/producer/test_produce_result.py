"""Waiters for a batch: in event loops, and on the I/O thread's way out of callbacks."""

from __future__ import annotations

import asyncio

from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import Compression
from rotunda.broker.client.producer.futures import RecordFuture, RecordMetadata
from rotunda.broker.client.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 3)


def batch_with(records: int) -> tuple[ProducerBatch, list[RecordFuture]]:
    batch = ProducerBatch(PARTITION, 1 << 16, 0.0, Compression())
    futures = [batch.try_append(1, None, b"value", b"\x00", None) for _ in range(records)]
    return batch, [future for future in futures if future is not None]


async def waited_for(future: RecordFuture) -> RecordMetadata:
    return await future


def test_a_cancelled_task_does_not_cancel_others_that_wait_for_the_same_batch() -> None:
    async def scenario() -> RecordMetadata:
        batch, (first, second) = batch_with(2)
        given_up, waiting = (asyncio.ensure_future(waited_for(each)) for each in (first, second))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        batch.done(40, -1)
        # Later waiters are not notified of it either.
        assert (await first).offset == 40
        return await waiting

    assert asyncio.run(scenario()).offset == 41


def test_after_a_timeout_a_record_can_be_awaited_again() -> None:
    async def scenario() -> RecordMetadata:
        batch, (only,) = batch_with(1)
        try:
            await asyncio.wait_for(waited_for(only), 0.001)
        except TimeoutError:
            asyncio.get_running_loop().call_soon(batch.done, 7, -1)
        return await only

    assert asyncio.run(scenario()).offset == 7


def test_a_callback_that_ends_its_thread_ends_nothing() -> None:
    """`sys.exit()` in a callback is logged like all else that it raises."""
    called = []

    def leave(_metadata: object, _error: object) -> None:
        called.append(1)
        raise SystemExit(3)

    batch = ProducerBatch(PARTITION, 1 << 16, 0.0, Compression())
    futures = [batch.try_append(1, None, b"value", b"\x00", leave) for _ in range(2)]
    batch.done(0, -1)
    assert len(called) == len(futures) == 2
