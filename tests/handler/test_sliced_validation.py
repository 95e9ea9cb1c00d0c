"""Batches with a long validation: validated in slices, and stored in their order, once, despite deaths.

The cost of a validation step is simulated: each advances the clock.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from rotunda.broker.log.validation import append_limits
from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.partitions.produce.sliced_validation import MOST_VALIDATED
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker, produced
from tests.support.wire_messages import PRODUCE, produce_body

MS = 1_000_000
STEP_MS = 3
UNKNOWN_SERVER_ERROR = -1

RECORDS_AT_ONCE = 1000
#: This many records are validated in fifteen steps.
RECORDS = 15 * RECORDS_AT_ONCE


class Validating:
    """The batches being validated."""

    def __init__(self, stepped: SteppedBroker, patch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.most = 0
        self.begun = 0
        self.fault: Exception | None = None
        admit = AppendLimits.admit

        def slow(*args: Any) -> Generator[None, None, Any]:
            steps = admit(*args)
            try:
                while True:
                    next(steps)
                    stepped.clock.advance_ns(STEP_MS * MS)
                    yield
                    fault, self.fault = self.fault, None
                    if fault is not None:
                        raise fault
            except StopIteration as stop:
                return stop.value

        def counted(*args: Any) -> Generator[None, None, Any]:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return (yield from slow(*args))
            finally:
                self.now -= 1

        patch.setattr(AppendLimits, "admit", counted)


@pytest.fixture
def validating(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> Validating:
    monkeypatch.setattr(append_limits, "RECORDS_AT_ONCE", RECORDS_AT_ONCE)
    stepped.create("compacted", 4, {"cleanup.policy": "compact"})
    stepped.create("packed", 4, {"compression.type": "uncompressed"})
    return Validating(stepped, monkeypatch)


def long_batch(value: object, **fields: Any) -> bytes:
    """Return a batch of many records, with a unique last value."""
    values = [b"x" * (1 + number % 2) for number in range(RECORDS - 1)] + [str(value).encode()]
    return record_batch(values, keys=[b"k"] * RECORDS, **fields)


def short_batch(value: object, **fields: Any) -> bytes:
    return record_batch([str(value).encode()], keys=[b"k"], **fields)


def last_values(stepped: SteppedBroker, topic: str, partition: int) -> list[bytes]:
    return [value for value in stepped.values(topic, partition) if value.strip(b"x")]


def send_all(client: Client, topic: str, partition: int, batches: list[bytes]) -> list[Sent]:
    return [client.produce([(topic, partition, batch)]) for batch in batches]


def test_others_are_served_while_a_batch_is_validated(stepped: SteppedBroker, validating: Validating) -> None:
    partition = stepped.owned_by("compacted", 0)[0]
    sent = stepped.client().produce([("compacted", partition, long_batch(1))])
    other = stepped.client().produce([("compacted", partition, short_batch(2))])
    for turns in range(200):
        before_ns = stepped.clock.monotonic_ns()
        stepped.run_once(0)
        # The first steps, the slices, and the amount by which each exceeds its share.
        assert stepped.clock.monotonic_ns() - before_ns <= (5 + STEP_MS + 5 + STEP_MS) * MS
        stepped.drain()
        if turns == 0:
            assert produced(other) == [(0, 0)]
        if sent.answers:
            break
    assert turns >= 3
    assert produced(sent) == [(0, 1)]
    assert validating.now == 0


def test_nothing_overtakes_a_validated_batch_by_way_of_another_partition(
    stepped: SteppedBroker, validating: Validating
) -> None:
    """The fast path knows both partitions, and the connection's last request is for the other one."""
    validated, other = stepped.owned_by("compacted", 0)[:2]
    client = stepped.client()
    for partition in (validated, other, validated, other):
        client.produce([("compacted", partition, short_batch(0))])
        stepped.settle()
    sent = [
        client.produce([("compacted", partition, batch)])
        for partition, batch in (
            (validated, long_batch(1)),
            (other, short_batch(1)),
            (other, short_batch(2)),
            (validated, short_batch(2)),
            (other, short_batch(3)),
            (validated, short_batch(3)),
        )
    ]
    stepped.settle(200)
    assert [error for each in sent for error, _ in produced(each)] == [0] * 6
    for partition in (validated, other):
        assert last_values(stepped, "compacted", partition) == [b"0", b"0", b"1", b"2", b"3"]
    assert validating.begun


