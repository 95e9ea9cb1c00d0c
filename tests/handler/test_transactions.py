"""Transactions step by step: conditions of Produce, endings, and descriptions for admins (KIP-98, 664, 890)."""

from __future__ import annotations

from itertools import count

import pytest

from rotunda.broker.metadata.features import TRANSACTION_VERSION, FeatureUpdate, UpgradeType
from rotunda.broker.partitions.produce.verification import NEEDS_VERIFICATION, VerificationGuards
from rotunda.broker.protocol.routing import TRANSACTION_TOPIC
from rotunda.broker.records.record_batch import BatchHeader, read_header
from tests.support.record_batches import record_batch
from tests.support.results import present
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.transactional import (
    TRANSACTIONAL,
    TransactionalProducer,
    add_errors,
    answer_of,
    committed_values,
    offset_errors,
    produce_errors,
    send,
    settled,
    started,
)

ADD_PARTITIONS, WRITE_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 24, 27, 61, 65, 66
ALL = [("topic", partition) for partition in range(4)]


def wait(broker: SteppedBroker, ms: int) -> None:
    """Advance the clock and run all processes."""
    for _ in range(ms // 100):
        broker.clock.advance_ns(100_000_000)
        broker.settle(3)


# ---- Produce --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "error"), [(7, 48), (10, 48), (11, 120)])
def test_records_for_a_partition_that_was_not_added_are_rejected(
    broker: SteppedBroker, version: int, error: int
) -> None:
    """INVALID_TXN_STATE, or TRANSACTION_ABORTABLE in newer versions; from version 12 on Produce adds them (KIP-890)."""
    producer = started(broker, newest=False)
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")], version))) == [error]
    assert broker.end("topic", 0) == 0
    assert add_errors(settled(broker, producer.add(ALL[:1]))) == [0]
    producer.sequences.clear()
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")], version))) == [0]


def test_transactional_records_need_a_transactional_id(broker: SteppedBroker) -> None:
    producer = started(broker)
    batch = record_batch([b"a"], producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, attributes=0x10)
    client = broker.client()
    plain = [client.produce([batch_for(0, b"b")]) for _ in range(2)]
    broker.settle()
    refused = [client.produce([("topic", partition, batch)]) for partition in (0, 1)]
    broker.settle()
    assert [produced(sent)[0][0] for sent in plain] == [0, 0]
    assert [produced(sent)[0][0] for sent in refused] == [53, 53]


def test_plain_records_of_a_producer_in_a_transaction_are_rejected(broker: SteppedBroker) -> None:
    producer = started(broker)
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")]))) == [0]
    batch = record_batch([b"b"], producer_id=producer.producer_id, producer_epoch=0, base_sequence=1)
    assert produced(settled(broker, broker.client().produce([("topic", 0, batch)])))[0][0] == 48


@pytest.mark.parametrize("newest", [False, True])
def test_an_unknown_producer_and_a_fenced_one_are_rejected(broker: SteppedBroker, newest: bool) -> None:
    """INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH."""
    producer = started(broker, newest=newest)
    stranger = TransactionalProducer(broker, "id", newest=newest)
    stranger.producer_id, stranger.epoch = producer.producer_id + 77, 0
    assert produce_errors(settled(broker, stranger.produce([("topic", 0, b"a")]))) == [49]
    started(broker, newest=newest)
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")]))) == [47]


@pytest.mark.parametrize("newest", [False, True])
def test_a_log_that_knows_a_later_epoch_rejects_before_a_coordinator_is_asked(
    broker: SteppedBroker, newest: bool
) -> None:
    """INVALID_PRODUCER_EPOCH also with a foreign transactional id; a log without the later epoch does not return it."""
    zombie, producer = started(broker, newest=newest), started(broker, newest=newest)
    if not newest:
        assert add_errors(settled(broker, producer.add([("topic", 0)]))) == [0]
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")]))) == [0]
    assert producer.take(settled(broker, producer.end(commit=True))) == 0
    zombie.transactional_id = "another"
    assert produce_errors(settled(broker, zombie.produce([("topic", 0, b"z"), ("topic", 1, b"z")]))) == [47, 49]


def test_a_fenced_producer_commits_no_offsets_under_another_id(broker: SteppedBroker) -> None:
    zombie, producer = started(broker), started(broker)
    for epoch_is_known in (False, True):
        zombie.transactional_id = "another"
        error = 47 if epoch_is_known else 49
        assert offset_errors(settled(broker, zombie.commit_offset("group", "topic", 1))) == [error]
        assert offset_errors(settled(broker, producer.commit_offset("group", "topic", 1))) == [0]


def test_a_producer_continues_as_it_began_after_a_feature_downgrade(broker: SteppedBroker) -> None:
    """KIP-890: it has read transaction.version once, and relies on the meaning of its request versions."""
    producer = started(broker)
    update = FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.UNSAFE_DOWNGRADE)
    broker.controller.update_features([update], validate_only=False)
    broker.announce()
    for value in (b"a", b"b"):
        before = producer.epoch
        assert produce_errors(settled(broker, producer.produce([("topic", 0, value)]))) == [0]
        assert producer.take(settled(broker, producer.end(commit=True))) == 0
        assert producer.epoch == before + 1
    assert committed_values(broker, "topic", 0) == [b"a", b"b"]


