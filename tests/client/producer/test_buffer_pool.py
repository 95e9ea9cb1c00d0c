"""The memory of records: in order of asking, bit by bit (`G17`)."""

from __future__ import annotations

import threading

import pytest

from rotunda.broker.client.errors import BufferExhausted, KafkaError, ProducerClosed, RecordTooLarge
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.clock import SystemClock
from tests.support.deadline import wait_until


class Asking(threading.Thread):
    """A thread that allocates memory; `outcome` is None after success."""

    def __init__(self, pool: BufferPool, size: int, served: list[int], max_block_ms: float = 60_000) -> None:
        super().__init__(daemon=True)
        self.outcome: KafkaError | None = None
        self._pool, self._size, self._served, self._max_block_ms = pool, size, served, max_block_ms
        queued = pool.queued
        self.start()
        wait_until(lambda: pool.queued > queued or not self.is_alive(), "the thread to wait")

    def run(self) -> None:
        try:
            self._pool.allocate(self._size, self._max_block_ms)
            self._served.append(self._size)
        except KafkaError as error:
            self.outcome = error


def test_g17_the_first_request_is_served_first() -> None:
    pool, served = BufferPool(100, SystemClock()), []
    pool.allocate(100, 0)
    waiting = [Asking(pool, 60, served), Asking(pool, 10, served), Asking(pool, 30, served)]
    assert not pool.try_allocate(1)
    pool.deallocate(50)
    assert served == []
    for room, whom in ((10, 60), (10, 10), (30, 30)):
        pool.deallocate(room)
        wait_until(lambda whom=whom: served and served[-1] == whom, f"{whom} bytes to be given")
    for each in waiting:
        each.join()
    assert (pool.available_bytes, pool.queued) == (0, 0)
    assert pool.waited_ns > 0


def test_g17_partly_allocated_memory_is_released_at_the_timeout() -> None:
    pool, served = BufferPool(100, SystemClock()), []
    pool.allocate(100, 0)
    first = Asking(pool, 80, served, max_block_ms=50)
    second = Asking(pool, 40, served)
    pool.deallocate(40)
    first.join()
    second.join()
    assert isinstance(first.outcome, BufferExhausted)
    assert "80 bytes within 50 ms" in str(first.outcome)
    assert served == [40]
    assert pool.available_bytes == 0
    assert pool.exhausted_count == 1


def test_g17_a_close_wakes_all_and_more_than_there_is_is_an_error_at_once() -> None:
    pool = BufferPool(100, SystemClock())
    with pytest.raises(RecordTooLarge, match=r"buffer\.memory"):
        pool.allocate(101, 60_000)
    pool.allocate(100, 0)
    waiting = [Asking(pool, 1, []), Asking(pool, 2, [])]
    pool.close()
    for each in waiting:
        each.join()
        assert isinstance(each.outcome, ProducerClosed)
    with pytest.raises(ProducerClosed):
        pool.allocate(1, 0)
    pool.deallocate(100)
    assert pool.available_bytes == 100
