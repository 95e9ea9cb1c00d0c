"""The sender's reaction to each response, one at a time, on the simulated clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rotunda.broker.client.errors import (
    DeliveryTimeout,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TopicAuthorizationFailed,
)
from rotunda.broker.client.producer.transactions.transaction_state import State
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.produce import PartResponse
from tests.client.simulation.cluster import ClusterConfig
from tests.client.simulation.rig import Rig, RigConfig, Steps
from tests.client.simulation.test_idempotent import check_all_ended
from tests.client.simulation.test_transactional import Attempt, ended

SEED = random.randrange(1 << 32)


def calm_rig(cluster: ClusterConfig | None = None, **settings: object) -> Rig:
    print(f"seed {SEED}")
    return Rig(random.Random(SEED), RigConfig(**settings), cluster or ClusterConfig(nodes=1, partitions=1))


def sending(rig: Rig, count: int, *, pause_ms: float = 0.0, partition: int | None = None) -> Steps:
    for index in range(count):
        chosen = index % rig.cluster.config.partitions if partition is None else partition
        yield from rig.send(chosen, b"%d:%d" % (chosen, index))
        if pause_ms:
            yield pause_ms


def until(rig: Rig, condition: Callable[[], bool]) -> None:
    """Run turns until a condition holds."""
    deadline_ms = rig.clock.now_ms + 120_000
    while not condition():
        rig.sender.run_once()
        assert rig.clock.now_ms < deadline_ms


def errors_of(rig: Rig) -> list[type[KafkaError] | None]:
    return [None if each.error is None else type(each.error) for each in rig.records]


def test_g21_one_request_a_node_has_all_of_its_partitions() -> None:
    """`G21`: six partitions on three nodes are three requests; nothing is sent before it has lingered."""
    rig = calm_rig(ClusterConfig(nodes=3, partitions=6), linger_ms=50, batch_size=4000)

    def application() -> Steps:
        yield from sending(rig, 1)
        until_ready = rig.records[0]
        while until_ready.settled_ms is None:
            yield 1.0
        rig.cluster.produced.clear()
        for node in range(3):  # each has a connection
            yield from rig.send(node, b"%d:first" % node)
        while any(each.settled_ms is None for each in rig.records):
            yield 1.0
        rig.cluster.produced.clear()
        start_ms = rig.clock.now_ms
        yield from sending(rig, 60)
        while any(each.settled_ms is None for each in rig.records):
            yield 1.0
        assert all(each.settled_ms - start_ms >= 50 for each in rig.records[-60:])

    rig.run(application())
    assert sorted(rig.cluster.produced) == [(0, 2), (1, 2), (2, 2)]


def test_g24_one_request_in_flight_keeps_the_order_without_sequences() -> None:
    """`G24`: a partition is muted between drain and response; a lost batch is sent again before the following ones."""
    rig = calm_rig(enable_idempotence=False, max_in_flight_requests_per_connection=1, linger_ms=0, batch_size=100)
    rig.cluster.append_errors = 0.3
    rig.run(sending(rig, 200, pause_ms=1))
    check_all_ended(rig)
    order = {record.value: index for index, record in enumerate(rig.records)}
    (log,) = rig.cluster.logs.values()
    places = [order[value] for value in dict.fromkeys(log.values())]
    assert places == list(range(200))


def test_g26_a_duplicate_is_a_success_without_an_offset() -> None:
    """`G26`: the broker has had it for so long that it has no offset for it any more."""
    rig = calm_rig()
    rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 77)
    rig.run(sending(rig, 3))
    assert [(each.error, each.offset) for each in rig.records] == [(None, -1)] * 3
    assert rig.metrics.failed == 0


def test_g26_records_fail_by_their_own_errors() -> None:
    """`G26`: KIP-467: the invalid record has the broker's message, the others refer to it."""
    rig = calm_rig(linger_ms=50)
    errors = ((1, "in the future"),)
    rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.INVALID_TIMESTAMP, -1, -1, -1, "bad batch", errors)
    rig.run(sending(rig, 3))
    assert errors_of(rig) == [KafkaError, InvalidTimestamp, KafkaError]
    assert "in the future" in str(rig.records[1].error)
    assert "other records" in str(rig.records[0].error)
    assert rig.metrics.failed == 3