def test_requests_in_flight_keep_their_order_while_the_first_is_verified(broker: SteppedBroker) -> None:
    """Five requests before the first response, to a partition whose owner must verify, and to forwarded ones."""
    producer = started(broker)
    sent = [producer.produce([("topic", p, b"%d" % n) for p in range(4)]) for n in range(5)]
    broker.settle()
    assert [produce_errors(each) for each in sent] == [[0] * 4] * 5
    assert producer.take(settled(broker, producer.end(commit=True))) == 0
    for partition in range(4):
        assert committed_values(broker, "topic", partition) == [b"%d" % n for n in range(5)]


def test_a_guard_ends_with_the_transaction() -> None:
    """The coordinator's verification before the marker is invalid after it (KIP-890)."""
    guards = VerificationGuards(iter(range(100, 200)))
    log = NeverOngoing()
    first = header(sequence=5)
    assert guards.validate(1, log, first, 11, 1) == (NEEDS_VERIFICATION, 100)
    assert guards.validate(1, log, first, 11, 100) == (0, -1)
    guards.forget(1, 7)
    assert guards.validate(1, log, first, 11, 100) == (NEEDS_VERIFICATION, 101)
    assert guards.validate(2, log, first, 11, 101) == (NEEDS_VERIFICATION, 102)


def test_producers_of_very_many_partitions_do_not_drop_each_others_guards() -> None:
    """All get their guards before the first returns with its own, as with a coordinator's responses."""
    guards = VerificationGuards(count(2))
    log = NeverOngoing()
    headers = [header(sequence=0)._replace(producer_id=producer_id) for producer_id in range(4)]
    told = [(row, first, guards.validate(row, log, first, 11, 1)[1]) for first in headers for row in range(9_900)]
    assert {guards.validate(row, log, first, 11, guard) for row, first, guard in told} == {(0, -1)}


def test_a_producer_that_a_log_does_not_know_begins_at_0() -> None:
    """KIP-890: every transaction has an epoch of its own by Produce 12, so its first batch has sequence 0."""
    guards = VerificationGuards(iter(range(100, 200)))
    log = NeverOngoing()
    guards.validate(1, log, header(sequence=5), 12, 1)
    assert guards.validate(1, log, header(sequence=5), 12, 100) == (45, -1)
    assert guards.validate(1, log, header(sequence=5), 11, 100) == (0, -1)
    log.known.add(7)
    assert guards.validate(1, log, header(sequence=5), 12, 100) == (0, -1)


def test_a_guard_admits_the_first_rejected_batch_first() -> None:
    """A log that does not know the producer would accept any sequence number as its first: error 45."""
    guards = VerificationGuards(iter(range(100, 200)))
    log = NeverOngoing()
    guards.validate(1, log, header(sequence=5), 11, 1)
    guards.validate(1, log, header(sequence=6), 11, 1)
    assert guards.validate(1, log, header(sequence=6), 11, 100) == (45, -1)
    assert guards.validate(1, log, header(sequence=5), 11, 100) == (0, -1)


