"""Batches that are validated, or written, in slices: others are served meanwhile, and each is stored once, in order.

Sizes are reduced, and the cost of a slice is simulated: each advances the clock. Handlers die in between.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from rotunda.broker.log.segments import log_segment
from rotunda.broker.log.validation import append_limits
from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.partitions.produce.sliced_validation import MOST_VALIDATED
from tests.handler.test_exactness_by_line import ALONE, OWNING, Case, Requests, run
from tests.support.record_batches import record_batch
from tests.support.sampling import Sampling
from tests.support.stepped_broker import Client, Sent, SteppedBroker, produced
from tests.support.wire_messages import PRODUCE, produce_body

MS = 1_000_000
SLICE_MS = 3
#: The first steps, the slices, and the amount by which each exceeds its share.
LONGEST_TURN_NS = (5 + SLICE_MS + 5 + SLICE_MS) * MS
UNKNOWN_SERVER_ERROR, INVALID_RECORD, STORAGE_ERROR = -1, 87, 56

pytestmark = pytest.mark.stepped({})


class Validated:
    """Batches of many records for a compacted topic, validated in fifteen slices."""

    topic, configs, codec = "compacted", {"cleanup.policy": "compact"}, 0
    records = 15_000

    def __init__(self, broker: SteppedBroker, patch: pytest.MonkeyPatch) -> None:
        #: The validations at present, and the most at one time; the slices so far.
        self.now = self.most = self.slices = 0
        self.fault: Exception | None = None
        patch.setattr(append_limits, "RECORDS_AT_ONCE", 1000)
        broker.create(self.topic, 4, self.configs)
        admit = AppendLimits.admit

        def sliced(*args: Any) -> Generator[None, None, Any]:
            steps = admit(*args)
            try:
                while True:
                    next(steps)
                    self.slices += 1
                    broker.clock.advance_ms(SLICE_MS)
                    yield
                    fault, self.fault = self.fault, None
                    if fault is not None:
                        raise fault
            except StopIteration as stop:
                return stop.value

        def counted(*args: Any) -> Generator[None, None, Any]:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return (yield from sliced(*args))
            finally:
                self.now -= 1

        patch.setattr(AppendLimits, "admit", counted)

    def long(self, value: object, **fields: Any) -> bytes:
        """Return a batch of which one record has the value."""
        values = [b"x" * (1 + number % 2) for number in range(self.records - 1)] + [b"%d" % value]
        return record_batch(values, keys=[b"k"] * self.records, codec=self.codec, **fields)

    def short(self, value: object, **fields: Any) -> bytes:
        """Return a batch of one record."""
        return record_batch([b"%d" % value], keys=[b"k"], codec=self.codec, **fields)


class Recompressed(Validated):
    """Compressed batches for a topic without compression."""

    topic, configs, codec = "unpacked", {"compression.type": "uncompressed"}, 1


class Written:
    """Batches that are written ahead, in thirteen slices."""

    topic, records, size = "topic", 2, 6000

    def __init__(self, broker: SteppedBroker, patch: pytest.MonkeyPatch) -> None:
        self.slices = 0
        #: The error of all writes.
        self.error = 0
        patch.setattr(append_limits, "WRITTEN_AT_ONCE_BYTES", 1000)
        patch.setattr(log_segment, "_AHEAD_PIECE_BYTES", 500)
        broker.create(self.topic, 4)
        pwrite = os.pwrite

        def slow(*args: Any) -> int:
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            # Shorter writes are index entries.
            if len(args[1]) > 60:
                self.slices += 1
                broker.clock.advance_ms(SLICE_MS)
            return pwrite(*args)

        patch.setattr(os, "pwrite", slow)

    def long(self, value: object, **fields: Any) -> bytes:
        """Return a batch of which one record has the value."""
        return record_batch([b"%d" % value, b"x" * self.size], **fields)

    def short(self, value: object, **fields: Any) -> bytes:
        """Return a batch of one record."""
        return record_batch([b"%d" % value], **fields)


Slow = Validated | Written
either = pytest.mark.parametrize("slow", [Validated, Written], indirect=True)
validated = pytest.mark.parametrize("slow", [Validated], indirect=True)
written = pytest.mark.parametrize("slow", [Written], indirect=True)


@pytest.fixture
def slow(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Return a kind of slow batches; its topic exists."""
    return request.param(broker, monkeypatch)


def send(client: Client, topic: str, partition: int, batch: bytes, target: int | None = None) -> Sent:
    return client.send(PRODUCE, 7, produce_body([(topic, partition, batch)]), target)


def stored(broker: SteppedBroker, topic: str, partition: int) -> list[int]:
    """Return the values of batches, in their order."""
    return [int(value) for value in broker.values(topic, partition) if value.strip(b"x")]


