"""Messages between targets: order, back-pressure without deadlock, and the state found by a replacement."""

from __future__ import annotations

from collections import Counter

import pytest

from rotunda.broker.ipc import request_channel
from rotunda.broker.ipc.peer_channel import DONE, PRODUCE_PART, PRODUCE_REPLY, TASK, TASK_REPLY, PeerMessage, Peers
from rotunda.broker.ipc.request_channel import RequestChannel
from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.rings.ring import RingProducer
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced


class SilentBell:
    """Counts its rings."""

    def __init__(self) -> None:
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1


@pytest.fixture
def channel() -> RequestChannel:
    shape = request_channel.ChannelShape(1, 3, 4096)
    made = RequestChannel(memoryview(bytearray(shape.bytes_needed)), shape)
    made.initialise()
    return made


@pytest.fixture
def bells() -> tuple[SilentBell, ...]:
    return SilentBell(), SilentBell(), SilentBell()


def peers(channel: RequestChannel, bells: tuple[SilentBell, ...], index: int, generation: int = 1) -> Peers:
    typed: tuple[SemaphoreBell, ...] = bells  # type: ignore[assignment]
    return Peers(channel, index, generation, typed)


def test_a_message_arrives_as_it_was_sent(channel: RequestChannel, bells: tuple[SilentBell, ...]) -> None:
    one, other = peers(channel, bells, 0), peers(channel, bells, 1)
    message = PeerMessage(PRODUCE_PART, -1, 3, 1 << 40, 1, 4096, 70_000, 17, -1, 5, 9, 2, b"payload")
    one.send(1, message)
    assert other.receive() == []
    one.publish()
    assert [(source, each) for source, each, _ in other.receive()] == [(0, message)]
    assert bells[1].rung == 1
    assert bells[2].rung == 0


def test_questions_keep_their_order_when_the_ring_is_full(
    channel: RequestChannel, bells: tuple[SilentBell, ...]
) -> None:
    one, other = peers(channel, bells, 0), peers(channel, bells, 1)
    placed: list[int] = []
    for token in range(50):
        one.send(1, PeerMessage(TASK, token=token), lambda ring: placed.append(ring.position))
    assert one.waiting
    seen: list[int] = []
    for _ in range(200):
        one.publish()
        seen += [message.token for _, message, _ in other.receive()]
        other.publish()
        other.release()
    assert seen == list(range(50))
    assert not one.waiting
    assert placed == sorted(placed)
    assert len(placed) == 50


def test_a_token_is_of_no_predecessor(channel: RequestChannel, bells: tuple[SilentBell, ...]) -> None:
    tokens = [peers(channel, bells, 0, generation).new_tokens() for generation in (1, 2)]
    assert {next(tokens[0]) for _ in range(1000)}.isdisjoint(next(tokens[1]) for _ in range(1000))


def test_unreleased_messages_are_read_by_the_replacement(
    channel: RequestChannel, bells: tuple[SilentBell, ...]
) -> None:
    one, other = peers(channel, bells, 0), peers(channel, bells, 1)
    one.send(1, PeerMessage(TASK, token=1))
    one.publish()
    assert len(other.receive()) == 1
    again = peers(channel, bells, 1, 2)
    assert [message.token for _, message, _ in again.receive()] == [1]
    [(ring, position)] = peers(channel, bells, 0, 2).unread_before()
    assert ring.consumed() < position
    again.release()
    assert ring.consumed() == position
    assert peers(channel, bells, 0, 3).unread_before() == []


def test_a_question_is_not_released_before_its_response_is_out(
    channel: RequestChannel, bells: tuple[SilentBell, ...]
) -> None:
    one, other = peers(channel, bells, 0), peers(channel, bells, 1)
    # The opposite ring is full of responses, which may use all of it.
    while not other.waiting:
        other.reply(0, PeerMessage(TASK_REPLY, token=-1))
    placed: list[RingProducer] = []
    one.send(1, PeerMessage(TASK, token=1), placed.append)
    one.publish()
    # Waiting responses block the reading of requests, and hence their release.
    other.publish()
    assert other.receive() == []
    other.release()
    assert placed[0].consumed() == 0
    one.receive()
    one.release()
    other.publish()
    assert not other.waiting
    assert [message.token for _, message, _ in other.receive()] == [1]


def test_d04_two_that_ask_each_other_without_end_both_get_their_responses(
    channel: RequestChannel, bells: tuple[SilentBell, ...]
) -> None:
    both = peers(channel, bells, 0), peers(channel, bells, 1)
    for me, asker in enumerate(both):
        for token in range(300):
            asker.send(1 - me, PeerMessage(PRODUCE_PART, token=token))
    answered: list[Counter[int]] = [Counter(), Counter()]
    for _ in range(2000):
        for me, one in enumerate(both):
            for source, message, _ in one.receive():
                if message.kind == PRODUCE_PART:
                    one.reply(source, PeerMessage(PRODUCE_REPLY, token=message.token))
                else:
                    answered[me][message.token] += 1
            one.publish()
            one.release()
    assert answered == [Counter(range(300))] * 2


pytestmark = [pytest.mark.stepped({"topic": 8}), pytest.mark.usefixtures("small_rings")]


@pytest.fixture
def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_channel, "PEER_RING_BYTES", 1024)


def test_d04_handlers_that_forward_to_each_other_do_not_deadlock(broker: SteppedBroker) -> None:
    client = broker.client()
    ways = [broker.owned_by("topic", owner) for owner in (0, 1)]
    sent = []
    for number in range(60):
        order = ways if number % 2 else ways[::-1]
        batch = record_batch([b"%d" % number])
        sent.append(client.produce([("topic", partition, batch) for way in order for partition in way]))
    broker.settle(500)
    for each in sent:
        assert [error for error, _ in produced(each)] == [0] * 8
    for partition in range(8):
        assert sorted(map(int, broker.values("topic", partition))) == list(range(60))


def test_a_peer_request_that_meets_a_fault_gets_a_response(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own, foreign = (broker.owned_by("topic", owner)[0] for owner in (0, 1))
    row = broker.partition("topic", foreign).row
    log = broker.parts(1).partitions.owned[row].log

    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(log), "stage", fault)
    broken = broker.client().produce([("topic", own, record_batch([b"a"])), ("topic", foreign, record_batch([b"b"]))])
    broker.settle()
    assert broken.answers
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    good = broker.client().produce([("topic", foreign, record_batch([b"c"])), ("topic", own, record_batch([b"d"]))])
    broker.settle()
    assert [error for error, _ in produced(good)] == [0, 0]
    assert broker.released(0, 0)


def test_messages_completed_after_a_pending_one_are_not_repeated(
    channel: RequestChannel, bells: tuple[SilentBell, ...]
) -> None:
    """The message remains in the ring with all later ones; a replacement must not repeat those."""
    one, other = peers(channel, bells, 0), peers(channel, bells, 1)
    for token in range(5):
        one.reply(1, PeerMessage(TASK, token=token))
    one.publish()
    received = other.receive()
    ends = [position for _, _, position in received]
    # The last one has been received and not been handled.
    taken = {0: ends[3]}
    other.release_handled(taken, {0: {ends[1]}})
    found = [(message.kind, message.token) for _, message, _ in peers(channel, bells, 1, 2).receive()]
    assert found == [(TASK, 1), (DONE, 2), (DONE, 3), (TASK, 4)]
    other.release_handled(taken, {0: set()})
    assert not taken
    assert [message.token for _, message, _ in peers(channel, bells, 1, 2).receive()] == [4]
