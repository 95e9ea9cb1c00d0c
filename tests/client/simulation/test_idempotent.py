"""An idempotent producer in storms: each record is in the log once and in order, whatever the network does."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.client.producer.transactions.batch_sequences import LAST_EPOCH
from tests.client.simulation.cluster import ClusterConfig
from tests.client.simulation.rig import Rig, RigConfig, Steps

SEED = random.randrange(1 << 32)
STORMS = 20
SLACK_MS = 100
WRAPS_AFTER = 20
#: No request is in flight that long: a late batch must not meet sequences that were used twice.
QUIET_MS = 12_000.0


def random_rig(chance: random.Random, transactional_id: str | None = None) -> Rig:
    config = RigConfig(
        transactional_id=transactional_id,
        max_in_flight_requests_per_connection=chance.choice((1, 2, 5, 5)),
        linger_ms=chance.choice((0, 5, 50)),
        batch_size=chance.choice((100, 400, 4000)),
        buffer_memory=chance.choice((8_000, 100_000)),
        request_timeout_ms=chance.choice((300, 2000)),
        delivery_timeout_ms=chance.choice((2500, 8000, 60_000)),
    )
    version = chance.choice((0, 2)) if transactional_id is not None else 2
    newest = chance.choice((12, 13)) if version == 2 and transactional_id is not None else chance.randint(3, 13)
    largest = chance.choice((1 << 20, 1 << 20, 300))
    nodes = chance.choice((1, 3))
    rig = Rig(chance, config, ClusterConfig(nodes, chance.randint(1, 4), version, newest, largest))
    rig.cluster.first_epoch = chance.choice((0, LAST_EPOCH))
    rig.cluster.coordinator.first_epoch = chance.choice((0, LAST_EPOCH - 5))
    return rig


def sending(rig: Rig, count: int) -> Steps:
    """Send records in bursts, numbered by partition; sequences may reach their end."""
    partitions = rig.cluster.config.partitions
    numbers = dict.fromkeys(range(partitions), 0)
    for index in range(count):
        if index == WRAPS_AFTER and rig.chance.random() < 0.5:
            yield QUIET_MS
            for partition in range(partitions):
                rig.near_the_last_sequence(partition, rig.chance.randint(1, 40))
        partition = rig.chance.randrange(partitions)
        numbers[partition] += 1
        yield from rig.send(partition, b"%d:%d" % (partition, numbers[partition]))
        if rig.chance.random() < 0.2:
            yield rig.chance.choice((1.0, 20.0, 300.0))


def check_all_ended(rig: Rig) -> None:
    """Check that every record has one outcome, in time."""
    limit_ms = rig.config.delivery_timeout_ms + SLACK_MS
    for record in rig.records:
        assert record.times_settled == 1, record
        assert record.settled_ms is not None
        assert record.settled_ms - record.appended_ms <= limit_ms, record
        assert record.future is not None
        assert record.future.done()
    assert not rig.accumulator.has_incomplete()
    assert rig.accumulator.pool.available_bytes == rig.config.buffer_memory


def check_once_and_in_order(rig: Rig) -> None:
    """Check that each log has its records once and in order, and acknowledged ones at their offsets.

    Epochs fence the late batches of one producer id only. When a producer has got a new id because its epochs have
    ended, a batch of an earlier one may still arrive, out of order: its records have failed.
    """
    for partition, log in rig.cluster.logs.items():
        own = [record for record in rig.records if record.partition == partition.partition]
        order = {record.value: index for index, record in enumerate(own)}
        places: list[int] = []
        late: list[int] = []
        newest_id = -1
        for batch in log.batches:
            (late if batch.producer_id < newest_id else places).extend(order[value] for value in batch.values)
            newest_id = max(newest_id, batch.producer_id)
        assert places == sorted(places), partition
        written = set(log.values())
        assert len(written) == len(log.values()), partition
        assert all(own[place].error is not None for place in late), partition
        for record in own:
            if record.error is None:
                assert record.value in written, record
                assert record.timestamp_ms == record.sent_ms, record
                if record.offset >= 0:
                    assert log.value_at(record.offset) == record.value, record


@pytest.mark.parametrize("storm", range(STORMS))
def test_each_record_once_and_in_order_in_any_storm(storm: int) -> None:
    """`G24`, `G26`, `G27`: five in flight, cuts, losses, late arrivals, new leaders, batches that are split.

    Epochs reach their end, and sequences.
    """
    seed = SEED + storm
    print(f"seed {seed}")
    rig = random_rig(random.Random(seed))
    rig.disturb(until_ms=rig.chance.choice((2000, 10_000, 40_000)))
    rig.run(sending(rig, 300))
    check_all_ended(rig)
    check_once_and_in_order(rig)
    assert rig.transactions is not None
    assert not rig.transactions.has_error