@pytest.mark.parametrize("topic", ["compacted", "packed"])
@pytest.mark.parametrize("several", [False, True], ids=["own", "forwarded"])
def test_requests_of_a_connection_are_stored_in_their_order(
    stepped: SteppedBroker, validating: Validating, topic: str, several: bool
) -> None:
    """Long and short batches, also for another handler's partition, also by the fast path."""
    own, foreign = (stepped.owned_by(topic, owner)[0] for owner in (0, 1))
    client = stepped.client()
    partition = foreign if several else own
    if several:
        # From here on all of this connection's requests are routed to one handler.
        first = client.send(
            PRODUCE, 7, produce_body([(topic, own, short_batch(0)), (topic, foreign, short_batch(0))]), 0
        )
    else:
        first = client.produce([(topic, partition, short_batch(0))])
    stepped.settle()
    assert {error for error, _ in produced(first)} == {0}
    makers = [short_batch, long_batch, short_batch, short_batch, long_batch, short_batch]
    codec = 1 if topic == "packed" else 0
    batches = [make(number, codec=codec) for number, make in enumerate(makers, 1)]
    if several:
        sent = [client.send(PRODUCE, 7, produce_body([(topic, partition, each)]), 0) for each in batches]
    else:
        sent = send_all(client, topic, partition, batches)
    for number in range(400):
        stepped.run_once(number % 2)
        stepped.drain()
    stepped.settle()
    assert [error for each in sent for error, _ in produced(each)] == [0] * 6
    assert last_values(stepped, topic, partition) == [b"%d" % number for number in range(7)]
    assert all(stepped.released(0, handler) for handler in (0, 1))
    assert validating.begun > 2


@pytest.mark.parametrize("turns", range(0, 24, 2))
@pytest.mark.parametrize("victim", [0, 1])
def test_validated_batches_survive_their_handlers(
    stepped: SteppedBroker, validating: Validating, turns: int, victim: int
) -> None:
    """Of a request with parts for both, and of the later requests, each is stored once, in its order."""
    own, foreign = (stepped.owned_by("compacted", owner)[0] for owner in (0, 1))
    client = stepped.client()
    sent = []
    for number, batch in enumerate([long_batch, short_batch, long_batch, short_batch]):
        parts = [("compacted", partition, batch(number)) for partition in (own, foreign)]
        sent.append(client.send(PRODUCE, 7, produce_body(parts), 0))
    for _ in range(turns):
        stepped.run_once(0)
        stepped.run_once(1)
        stepped.drain()
    stepped.replace(victim)
    stepped.settle(500)
    assert [error for each in sent for error, _ in produced(each)] == [0] * 8
    for partition in (own, foreign):
        assert last_values(stepped, "compacted", partition) == [b"0", b"1", b"2", b"3"]
    assert validating.begun > 0


def test_sequences_are_validated_as_the_batch_is_stored(stepped: SteppedBroker, validating: Validating) -> None:
    """A batch repeated on another connection during its validation is a duplicate."""
    partition = stepped.owned_by("compacted", 0)[0]
    batch = long_batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    sent = [stepped.client().produce([("compacted", partition, batch)]) for _ in range(3)]
    stepped.settle(500)
    assert [produced(each) for each in sent] == [[(0, 0)]] * 3
    assert stepped.end("compacted", partition) == RECORDS
    assert validating.begun == 3


def test_few_are_validated_at_a_time(stepped: SteppedBroker, validating: Validating) -> None:
    partition = stepped.owned_by("compacted", 0)[0]
    sent = [stepped.client().produce([("compacted", partition, long_batch(number))]) for number in range(6)]
    stepped.settle(500)
    assert sorted(offset for each in sent for _, offset in produced(each)) == [RECORDS * each for each in range(6)]
    assert validating.most == MOST_VALIDATED


@pytest.mark.parametrize("several", [False, True], ids=["own", "forwarded"])
def test_a_fault_in_validating_costs_that_batch_alone(
    stepped: SteppedBroker, validating: Validating, several: bool
) -> None:
    partition = stepped.owned_by("compacted", int(several))[0]
    client = stepped.client()
    sent = [
        client.send(PRODUCE, 7, produce_body([("compacted", partition, batch)]), 0)
        for batch in (long_batch(1), short_batch(2))
    ]
    stepped.run_once(0)
    stepped.run_once(1)
    assert validating.now == 1
    validating.fault = ZeroDivisionError("ours")
    stepped.settle(500)
    assert [produced(each)[0][0] for each in sent] == [UNKNOWN_SERVER_ERROR, 0]
    assert last_values(stepped, "compacted", partition) == [b"2"]
    assert validating.now == 0
    assert all(stepped.released(0, handler) for handler in (0, 1))


def test_a_topic_deleted_while_a_batch_is_validated(stepped: SteppedBroker, validating: Validating) -> None:
    partition = stepped.owned_by("compacted", 0)[0]
    sent = stepped.client().produce([("compacted", partition, long_batch(1))])
    stepped.run_once(0)
    assert validating.now == 1
    stepped.delete("compacted")
    stepped.settle(500)
    assert produced(sent)[0][0] != 0
    assert stepped.released(0, 0)


def test_sliced_validation_rejects_as_validation_at_once(stepped: SteppedBroker, validating: Validating) -> None:
    partition = stepped.owned_by("compacted", 0)[0]
    keyless = record_batch([b"x", b"xx"] * (RECORDS // 2), keys=[b"k"] * (RECORDS - 1) + [None])
    client = stepped.client()
    sent = send_all(client, "compacted", partition, [keyless, short_batch(1)])
    stepped.settle(500)
    assert [produced(each) for each in sent] == [[(87, -1)], [(0, 0)]]
    assert validating.now == 0
