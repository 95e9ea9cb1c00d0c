"""The queues of batches: to which batch records are appended, which are ready when, and which a request drains."""

from __future__ import annotations

import random
import threading
from collections import deque

import pytest

from rotunda.broker.client.errors import KafkaError, ProducerClosed, TransactionAborted
from rotunda.broker.client.network.snapshot import ClusterSnapshot
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import Compression, ProducerSettings
from rotunda.broker.client.producer.futures import RecordFuture
from rotunda.broker.client.producer.sending.record_accumulator import Appended, RecordAccumulator
from rotunda.broker.client.producer.sending.record_queues import insert_in_sequence_order
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import headers_bytes
from tests.client.producer.clusters import TOPIC, cluster_of
from tests.client.producer.lanes import by_lane
from tests.support.deadline import deadline_s, wait_until
from tests.support.fakes import FakeClock
from tests.support.feeds import random_seed

BATCH = 1000
MEMORY = 20 * BATCH
NO_HEADERS = headers_bytes(())
ONE_NODE = cluster_of([1, 1])
TWO_NODES = cluster_of([1, 2])


class Queues:
    """An accumulator with a clock under test control."""

    def __init__(self, cluster: ClusterSnapshot = ONE_NODE, **settings: float | str | bool) -> None:
        self.clock = FakeClock()
        self.cluster = cluster
        self.pool = BufferPool(MEMORY, self.clock)
        config = ProducerSettings(**{"batch_size": BATCH, "linger_ms": 10, **settings})
        self.accumulator = RecordAccumulator(config, self.pool, self.clock)

    @property
    def now_ms(self) -> float:
        return self.accumulator.now_ms()

    def pass_ms(self, milliseconds: float) -> None:
        self.clock.advance_ns(int(milliseconds * 1_000_000))

    def append(self, partition: int | None, size: int = 100, key: bytes | None = None) -> Appended:
        record = (0, key, bytes(size), NO_HEADERS, None, 0.0, self.now_ms, self.cluster)
        return self.accumulator.append(TOPIC, partition, *record)

    def ready(self) -> list[int]:
        return [node.id for node in self.accumulator.ready(self.cluster, self.now_ms).ready_nodes]

    def wait_ms(self) -> float:
        return self.accumulator.ready(self.cluster, self.now_ms).next_ready_check_delay_ms

    def drain(self, node: int = 1, max_size: int = 1 << 20) -> list[ProducerBatch]:
        nodes = [self.cluster.nodes[node]]
        return self.accumulator.drain(self.cluster, nodes, max_size, self.now_ms)[node]


def test_g16_a_batch_is_closed_when_a_record_does_not_fit_and_the_first_may_be_larger() -> None:
    queues = Queues()
    first = queues.append(0)
    assert (first.new_batch_created, first.batch_is_full) == (True, False)
    assert [queues.append(0).new_batch_created for _ in range(7)] == [False] * 7
    second = queues.append(0, 500)
    assert (second.new_batch_created, second.batch_is_full) == (True, True)
    assert queues.pool.available_bytes == MEMORY - 2 * BATCH
    large = queues.append(1, 5000)
    assert (large.new_batch_created, large.batch_is_full) == (True, True)
    assert queues.pool.available_bytes < MEMORY - 2 * BATCH - 5000


def test_g16_unused_memory_is_released() -> None:
    queues = Queues()
    received = queues.pool.allocate

    def allocate(size_bytes: int, max_block_ms: float) -> None:
        """Make a batch in another thread while this one waits for memory."""
        queues.pool.allocate = received  # type: ignore[method-assign]
        del queues.pool.try_allocate
        queues.append(0)
        received(size_bytes, max_block_ms)

    queues.pool.allocate = allocate  # type: ignore[method-assign]
    queues.pool.try_allocate = lambda size_bytes: size_bytes < 0  # type: ignore[method-assign]
    assert not queues.append(0).new_batch_created
    assert queues.pool.available_bytes == MEMORY - BATCH