def errors(sent: Sequence[Sent]) -> list[int]:
    return [error for each in sent for error, _ in produced(each)]


@either
def test_others_are_served_meanwhile(broker: SteppedBroker, slow: Slow) -> None:
    """While a batch is written, those for the same partition wait."""
    own, other = broker.owned_by(slow.topic, 0)[:2]
    place = other if isinstance(slow, Written) else own
    sent = send(broker.client(), slow.topic, own, slow.long(1))
    served = send(broker.client(), slow.topic, place, slow.short(2))
    waiting = [send(broker.client(), slow.topic, own, slow.short(3))] if place == other else []
    for turns in range(100):
        before_ns = broker.clock.monotonic_ns()
        broker.run_once(0)
        assert broker.clock.monotonic_ns() - before_ns <= LONGEST_TURN_NS
        broker.drain()
        if turns == 0:
            assert produced(served) == [(0, 0)]
        if sent.answers:
            break
        assert not any(each.answers for each in waiting)
    assert turns >= 3
    broker.settle()
    assert errors([sent, *waiting]) == [0] * (1 + len(waiting))
    assert stored(broker, slow.topic, own) == ([1, 3] if waiting else [2, 1])


@pytest.mark.parametrize("slow", [Validated, Recompressed, Written], indirect=True)
@pytest.mark.parametrize("owner", [0, 1], ids=["own", "forwarded"])
def test_batches_of_a_connection_keep_their_order(broker: SteppedBroker, slow: Slow, owner: int) -> None:
    """Also by the fast path."""
    client, partition = broker.client(), broker.owned_by(slow.topic, owner)[0]
    places = {broker.owned_by(slow.topic, 0)[0], partition}
    # From here on all requests of this connection are routed to one handler.
    first = client.send(PRODUCE, 7, produce_body([(slow.topic, place, slow.short(0)) for place in places]), 0)
    broker.settle()
    makers = [slow.short, slow.long, slow.short, slow.short, slow.long, slow.short, slow.long]
    batches = [make(number) for number, make in enumerate(makers, 1)]
    sent = [send(client, slow.topic, partition, batch, 0) for batch in batches]
    broker.settle(500)
    assert set(errors([first, *sent])) == {0}
    assert stored(broker, slow.topic, partition) == list(range(8))
    assert all(broker.released(0, handler) for handler in (0, 1))
    assert slow.slices > 30


@validated
def test_no_batch_overtakes_by_way_of_another_partition(broker: SteppedBroker, slow: Validated) -> None:
    """The fast path knows both partitions, and the connection's last request is for the other one."""
    long, other = broker.owned_by(slow.topic, 0)[:2]
    client = broker.client()
    for partition in (long, other, long, other):
        send(client, slow.topic, partition, slow.short(0))
        broker.settle()
    order = [(long, 1), (other, 1), (other, 2), (long, 2), (other, 3), (long, 3)]
    batches = [slow.long(1), *(slow.short(number) for _, number in order[1:])]
    sent = [send(client, slow.topic, place, batch) for (place, _), batch in zip(order, batches, strict=True)]
    broker.settle(200)
    assert set(errors(sent)) == {0}
    assert [stored(broker, slow.topic, partition) for partition in (long, other)] == [[0, 0, 1, 2, 3]] * 2


@either
@pytest.mark.parametrize("turns", [0, 2, 5, 9, 14, 22])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_handler_dies_meanwhile(broker: SteppedBroker, slow: Slow, turns: int, victim: int) -> None:
    """Of a request with parts for both handlers, and of later ones, each part is stored once, in order."""
    places = [broker.owned_by(slow.topic, owner)[0] for owner in (0, 1)]
    client = broker.client()
    sent = []
    for number, make in enumerate([slow.long, slow.short, slow.long, slow.short]):
        parts = [(slow.topic, partition, make(number)) for partition in places]
        sent.append(client.send(PRODUCE, 7, produce_body(parts), 0))
    for _ in range(turns):
        broker.run_once(0)
        broker.run_once(1)
        broker.drain()
    broker.replace(victim)
    broker.settle(500)
    assert errors(sent) == [0] * 8
    assert [stored(broker, slow.topic, partition) for partition in places] == [[0, 1, 2, 3]] * 2
    assert slow.slices > 20


def in_slices(requests: Requests) -> None:
    """Send a large batch, another connection's batch for the same partition, and another large one."""
    for size in (Written.size, 0, Written.size):
        requests.produce(requests.broker.client(), [requests.part(requests.own[0], size=size)])