def test_g26_several_records_that_are_named_are_invalid_records() -> None:
    rig = calm_rig(linger_ms=50)
    errors = ((0, "too old"), (1, None))
    rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.INVALID_RECORD, -1, -1, -1, "bad batch", errors)
    rig.run(sending(rig, 2))
    assert errors_of(rig) == [InvalidRecord, InvalidRecord]
    assert [str(each.error) for each in rig.records] == ["too old", "bad batch"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailed),
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge),
        (ErrorCode.INVALID_RECORD, InvalidRecord),
    ],
)
def test_g26_errors_that_are_not_retriable_fail_at_once(code: ErrorCode, error: type[KafkaError]) -> None:
    rig = calm_rig()
    rig.cluster.outcome = PartResponse(None, None, 0, code, -1)
    rig.run(sending(rig, 1))
    assert errors_of(rig) == [error]
    assert rig.metrics.retried == 0


def test_g26_retries_are_counted() -> None:
    """`G26`: with two retries the third error is final."""
    rig = calm_rig(retries=2, enable_idempotence=False)
    rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    rig.run(sending(rig, 1))
    assert len(rig.cluster.produced) == 3
    assert rig.metrics.retried == 2
    assert [each.error is not None and each.error.kafka_name for each in rig.records] == ["NOT_ENOUGH_REPLICAS"]


def test_g26_without_acks_a_record_is_done_when_it_is_written() -> None:
    rig = calm_rig(acks="0", enable_idempotence=False)
    rig.run(sending(rig, 5))
    assert [(each.error, each.offset) for each in rig.records] == [(None, -1)] * 5


def test_g26_after_a_rejected_batch_the_next_one_is_accepted() -> None:
    """`G26`: an idempotent producer uses the next epoch, so that the sequence of the rejected batch leaves no gap."""
    rig = calm_rig()

    def application() -> Steps:
        yield from rig.send(0, b"good")
        yield 500.0
        rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.INVALID_RECORD, -1)
        yield from rig.send(0, b"bad")
        yield 500.0
        rig.cluster.outcome = None
        yield from rig.send(0, b"after")

    rig.run(application())
    assert errors_of(rig) == [None, InvalidRecord, None]
    (log,) = rig.cluster.logs.values()
    assert log.values() == [b"good", b"after"]


def test_g27_nothing_is_reached_and_every_record_expires_in_time() -> None:
    """`G27`: also while the producer has no producer id yet."""
    rig = calm_rig(delivery_timeout_ms=3000)

    def application() -> Steps:
        yield from rig.send(0, b"first")
        rig.cluster.is_up[0] = False
        rig.network.cut_all()
        rig.clock.at(10_000, rig.calm)
        yield from sending(rig, 20, pause_ms=50)

    rig.run(application())
    check_all_ended(rig)
    assert set(errors_of(rig)) <= {None, DeliveryTimeout}
    assert DeliveryTimeout in errors_of(rig)


def test_g33_a_throttle_time_keeps_requests_from_the_broker() -> None:
    """`G33`: requests wait meanwhile, and are sent when it is over; the time is in the metrics."""
    rig = calm_rig(linger_ms=0)

    def application() -> Steps:
        yield from rig.send(0, b"before")
        yield 1000.0
        rig.cluster.throttle_ms = 700
        yield from rig.send(0, b"throttled")
        while rig.records[-1].settled_ms is None:
            yield 1.0
        rig.cluster.throttle_ms = 0
        yield from rig.send(0, b"after")

    rig.run(application())
    _, throttled, after = rig.records
    assert throttled.settled_ms is not None
    assert after.settled_ms is not None
    assert 650 <= after.settled_ms - throttled.settled_ms <= 1000
    assert rig.metrics.throttled_ms == [0, 700, 0]


