"""Batches so large that they are written in slices: others are served meanwhile, and each is stored once.

Sizes are reduced, and the cost of writing a chunk is simulated: each advances the clock. Handlers die in between.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from rotunda.broker.log.segments import log_segment
from rotunda.broker.log.validation import append_limits
from tests.handler.test_exactness_by_line import ALONE, OWNING, Case, Requests, run
from tests.support.record_batches import record_batch
from tests.support.sampling import Sampling
from tests.support.stepped_broker import Client, Sent, SteppedBroker, produced
from tests.support.wire_messages import PRODUCE, produce_body

MS = 1_000_000
PIECE_MS = 3
AT_ONCE, PIECE = 1000, 500
LARGE = 6000
PIECES = 13
MOST_OF_AN_INDEX = 60


pytestmark = [pytest.mark.slow, pytest.mark.stepped({}), pytest.mark.usefixtures("small_pieces")]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_limits, "WRITTEN_AT_ONCE_BYTES", AT_ONCE)
    monkeypatch.setattr(log_segment, "_AHEAD_PIECE_BYTES", PIECE)


class Pieces:
    """The chunks written ahead, and the injected faults."""

    def __init__(self, broker: SteppedBroker, patch: pytest.MonkeyPatch) -> None:
        self.written = 0
        self.error = 0
        pwrite = os.pwrite

        def slow(*args: Any) -> int:
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            # The other writes are index entries.
            if len(args[1]) > MOST_OF_AN_INDEX:
                self.written += 1
                broker.clock.advance_ns(PIECE_MS * MS)
            return pwrite(*args)

        patch.setattr(os, "pwrite", slow)


@pytest.fixture
def pieces(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> Pieces:
    broker.create("topic", 4)
    return Pieces(broker, monkeypatch)


def large(value: object, **fields: Any) -> bytes:
    return record_batch([str(value).encode(), b"x" * LARGE], **fields)


def small(value: object, **fields: Any) -> bytes:
    return record_batch([str(value).encode()], **fields)


def send(client: Client, partition: int, batch: bytes, target: int | None = None) -> Sent:
    return client.send(PRODUCE, 7, produce_body([("topic", partition, batch)]), target)


def first_values(broker: SteppedBroker, partition: int) -> list[bytes]:
    return [value for value in broker.values("topic", partition) if len(value) < LARGE]


def test_others_are_served_while_a_batch_is_written(broker: SteppedBroker, pieces: Pieces) -> None:
    """Batches for the same partition wait, from any client, and are stored after it."""
    own, other = broker.owned_by("topic", 0)[:2]
    sent = send(broker.client(), own, large(0))
    beside = send(broker.client(), other, small(0))
    behind = [send(broker.client(), own, small(number)) for number in (1, 2)]
    for turns in range(100):
        before_ns = broker.clock.monotonic_ns()
        broker.run_once(0)
        # The first steps, the slices, and the amount by which each exceeds its share.
        assert broker.clock.monotonic_ns() - before_ns <= (5 + PIECE_MS + 5 + PIECE_MS) * MS
        broker.drain()
        if turns == 0:
            assert produced(beside) == [(0, 0)]
        if sent.answers:
            break
        assert not any(each.answers for each in behind)
    assert turns >= 3
    broker.settle()
    assert pieces.written == PIECES
    assert produced(sent) == [(0, 0)]
    assert sorted(produced(each) for each in behind) == [[(0, 2)], [(0, 3)]]
    assert sorted(first_values(broker, own)) == [b"0", b"1", b"2"]


def test_waiting_batches_precede_the_next_large_one(broker: SteppedBroker, pieces: Pieces) -> None:
    partition = broker.owned_by("topic", 0)[0]
    batches = [large(0), small(1), large(2), small(3), large(4)]
    sent = [send(broker.client(), partition, batch) for batch in batches]
    broker.settle(200)
    assert [error for each in sent for error, _ in produced(each)] == [0] * 5
    assert pieces.written == 3 * PIECES
    assert first_values(broker, partition) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("turns", range(0, 20, 2))
@pytest.mark.parametrize("victim", [0, 1])
def test_large_batches_survive_their_handlers(broker: SteppedBroker, pieces: Pieces, turns: int, victim: int) -> None:
    """Of a request with parts for both, and of the later requests, each is stored once, in its order."""
    own, foreign = (broker.owned_by("topic", owner)[0] for owner in (0, 1))
    client = broker.client()
    sent = []
    for number, batch in enumerate([large, small, large, small]):
        parts = [("topic", partition, batch(number)) for partition in (own, foreign)]
        sent.append(client.send(PRODUCE, 7, produce_body(parts), 0))
    for _ in range(turns):
        broker.run_once(0)
        broker.run_once(1)
        broker.drain()
    broker.replace(victim)
    broker.settle(500)
    assert [error for each in sent for error, _ in produced(each)] == [0] * 8
    for partition in (own, foreign):
        assert first_values(broker, partition) == [b"0", b"1", b"2", b"3"]
    assert pieces.written >= 4 * PIECES


def in_pieces(requests: Requests) -> None:
    """Send a large batch, another connection's batch for the same partition, and another large one."""
    for size in (LARGE, 0, LARGE):
        requests.produce(requests.broker.client(), [requests.part(requests.own[0], size=size)])