def in_slices_for_both(requests: Requests) -> None:
    client = requests.broker.client()
    for size in (Written.size, 0):
        places = (requests.own[0], requests.foreign[0])
        requests.produce(client, [requests.part(place, size=size) for place in places])


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(in_slices, ALONE, 3),
        Case(in_slices, ALONE, 3, stamped=True),
        Case(in_slices_for_both, ALONE, 5),
        Case(in_slices_for_both, OWNING, 5),
    ],
    ids=["alone", "log append time", "origin", "owner"],
)
def test_a_handler_dies_at_any_line(
    broker: SteppedBroker, sampling: Sampling, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr(append_limits, "WRITTEN_AT_ONCE_BYTES", 1000)
    monkeypatch.setattr(log_segment, "_AHEAD_PIECE_BYTES", 500)
    victim = case.turns[-1]
    assert run(broker, case, sampling, lambda line: broker.replaced_at_line(victim, line)) > 100


@either
def test_a_batch_that_is_sent_again_meanwhile_is_a_duplicate(broker: SteppedBroker, slow: Slow) -> None:
    """By other connections."""
    partition = broker.owned_by(slow.topic, 0)[0]
    batch = slow.long(1, producer_id=7, producer_epoch=0, base_sequence=0)
    sent = [send(broker.client(), slow.topic, partition, batch) for _ in range(3)]
    broker.settle(500)
    assert [produced(each) for each in sent] == [[(0, 0)]] * 3
    assert broker.end(slow.topic, partition) == slow.records


@either
def test_a_topic_is_recreated_meanwhile(broker: SteppedBroker, slow: Slow) -> None:
    """No further writes reach the old position: the files there belong to another topic."""
    partition = broker.owned_by(slow.topic, 0)[0]
    sent = [send(broker.client(), slow.topic, partition, slow.long(number)) for number in (1, 2)]
    broker.run_once(0)
    assert not any(each.answers for each in sent)
    slices = slow.slices
    broker.delete(slow.topic)
    broker.settle(500)
    assert 0 not in errors(sent)
    assert not isinstance(slow, Written) or slow.slices == slices
    assert broker.released(0, 0)
    broker.create(slow.topic, 4)
    again = send(broker.client(), slow.topic, partition, slow.short(3))
    broker.settle(500)
    assert produced(again) == [(0, 0)]
    assert stored(broker, slow.topic, partition) == [3]


@validated
def test_few_are_validated_at_a_time(broker: SteppedBroker, slow: Validated) -> None:
    partition = broker.owned_by(slow.topic, 0)[0]
    sent = [send(broker.client(), slow.topic, partition, slow.long(number)) for number in range(6)]
    broker.settle(500)
    assert sorted(offset for each in sent for _, offset in produced(each)) == [slow.records * n for n in range(6)]
    assert slow.most == MOST_VALIDATED


@validated
@pytest.mark.parametrize("owner", [0, 1], ids=["own", "forwarded"])
def test_a_fault_in_a_validation_rejects_that_batch_alone(broker: SteppedBroker, slow: Validated, owner: int) -> None:
    partition = broker.owned_by(slow.topic, owner)[0]
    client = broker.client()
    sent = [send(client, slow.topic, partition, batch, 0) for batch in (slow.long(1), slow.short(2))]
    broker.run_once(0)
    broker.run_once(1)
    assert slow.now == 1
    slow.fault = ZeroDivisionError("ours")
    broker.settle(500)
    assert errors(sent) == [UNKNOWN_SERVER_ERROR, 0]
    assert stored(broker, slow.topic, partition) == [2]
    assert slow.now == 0
    assert all(broker.released(0, handler) for handler in (0, 1))


@validated
def test_sliced_validation_rejects_as_validation_at_once(broker: SteppedBroker, slow: Validated) -> None:
    partition = broker.owned_by(slow.topic, 0)[0]
    keyless = record_batch([b"x"] * slow.records, keys=[b"k"] * (slow.records - 1) + [None], timestamp_step_ms=7)
    client = broker.client()
    sent = [send(client, slow.topic, partition, batch) for batch in (keyless, slow.short(1))]
    broker.settle(500)
    assert [produced(each) for each in sent] == [[(INVALID_RECORD, -1)], [(0, 0)]]
    assert slow.now == 0


@written
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_the_disk_fails_meanwhile(broker: SteppedBroker, slow: Written, number: int) -> None:
    """A full disk with free space by the time of the commit accepts the batch; a broken one rejects all appends."""
    partition = broker.owned_by(slow.topic, 0)[0]
    sent = [send(broker.client(), slow.topic, partition, slow.long(1))]
    broker.run_once(0)
    slow.error = number
    broker.settle(500)
    slow.error = 0
    sent.append(send(broker.client(), slow.topic, partition, slow.short(2)))
    broker.settle(500)
    assert errors(sent) == ([0, 0] if number == errno.ENOSPC else [STORAGE_ERROR] * 2)
    assert stored(broker, slow.topic, partition) == ([1, 2] if number == errno.ENOSPC else [])