def test_rejected_batches_of_a_fenced_producer_do_not_delay_its_successor() -> None:
    """Sequence numbers of another epoch are unrelated to batches in flight in this one."""
    guards = VerificationGuards(iter(range(100, 200)))
    log = NeverOngoing()
    assert guards.validate(1, log, header(sequence=0), 11, 1) == (NEEDS_VERIFICATION, 100)
    assert guards.validate(1, log, header(sequence=3, epoch=1), 11, 1) == (NEEDS_VERIFICATION, 100)
    assert guards.validate(1, log, header(sequence=3, epoch=1), 11, 100) == (0, -1)
    assert guards.validate(1, log, header(sequence=4, epoch=1), 11, 100) == (45, -1)
    assert guards.validate(1, log, header(sequence=0), 11, 1) == (NEEDS_VERIFICATION, 100)
    assert guards.validate(1, log, header(sequence=3, epoch=1), 11, 100) == (0, -1)


def test_a_fenced_producer_that_tries_again_does_not_disturb_its_successor(broker: SteppedBroker) -> None:
    """The successor continues its sequence numbers in the next transaction; version 3 does not change its epoch."""
    zombie, producer = started(broker, newest=False), started(broker, newest=False)
    for value in (b"a", b"b"):
        assert add_errors(settled(broker, producer.add([("topic", 0)]))) == [0]
        assert produce_errors(settled(broker, producer.produce([("topic", 0, value)]))) == [0]
        assert producer.take(settled(broker, producer.end(commit=True))) == 0
        zombie.sequences.clear()
        assert produce_errors(settled(broker, zombie.produce([("topic", 0, b"z")]))) == [47]
    assert committed_values(broker, "topic", 0) == [b"a", b"b"]


class NeverOngoing:
    """A log in which no transaction is open."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id in self.known

    def ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        del producer_id, producer_epoch
        return False

    is_fenced = ongoing_transaction


def header(sequence: int, epoch: int = 0) -> BatchHeader:
    batch = record_batch([b"a"], producer_id=7, producer_epoch=epoch, base_sequence=sequence, attributes=TRANSACTIONAL)
    return present(read_header(batch))


# ---- requests to the coordinator ------------------------------------------------------------------------------------


def test_the_producer_continues_with_the_returned_epoch(broker: SteppedBroker) -> None:
    """KIP-360; a timeout of 0 or an id without its epoch is rejected."""
    producer = started(broker)
    assert producer.take(settled(broker, producer.init(again=True))) == 0
    assert producer.epoch == 1
    for timeout_ms, error in ((0, 50), (-1, 50), (900_001, 50), (900_000, 0)):
        assert producer.take(settled(broker, producer.init(timeout_ms=timeout_ms))) == error
    values = {"transactional_id": "id", "transaction_timeout_ms": 1, "producer_id": 5, "producer_epoch": -1}
    for who in ({}, {"transactional_id": None}, {"transactional_id": None, "producer_id": -1, "producer_epoch": 1}):
        assert int(answer_of(settled(broker, send(producer.client, 22, 4, values | who))).error_code) == 42
    values = {"transactional_id": "", "transaction_timeout_ms": 1}
    assert int(answer_of(settled(broker, send(broker.client(), 22, 4, values))).error_code) == 42


@pytest.mark.parametrize(("version", "error"), [(3, 47), (4, 90)])
def test_a_fenced_producer_gets_the_error_of_its_version(broker: SteppedBroker, version: int, error: int) -> None:
    started(broker)
    started(broker)
    producer_id = started(broker).producer_id
    values = {
        "transactional_id": "id",
        "transaction_timeout_ms": 1000,
        "producer_id": producer_id,
        "producer_epoch": 0,
    }
    assert int(answer_of(settled(broker, send(broker.client(), 22, version, values))).error_code) == error


def test_adding_a_partition_that_is_not_there_adds_none(broker: SteppedBroker) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED; internal topics are not writable for clients."""
    producer = started(broker, newest=False)
    assert add_errors(settled(broker, producer.add([("topic", 0), ("topic", 9)]))) == [55, 3]
    assert add_errors(settled(broker, producer.add([("topic", 0), (TRANSACTION_TOPIC, 0)]))) == [55, 29]
    assert int(answer_of(settled(broker, producer.end(commit=True))).error_code) == 48


