"""The ends of sequences and epochs, and producers that a broker has forgotten: on the simulated clock.

The storms of `test_idempotent` and `test_transactional` reach these ends as well.
"""

from __future__ import annotations

import pytest

from rotunda.broker.client.errors import InvalidRecord, KafkaError, UnknownProducerId
from rotunda.broker.client.producer.transactions.batch_sequences import LAST_EPOCH
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.produce import PartResponse
from tests.client.simulation.cluster import ClusterConfig
from tests.client.simulation.rig import Rig, Steps
from tests.client.simulation.test_idempotent import check_all_ended, check_once_and_in_order
from tests.client.simulation.test_sender import calm_rig, errors_of
from tests.client.simulation.test_transactional import ended


def sending(rig: Rig, count: int) -> Steps:
    """Send records, each unlike all others."""
    for _ in range(count):
        yield from rig.send(0, b"%d" % len(rig.records))


def settled(rig: Rig) -> Steps:
    """Wait until every record has its outcome."""
    while any(each.settled_ms is None for each in rig.records):
        yield 1.0


def identity(rig: Rig) -> tuple[int, int]:
    assert rig.transactions is not None
    return rig.transactions.producer_id_and_epoch


def forgetting(rig: Rig, *, start: int | None = None) -> None:
    """Delete the producer state of the only partition, as Kafka did before 2.5 when retention had deleted its records.

    `start` is the log start offset that it returns then; by default all records are deleted.
    """
    (log,) = rig.cluster.logs.values()
    log.producers.clear()
    log.start = log.end if start is None else start
    log.answer_to_unknown = ErrorCode.UNKNOWN_PRODUCER_ID


def test_g24_a_producer_without_records_in_the_log_begins_again() -> None:
    """UNKNOWN_PRODUCER_ID: an idempotent producer numbers batches in flight from 0, with its next epoch."""
    rig = calm_rig(linger_ms=0, batch_size=100)

    def application() -> Steps:
        yield from sending(rig, 10)
        yield from settled(rig)
        forgetting(rig)
        yield from sending(rig, 30)

    rig.run(application())
    check_all_ended(rig)
    assert errors_of(rig) == [None] * 40
    (log,) = rig.cluster.logs.values()
    assert log.values() == [each.value for each in rig.records]
    assert identity(rig) == (1001, 1)


def test_g24_a_partition_that_has_moved_is_asked_again() -> None:
    """UNKNOWN_PRODUCER_ID without a first offset: nothing is renumbered."""
    rig = calm_rig()

    def application() -> Steps:
        yield from sending(rig, 10)
        yield from settled(rig)
        (log,) = rig.cluster.logs.values()
        known = dict(log.producers)
        forgetting(rig, start=-1)
        rig.clock.at(300, lambda: log.producers.update(known))
        yield from sending(rig, 10)

    rig.run(application())
    assert errors_of(rig) == [None] * 20
    assert identity(rig) == (1001, 0)
    check_once_and_in_order(rig)


@pytest.mark.parametrize("is_lost", [False, True])
def test_g24_a_transaction_continues_only_if_nothing_acknowledged_is_lost(is_lost: bool) -> None:
    """UNKNOWN_PRODUCER_ID in a transaction: it continues after retention, and not where records should be there."""
    rig = calm_rig(transactional_id="transfers")
    failed: list[KafkaError] = []

    def application() -> Steps:
        manager = rig.transactions
        assert manager is not None
        yield from ended(manager.initialize_transactions())
        manager.begin_transaction()
        yield from sending(rig, 10)
        yield from settled(rig)
        forgetting(rig, start=0 if is_lost else None)
        yield from sending(rig, 10)
        try:
            yield from ended(manager.begin_commit())
        except KafkaError as error:
            failed.append(error)
            yield from ended(manager.begin_abort())
        manager.begin_transaction()
        yield from sending(rig, 5)
        yield from ended(manager.begin_commit())

    rig.run(application())
    rig.let_arrive_what_is_late()
    (log,) = rig.cluster.logs.values()
    assert [type(each) for each in failed] == ([UnknownProducerId] if is_lost else [])
    committed = rig.records[20:] if is_lost else rig.records
    assert log.values(committed_only=True) == [each.value for each in committed]


def test_g24_after_the_last_epoch_there_is_another_producer_id() -> None:
    """An idempotent producer with epoch 32767 requests a new id, and waiting batches are renumbered."""
    rig = calm_rig()
    rig.cluster.first_epoch = LAST_EPOCH

    def application() -> Steps:
        yield from sending(rig, 5)
        yield from settled(rig)
        rig.cluster.first_epoch = 0
        rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.INVALID_RECORD, -1)
        yield from sending(rig, 1)
        yield from settled(rig)
        rig.cluster.outcome = None
        yield from sending(rig, 5)

    rig.run(application())
    assert errors_of(rig) == [None] * 5 + [InvalidRecord] + [None] * 5
    assert identity(rig) == (1002, 0)
    check_once_and_in_order(rig)


@pytest.mark.parametrize("version", [0, 2])
def test_g24_a_transactional_producer_uses_the_id_that_follows_the_last_epoch(version: int) -> None:
    """KIP-890: with protocol 2 the end of a transaction brings the new id; before, the next InitProducerId."""
    rig = calm_rig(ClusterConfig(nodes=1, partitions=1, transaction_version=version), transactional_id="transfers")
    rig.cluster.coordinator.first_epoch = LAST_EPOCH - 3
    manager = rig.transactions
    assert manager is not None

    def application() -> Steps:
        yield from ended(manager.initialize_transactions())
        for _ in range(5):
            manager.begin_transaction()
            yield from sending(rig, 3)
            yield from ended(manager.begin_commit())

    rig.run(application())
    rig.let_arrive_what_is_late()
    (log,) = rig.cluster.logs.values()
    assert log.values(committed_only=True) == [each.value for each in rig.records]
    assert identity(rig)[0] == (1002 if version == 2 else 1001)


def test_g24_sequences_begin_again_at_0() -> None:
    """After 2**31 - 1 follows 0, in the midst of a batch and with batches in flight on both sides of it.

    Batches that were appended, with an error as response again and again, stay among those that the broker remembers.
    """
    rig = calm_rig(linger_ms=0, batch_size=100)
    rig.cluster.append_errors = 0.3

    def application() -> Steps:
        yield from sending(rig, 1)
        yield from settled(rig)
        rig.near_the_last_sequence(0, 20)
        yield from sending(rig, 60)

    rig.run(application())
    assert errors_of(rig) == [None] * 61
    check_once_and_in_order(rig)
    (log,) = rig.cluster.logs.values()
    (entry,) = log.producers.values()
    assert entry.batches[-1][1] == 39


def test_g24_the_first_batch_of_a_partition_is_sent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is not ready rejects it, and accepts any next batch from a producer without state."""
    rig = calm_rig(linger_ms=0, batch_size=100)
    rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    response = rig.cluster.response

    def reject_the_first(node_id: int, wire: bytes) -> bytes | None:
        responded = response(node_id, wire)
        if rig.cluster.produced:
            rig.cluster.outcome = None
        return responded

    monkeypatch.setattr(rig.cluster, "response", reject_the_first)
    rig.run(sending(rig, 30))
    check_all_ended(rig)
    assert errors_of(rig) == [None] * 30
    (log,) = rig.cluster.logs.values()
    assert log.values() == [each.value for each in rig.records]