def in_pieces_for_both(requests: Requests) -> None:
    client = requests.broker.client()
    for size in (LARGE, 0):
        places = (requests.own[0], requests.foreign[0])
        requests.produce(client, [requests.part(place, size=size) for place in places])


@pytest.mark.parametrize(
    "case",
    [
        Case(in_pieces, ALONE, 3),
        Case(in_pieces, ALONE, 3, stamped=True),
        Case(in_pieces_for_both, ALONE, 5),
        Case(in_pieces_for_both, OWNING, 5),
    ],
    ids=["alone", "log append time", "origin", "owner"],
)
def test_a_handler_dies_at_any_line(broker: SteppedBroker, sampling: Sampling, case: Case) -> None:
    victim = case.turns[-1]

    def die(_: Requests, line: int) -> bool:
        died = broker.turn_until_line(victim, line)
        if died:
            broker.replace(victim)
        return died

    assert run(broker, case, sampling, die) > 100


def test_a_batch_resent_while_it_is_written(broker: SteppedBroker, pieces: Pieces) -> None:
    partition = broker.owned_by("topic", 0)[0]
    batch = large(1, producer_id=7, producer_epoch=0, base_sequence=0)
    sent = [send(broker.client(), partition, batch) for _ in range(3)]
    broker.settle(500)
    assert [produced(each) for each in sent] == [[(0, 0)]] * 3
    assert broker.end("topic", partition) == 2
    assert pieces.written


def test_a_topic_recreated_while_its_batch_is_written(broker: SteppedBroker, pieces: Pieces) -> None:
    """No further writes reach the old position: the files there belong to another topic."""
    partition = broker.owned_by("topic", 0)[0]
    sent = [send(broker.client(), partition, batch) for batch in (large(1), small(2))]
    broker.run_once(0)
    assert not sent[0].answers
    written = pieces.written
    broker.delete("topic")
    broker.settle(500)
    assert pieces.written == written
    assert [produced(each)[0][0] != 0 for each in sent] == [True, True]
    assert broker.released(0, 0)
    broker.create("topic", 4)
    partition = broker.owned_by("topic", 0)[0]
    again = send(broker.client(), partition, large(3))
    broker.settle(500)
    assert produced(again) == [(0, 0)]
    assert first_values(broker, partition) == [b"3"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_meanwhile(broker: SteppedBroker, pieces: Pieces, number: int) -> None:
    """A full disk with free space by the time of the commit accepts the batch; a broken one rejects all appends."""
    partition = broker.owned_by("topic", 0)[0]
    sent = send(broker.client(), partition, large(1))
    broker.run_once(0)
    pieces.error = number
    broker.settle(500)
    pieces.error = 0
    behind = send(broker.client(), partition, small(2))
    broker.settle(500)
    errors = [produced(each)[0][0] for each in (sent, behind)]
    assert errors == ([0, 0] if number == errno.ENOSPC else [56, 56])
    assert first_values(broker, partition) == ([b"1", b"2"] if number == errno.ENOSPC else [])