@pytest.mark.parametrize("verify_only", [True, False])
def test_adding_for_many_producers_at_once(broker: SteppedBroker, verify_only: bool) -> None:
    """Versions 4 and 5, used between brokers: the coordinators of the ids are queried."""
    producers = [started(broker, f"id-{n}") for n in range(4)]
    values = [
        {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "verify_only": verify_only,
            "topics": [{"name": "topic", "partitions": [1]}],
        }
        for producer in producers
    ]
    answer = answer_of(settled(broker, send(broker.client(), ADD_PARTITIONS, 5, {"transactions": values})))
    assert [each.transactional_id for each in answer.results_by_transaction] == [f"id-{n}" for n in range(4)]
    codes = {
        int(part.partition_error_code)
        for each in answer.results_by_transaction
        for topic in each.topic_results
        for part in topic.results_by_partition
    }
    assert codes == ({120} if verify_only else {0})


def test_an_end_skips_partitions_of_deleted_topics(broker: SteppedBroker) -> None:
    broker.create("gone", 2)
    producer = started(broker)
    parts = [("gone", 0, b"a"), ("gone", 1, b"b"), ("topic", 0, b"c")]
    assert produce_errors(settled(broker, producer.produce(parts))) == [0, 0, 0]
    broker.delete("gone")
    assert producer.take(settled(broker, producer.end(commit=True))) == 0
    assert committed_values(broker, "topic", 0) == [b"c"]