def test_g13_g16_the_short_way_leads_to_the_same_batches_as_the_long_one() -> None:
    """`G13`, `G16`: with any sizes, whichever way each record is appended, partitions change after the same bytes."""
    seed = random_seed()
    print(f"seed {seed}")
    found = []
    for share in (0.0, 0.5, 1.0):
        chance = random.Random(seed)
        clock = FakeClock()
        config = ProducerSettings(batch_size=BATCH)
        pool = BufferPool(1 << 24, clock)
        accumulator = RecordAccumulator(config, pool, clock, chance=random.Random(seed))
        ways = random.Random(seed + 1)
        for number in range(500):
            value = b"%d " % number + bytes(chance.choice((1, 50, 90, 300)))
            lane = accumulator.lanes.get(TOPIC)
            is_short = ways.random() < share
            if not is_short or lane is None or by_lane(lane, value, 0) is None:
                accumulator.append(TOPIC, None, 0, None, value, NO_HEADERS, None, 0.0, 0.0, ONE_NODE)
        accumulator.begin_flush()
        drained = []
        while batches := accumulator.drain(ONE_NODE, [ONE_NODE.nodes[1]], 1 << 20, 0.0)[1]:
            for each in batches:
                values = [record.value for record in iterate_records(each.close())]
                drained.append((each.topic_partition.partition, values))
        assert sum(len(values) for _, values in drained) == 500
        found.append(drained)
    assert found[0] == found[1] == found[2]


def test_g18_a_broker_is_ready_when_a_batch_is_full_or_has_lingered() -> None:
    queues = Queues()
    queues.append(0)
    assert queues.ready() == []
    assert queues.wait_ms() == 10
    queues.pass_ms(4)
    assert queues.wait_ms() == 6
    queues.pass_ms(6)
    assert queues.ready() == [1]
    full = Queues()
    full.append(0, 900)
    full.append(0, 900)
    assert full.ready() == [1]


def test_g18_nobody_lingers_when_somebody_waits_flushes_or_closes() -> None:
    for urge in ("flush", "close", "memory"):
        queues = Queues()
        queues.append(0)
        if urge == "flush":
            queues.accumulator.begin_flush()
        elif urge == "close":
            queues.accumulator.close()
        else:
            waiting = threading.Thread(target=queues.pool.allocate, args=(MEMORY, 60_000), daemon=True)
            waiting.start()
            wait_until(lambda queues=queues: queues.pool.queued, "the thread to wait")
        assert queues.ready() == [1], urge
        if urge == "memory":
            queues.pool.deallocate(BATCH)
            waiting.join()


def test_g18_without_a_leader_the_metadata_are_asked_for() -> None:
    queues = Queues(cluster_of([None, 2]))
    queues.append(0)
    queues.append(1)
    queues.pass_ms(10)
    result = queues.accumulator.ready(queues.cluster, queues.now_ms)
    assert ([node.id for node in result.ready_nodes], result.unknown_leader_topics) == ([2], {TOPIC})


def test_g19_a_retry_waits_for_its_backoff_unless_there_is_a_new_leader() -> None:
    queues = Queues(retry_backoff_ms=100, retry_backoff_max_ms=100, linger_ms=0)
    queues.append(0)
    assert queues.ready() == [1]
    (batch,) = queues.drain()
    queues.accumulator.reenqueue(batch, queues.now_ms)
    assert batch.attempts == 1
    assert queues.ready() == []
    assert queues.drain() == []
    assert queues.wait_ms() == 100
    queues.cluster = cluster_of([1, 1], epoch=2)
    assert queues.ready() == [1]
    assert queues.drain() == [batch]
    queues.accumulator.reenqueue(batch, queues.now_ms)
    assert queues.ready() == []
    queues.pass_ms(100)
    assert queues.drain() == [batch]


def test_g20_a_request_has_one_batch_a_partition_and_begins_elsewhere_each_time() -> None:
    queues = Queues(cluster_of([1, 1, 1]))
    for partition in range(3):
        for _ in range(3):
            queues.append(partition, 900)

    def drained(max_size: int) -> list[int]:
        return [batch.topic_partition.partition for batch in queues.drain(max_size=max_size)]

    assert drained(1 << 20) == [0, 1, 2]
    assert drained(2100) == [0, 1]
    assert drained(1) == [2]


def test_g20_only_partitions_that_a_broker_leads_are_drained_for_it() -> None:
    queues = Queues(TWO_NODES, linger_ms=0)
    queues.append(0)
    queues.append(1)
    assert queues.ready() == [1, 2]
    assert [batch.topic_partition.partition for batch in queues.drain(2)] == [1]


def test_g24_a_muted_partition_is_left_alone() -> None:
    queues = Queues(linger_ms=0)
    queues.append(0)
    partition = TopicPartition(TOPIC, 0)
    queues.accumulator.mute_partition(partition)
    assert queues.ready() == []
    assert queues.drain() == []
    queues.accumulator.unmute_partition(partition)
    assert len(queues.drain()) == 1


