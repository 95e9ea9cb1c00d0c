"""The short way while threads are in it, and while exceptions end it anywhere."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import ProducerSettings
from rotunda.broker.client.producer.futures import RecordFuture
from rotunda.broker.client.producer.sending.record_accumulator import RecordAccumulator
from rotunda.broker.clock import SystemClock
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import headers_bytes
from tests.client.producer.clusters import TOPIC, cluster_of
from tests.client.producer.lanes import by_lane

CLUSTER = cluster_of([1, 1])
NO_HEADERS = headers_bytes(())
RECORDS = 3_000


@pytest.fixture
def often() -> Iterator[None]:
    """Switch threads often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Sending:
    """An accumulator that is appended to by the short way where it is open, and drained."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.accumulator = RecordAccumulator(
            ProducerSettings(batch_size=4000), BufferPool(1 << 26, self.clock), self.clock
        )
        self.drained: list[ProducerBatch] = []
        self.short = 0

    def send(self, value: bytes) -> RecordFuture:
        lane = self.accumulator.lanes.get(TOPIC)
        future = None if lane is None else by_lane(lane, value)
        if future is not None:
            self.short += 1
            return future
        now_ms = self.accumulator.now_ms()
        record = (self.clock.wall_ms(), None, value, NO_HEADERS, None)
        return self.accumulator.append(TOPIC, None, *record, 0.0, now_ms, CLUSTER).future

    def drain(self) -> None:
        nodes = [CLUSTER.nodes[1]]
        drained = self.accumulator.drain(CLUSTER, nodes, 1 << 20, self.accumulator.now_ms())[1]
        for batch in drained:
            self.accumulator.deallocate(batch)
        self.drained += drained

    def values(self) -> dict[ProducerBatch, list[bytes | None]]:
        """Return the values of each batch, when all have been drained."""
        self.accumulator.begin_flush()
        while self.accumulator.has_undrained():
            self.drain()
        return {each: [record.value for record in iterate_records(each.close())] for each in self.drained}


@pytest.mark.usefixtures("often")
def test_each_record_has_the_offset_of_its_future_with_any_threads() -> None:
    sending = Sending()
    sent: list[list[tuple[bytes, RecordFuture]]] = [[] for _ in range(3)]
    left = threading.Semaphore(0)

    def send(number: int) -> None:
        for index in range(RECORDS):
            value = b"%d-%d" % (number, index)
            sent[number].append((value, sending.send(value)))
        left.release()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sending.drain()
    values = sending.values()
    assert sending.short > RECORDS
    assert sum(map(len, values.values())) == 3 * RECORDS
    for each in sent:
        assert len(each) == RECORDS
        for value, future in each:
            (batch, *_), index = future
            assert values[batch][index] == value


def test_an_exception_between_any_two_steps_leaves_whole_records() -> None:
    """A call ended by Ctrl-C has appended its record or not; no other record is lost or doubled, no lock is held."""
    sending = Sending()
    sent: list[tuple[bytes, RecordFuture]] = []
    interrupts = number = 0
    is_short = False

    def interrupt(_signal: int, _frame: object) -> None:
        if is_short:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)
    # An exception in code that the collector runs is lost.
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    try:
        while interrupts < 12:
            number += 1
            value = b"%06d" % number
            lane = sending.accumulator.lanes.get(TOPIC)
            try:
                is_short = lane is not None
                future = None if lane is None else by_lane(lane, value)
                is_short = False
                if future is not None:
                    sent.append((value, future))
            except KeyboardInterrupt:
                is_short = False
                interrupts += 1
            else:
                if future is None:
                    sending.send(value)
            if number % 300 == 0:
                sending.drain()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)
    values = sending.values()
    for value, future in sent:
        (batch, *_), index = future
        assert values[batch][index] == value
    whole = [value for each in values.values() for value in each]
    assert len(set(whole)) == len(whole)
    assert all(value is not None and len(value) == len(b"000000") for value in whole)