def test_a_marker_that_cannot_be_written_is_tried_again(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is decided, and its response is sent after a delay; the next transaction waits for it."""
    producer = started(broker)
    assert produce_errors(settled(broker, producer.produce([(*place, b"a") for place in ALL]))) == [0] * 4
    logs = [
        log
        for target in (0, 1)
        for log in broker.parts(target).partitions.log_manager.logs.values()
        if log.name.topic == "topic"
    ]
    monkeypatch.setattr(type(logs[0]), "stage_marker", lambda *_, **__: (56, -1, -1))
    ended = producer.end(commit=True)
    broker.settle()
    assert not ended.answers
    wait(broker, 6000)
    assert producer.take(ended) == 0
    refused = settled(broker, producer.produce([("topic", 0, b"b")]))
    assert produce_errors(refused) == [51]
    assert committed_values(broker, "topic", 0) == []
    monkeypatch.undo()
    wait(broker, 200)
    assert [committed_values(broker, "topic", partition) for partition in range(4)] == [[b"a"]] * 4


def test_a_timed_out_transaction_is_aborted_though_nobody_asks(broker: SteppedBroker) -> None:
    producer = started(broker)
    assert producer.take(settled(broker, producer.init(timeout_ms=500))) == 0
    assert produce_errors(settled(broker, producer.produce([("topic", 0, b"a")]))) == [0]
    wait(broker, 3000)
    assert int(answer_of(settled(broker, producer.end(commit=True))).error_code) == 48
    row = broker.partition("topic", 0).row
    assert broker.context.partitions.read_stable(row) == broker.end("topic", 0) == 2
    assert committed_values(broker, "topic", 0) == []


@pytest.mark.parametrize(
    "broker",
    [
        {
            "transactional.id.expiration.ms": "10000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        }
    ],
    indirect=True,
)
def test_ids_that_are_not_used_expire(broker: SteppedBroker) -> None:
    """INVALID_PRODUCER_ID_MAPPING then; the id of an open transaction does not expire."""
    idle, busy = started(broker, "idle"), started(broker, "busy")
    assert produce_errors(settled(broker, busy.produce([("topic", 0, b"a")]))) == [0]
    broker.forget_clients()
    wait(broker, 12_000)
    idle.client, busy.client = broker.client(), broker.client()
    assert int(answer_of(settled(broker, idle.end(commit=False))).error_code) == 49
    assert listed(broker) == [("busy", "Ongoing")]
    for target in (0, 1):
        broker.replace(target)
    assert listed(broker) == [("busy", "Ongoing")]
    assert busy.take(settled(broker, busy.end(commit=True))) == 0


# ---- admins ---------------------------------------------------------------------------------------------------------


def listed(broker: SteppedBroker, version: int = 2, **filters: object) -> list[tuple[str, str]]:
    """Return (id, state) of the listed transactions."""
    values = {"state_filters": [], "producer_id_filters": [], **filters}
    answer = answer_of(settled(broker, send(broker.client(), LIST_TRANSACTIONS, version, values)))
    assert int(answer.error_code) == 0
    return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]


def test_transactions_are_listed_by_state_producer_duration_and_pattern(broker: SteppedBroker) -> None:
    producers = [started(broker, f"id-{n}") for n in range(6)]
    for producer in producers[:3]:
        settled(broker, producer.produce([("topic", 0, b"a")]))
    settled(broker, producers[2].end(commit=True))
    assert len(listed(broker, 0)) == 6
    assert listed(broker, state_filters=["Ongoing"]) == [("id-0", "Ongoing"), ("id-1", "Ongoing")]
    assert listed(broker, state_filters=["CompleteCommit", "Nonsense"]) == [("id-2", "CompleteCommit")]
    assert listed(broker, state_filters=["Nonsense"]) == []
    assert listed(broker, producer_id_filters=[producers[4].producer_id]) == [("id-4", "Empty")]
    assert listed(broker, state_filters=["Ongoing"], duration_filter=60_000) == []
    assert listed(broker, transactional_id_pattern="id-[15]") == [("id-1", "Ongoing"), ("id-5", "Empty")]
    values = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "("}
    assert int(answer_of(settled(broker, send(broker.client(), LIST_TRANSACTIONS, 2, values))).error_code) == 128


def test_transactions_of_all_coordinators_are_described(broker: SteppedBroker) -> None:
    """E22."""
    producers = [started(broker, f"id-{n}") for n in range(4)]
    settled(broker, producers[0].produce([("topic", 1, b"a"), ("topic", 3, b"b")]))
    ids = [producer.transactional_id for producer in producers]
    values = {"transactional_ids": [*ids, "unknown"]}
    answer = answer_of(settled(broker, send(broker.client(), DESCRIBE_TRANSACTIONS, 0, values)))
    states = answer.transaction_states
    assert [(each.transactional_id, int(each.error_code)) for each in states] == [
        *((i, 0) for i in ids),
        ("unknown", 105),
    ]
    assert [each.transaction_state for each in states[:4]] == ["Ongoing", "Empty", "Empty", "Empty"]
    assert [(topic.topic, topic.partitions) for topic in states[0].topics] == [("topic", (1, 3))]
    assert [each.producer_id for each in states[:4]] == [producer.producer_id for producer in producers]


def test_a_hanging_transaction_is_found_and_aborted(broker: SteppedBroker) -> None:
    """KIP-664, like kafka-transactions: describe the producers of a partition, then write the marker."""
    producer = started(broker)
    settled(broker, producer.produce([("topic", p, b"a") for p in range(4)]))
    values = {"topics": [{"name": "topic", "partition_indexes": [0, 1, 9]}]}
    answer = answer_of(settled(broker, send(broker.client(), DESCRIBE_PRODUCERS, 0, values)))
    parts = answer.topics[0].partitions
    assert [int(part.error_code) for part in parts] == [0, 0, 3]
    for part in parts[:2]:
        [active] = part.active_producers
        assert (active.producer_id, active.producer_epoch, active.last_sequence) == (producer.producer_id, 0, 0)
        assert active.current_txn_start_offset == 0
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": "topic", "partition_indexes": [0, 1, 9]}],
    }
    answer = answer_of(settled(broker, send(broker.client(), WRITE_MARKERS, 1, {"markers": [marker]})))
    assert [int(part.error_code) for part in answer.markers[0].topics[0].partitions] == [0, 0, 3]
    table = broker.context.partitions
    stable = [table.read_stable(broker.partition("topic", partition).row) for partition in range(4)]
    assert stable == [2, 2, 0, 0]
    assert committed_values(broker, "topic", 0) == []