@pytest.mark.parametrize("transactional_id", [None, "transfers"])
def test_g36_a_forced_close_ends_everything(transactional_id: str | None) -> None:
    """`G36`: queued and in flight, records and operations of a transaction alike."""
    rig = calm_rig(transactional_id=transactional_id)
    operations = []

    def application() -> Steps:
        manager = rig.transactions
        assert manager is not None
        if transactional_id is not None:
            yield from ended(manager.initialize_transactions())
            manager.begin_transaction()
        yield from sending(rig, 20)
        yield 500.0
        rig.cluster.is_up[0] = False
        yield from sending(rig, 20)
        if transactional_id is not None:
            operations.append(manager.begin_commit())
        yield 500.0
        rig.sender.force_close()

    rig.run(application(), closes=False)
    check_all_ended(rig)
    assert errors_of(rig)[:20] == [None] * 20
    assert set(errors_of(rig)[20:]) == {ProducerClosed}
    assert all(isinstance(each.error, ProducerClosed) for each in operations)


@pytest.mark.parametrize("version", [1, 2])
def test_another_producer_of_the_same_transactional_id_fences_this_one(version: int) -> None:
    """The first one's records are aborted; it can only be closed, and every call reports that."""
    cluster = ClusterConfig(nodes=1, partitions=1, transaction_version=version, newest_produce=13)
    first = calm_rig(cluster, transactional_id="transfers")
    attempt = Attempt(0)
    manager = first.transactions
    assert manager is not None

    def begun() -> Steps:
        yield from ended(manager.initialize_transactions())
        manager.begin_transaction()
        attempt.records.append((yield from first.send(0, b"of the first")))

    first.start(begun(), closes=False)
    until(first, lambda: bool(attempt.records) and attempt.records[0].settled_ms is not None)
    second = Rig(
        random.Random(SEED + 1), RigConfig(transactional_id="transfers"), cluster, (first.clock, first.cluster)
    )

    def taken_over() -> Steps:
        assert second.transactions is not None
        yield from ended(second.transactions.initialize_transactions())
        second.transactions.begin_transaction()
        yield from second.send(0, b"of the second")
        yield from ended(second.transactions.begin_commit())

    second.run(taken_over())
    results = [manager.begin_commit()]
    first.run(iter(()))
    with pytest.raises(ProducerFenced):
        results[0].acknowledge()
    assert manager.state is State.FATAL_ERROR
    with pytest.raises(ProducerFenced, match="close it"):
        manager.begin_transaction()
    first.let_arrive_what_is_late()
    (log,) = first.cluster.logs.values()
    assert log.values(committed_only=True) == [b"of the second"]
    assert not log.has_open_transaction


def test_a_record_that_is_rejected_fails_the_commit_and_the_transaction_can_be_aborted() -> None:
    """The commit reports the cause; after an abort the producer continues."""
    rig = calm_rig(transactional_id="transfers")
    seen: list[KafkaError] = []

    def application() -> Steps:
        manager = rig.transactions
        assert manager is not None
        yield from ended(manager.initialize_transactions())
        manager.begin_transaction()
        rig.cluster.outcome = PartResponse(None, None, 0, ErrorCode.INVALID_RECORD, -1)
        yield from rig.send(0, b"bad")
        try:
            yield from ended(manager.begin_commit())
        except KafkaError as error:
            seen.append(error)
        rig.cluster.outcome = None
        yield from ended(manager.begin_abort())
        manager.begin_transaction()
        yield from rig.send(0, b"good")
        yield from ended(manager.begin_commit())

    rig.run(application())
    rig.let_arrive_what_is_late()
    assert [type(each) for each in seen] == [InvalidRecord]
    (log,) = rig.cluster.logs.values()
    assert log.values(committed_only=True) == [b"good"]