def test_g24_retries_are_queued_in_the_order_of_their_sequences() -> None:
    def batch(sequence: int) -> ProducerBatch:
        made = ProducerBatch(TopicPartition(TOPIC, 0), BATCH, 0.0, Compression())
        made.set_producer_state(1, 0, sequence, False)
        return made

    new = ProducerBatch(TopicPartition(TOPIC, 0), BATCH, 0.0, Compression())
    queue = deque([new])
    # Sequences begin again at 0 after 2**31 - 1.
    batches = {sequence: batch(sequence) for sequence in (2**31 - 5, 2**31 - 1, 3, 8)}
    for sequence in (3, 2**31 - 5, 8, 2**31 - 1):
        insert_in_sequence_order(queue, batches[sequence])
    assert list(queue) == [*batches.values(), new]


def test_g27_batches_past_their_delivery_timeout_are_removed() -> None:
    queues = Queues(delivery_timeout_ms=100)
    queues.append(0)
    queues.pass_ms(99)
    assert queues.accumulator.expired_batches(queues.now_ms) == []
    assert queues.accumulator.next_expiry_time_ms() == 100
    queues.pass_ms(1)
    assert len(queues.accumulator.expired_batches(queues.now_ms)) == 1
    assert queues.drain() == []


def test_g35_a_flush_waits_only_for_batches_incomplete_at_its_start() -> None:
    queues = Queues()
    first = queues.append(0)
    queues.accumulator.begin_flush()
    ended = threading.Event()

    def flush() -> None:
        queues.accumulator.await_flush_completion()
        ended.set()

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    wait_until(lambda: first.future[0][0]._event is not None, "the flush to wait")
    (batch,) = queues.drain()
    late = queues.append(0)
    assert not ended.is_set()
    batch.done(0, -1)
    queues.accumulator.deallocate(batch)
    assert ended.wait(deadline_s())
    assert not late.future.done()
    assert queues.pool.available_bytes == MEMORY - BATCH
    thread.join()


def test_g35_a_flush_with_a_timeout_ends() -> None:
    queues = Queues()
    queues.append(0)
    queues.accumulator.begin_flush()
    with pytest.raises(TimeoutError):
        queues.accumulator.await_flush_completion(0.0)
    assert queues.ready() == []


def test_g36_a_forced_close_fails_waiting_and_sent_batches() -> None:
    queues = Queues()
    futures: list[RecordFuture] = [queues.append(0).future]
    queues.drain()
    futures += [queues.append(0).future, queues.append(None).future]
    queues.accumulator.close()
    queues.accumulator.abort_incomplete_batches()
    for future in futures:
        assert isinstance(future.exception(0), ProducerClosed)
    with pytest.raises(ProducerClosed):
        queues.append(0)
    assert queues.accumulator.lanes == {}
    assert queues.pool.available_bytes == MEMORY


def test_unsent_batches_can_be_failed_alone() -> None:
    queues = Queues()
    sent = queues.append(0).future
    (batch,) = queues.drain()
    waits = queues.append(0).future
    queues.accumulator.abort_undrained_batches(TransactionAborted("aborted"))
    assert isinstance(waits.exception(0), TransactionAborted)
    assert not sent.done()
    batch.complete_exceptionally(KafkaError("x"))


def test_g26_a_batch_that_is_too_large_for_the_broker_is_cut_until_it_fits() -> None:
    queues = Queues()
    futures = [queues.append(0, 50).future for _ in range(8)]
    (batch,) = queues.drain()
    assert queues.accumulator.split_and_reenqueue(batch) >= 2
    queues.accumulator.deallocate(batch)
    offset = 0
    while batches := queues.drain():
        for part in batches:
            part.done(offset, -1)
            offset += part.record_count
            queues.accumulator.deallocate(part)
        queues.accumulator.begin_flush()
    assert [future.result(0).offset for future in futures] == list(range(8))
    assert queues.pool.available_bytes == MEMORY


def test_compressed_batches_are_filled_to_their_expected_size() -> None:
    queues = Queues(compression_type="gzip")
    counts = []
    for _ in range(60):
        before = queues.append(0, 100).future[0][0]
        while queues.append(0, 100).future[0][0] is before:
            pass
        (batch,) = queues.drain()
        counts.append(batch.record_count)
        assert batch.estimated_size_bytes <= BATCH
        batch.done(0, -1)
        queues.accumulator.deallocate(batch)
    assert counts[-1] > counts[0]


def test_a_batch_size_of_0_gives_each_record_its_own_batch() -> None:
    queues = Queues(batch_size=0)
    assert [queues.append(0).new_batch_created for _ in range(3)] == [True] * 3
