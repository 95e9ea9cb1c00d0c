"""A transactional producer in storms: committed records are there whole, once and in order; aborted ones are not."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from rotunda.broker.client.errors import KafkaError
from rotunda.broker.client.producer.transactions.transaction_state import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    State,
    TransactionalRequestResult,
)
from rotunda.broker.client.topic_partition import TopicPartition
from tests.client.simulation.rig import Rig, Sent, Steps
from tests.client.simulation.test_idempotent import SEED, STORMS, check_all_ended, random_rig

GROUP = "readers"
PLACE = TopicPartition("sources", 0)


@dataclass
class Attempt:
    """A transaction as its application sees it. `committed` is None while it is open, or was when all ended."""

    number: int
    records: list[Sent] = field(default_factory=list)
    offset: int | None = None
    committed: bool | None = None


def ended(result: TransactionalRequestResult) -> Steps:
    """Wait for an operation. Raises its error."""
    yield result
    result.acknowledge()


def transact(rig: Rig, attempt: Attempt, commits: bool) -> Generator[float | TransactionalRequestResult, None, None]:
    """Write a transaction and end it. Raises KafkaError."""
    manager = rig.transactions
    assert manager is not None
    manager.begin_transaction()
    for index in range(rig.chance.choice((0, 1, 5, 30))):
        partition = rig.chance.randrange(rig.cluster.config.partitions)
        attempt.records.append((yield from rig.send(partition, b"%d:%d" % (attempt.number, index))))
        if rig.chance.random() < 0.2:
            yield rig.chance.choice((1.0, 20.0, 300.0))
    if rig.chance.random() < 0.3:
        offsets = {PLACE: OffsetAndMetadata(attempt.number)}
        yield from ended(manager.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(GROUP)))
        attempt.offset = attempt.number
    yield from ended(manager.begin_commit() if commits else manager.begin_abort())
    attempt.committed = commits


def transacting(rig: Rig, attempts: list[Attempt], count: int) -> Steps:
    """Write transactions one after the other; one that fails is aborted. The last may be left open."""
    manager = rig.transactions
    assert manager is not None
    yield from ended(manager.initialize_transactions())
    for number in range(count):
        attempt = Attempt(number)
        attempts.append(attempt)
        if number == count - 1 and rig.chance.random() < 0.5:
            manager.begin_transaction()
            attempt.records.append((yield from rig.send(0, b"%d:0" % number)))
            return
        try:
            yield from transact(rig, attempt, commits=rig.chance.random() < 0.7)
        except KafkaError:
            if not manager.has_abortable_error:
                raise
            yield from ended(manager.begin_abort())
            attempt.committed = False


def check_atomic(rig: Rig, attempts: list[Attempt]) -> None:
    """Check that committed readers see all committed records and no others."""
    seen = [value for log in rig.cluster.logs.values() for value in log.values(committed_only=True)]
    assert len(seen) == len(set(seen))
    for attempt in attempts:
        own = {record.value for record in attempt.records}
        if attempt.committed:
            assert all(record.error is None for record in attempt.records)
            assert own <= set(seen), attempt.number
        else:
            assert not own & set(seen), attempt.number
    order = {record.value: index for index, record in enumerate(rig.records)}
    for partition, log in rig.cluster.logs.items():
        places = [order[value] for value in log.values(committed_only=True)]
        assert places == sorted(places), partition
        assert not log.has_open_transaction, partition
    committed = [each.offset for each in attempts if each.committed and each.offset is not None]
    assert rig.cluster.coordinator.offsets.get((GROUP, PLACE)) == (committed[-1] if committed else None)


@pytest.mark.parametrize("storm", range(STORMS))
def test_transactions_are_whole_or_not_at_all_in_any_storm(storm: int) -> None:
    """`G24`, `G36`: both transaction protocols; a transaction that is open when the producer is closed is aborted."""
    seed = SEED + storm
    print(f"seed {seed}")
    rig = random_rig(random.Random(seed), "transfers")
    rig.disturb(until_ms=rig.chance.choice((2000, 10_000, 40_000)))
    attempts: list[Attempt] = []
    rig.run(transacting(rig, attempts, 25))
    rig.let_arrive_what_is_late()
    assert len(attempts) == 25
    assert rig.transactions is not None
    assert rig.transactions.state is State.READY
    check_all_ended(rig)
    check_atomic(rig, attempts)
