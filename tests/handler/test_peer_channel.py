"""Messages between targets: order, back-pressure without deadlock, and the state found by a replacement."""

from __future__ import annotations

import pytest

from rotunda.broker.ipc import request_channel
from rotunda.broker.ipc.peer_channel import DONE, TASK, TASK_REPLY, PeerMessage, Peers
from rotunda.broker.ipc.request_channel import RequestChannel
from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.rings.ring import RingProducer
from tests.support.fakes import failing
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, batch_for, produced


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
    monkeypatch.setattr(type(log), "stage", failing(ZeroDivisionError()))
    broken = broker.client().produce([batch_for(own, b"a"), batch_for(foreign, b"b")])
    broker.settle()
    assert broken.answers
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    good = broker.client().produce([batch_for(foreign, b"c"), batch_for(own, b"d")])
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
