"""The cleaner's requests: one at a time, served by the partition's present owner; duplicate responses are dropped."""

from collections.abc import Callable

import pytest

from rotunda.broker.cleaner.owner_client import OwnerClient, Stopped
from rotunda.broker.cleaner.throttler import LOOK_BYTES, Throttler
from rotunda.broker.ipc.peer_channel import TASK, TASK_REPLY, PeerMessage, Peers
from rotunda.broker.ipc.request_channel import ChannelShape, RequestChannel
from rotunda.broker.scheduling.peer_tasks import TASK_NAMES
from tests.support.fakes import FakeClock

CLEANER = 2


class Bell:
    """A bell at which others do something while its owner waits."""

    def __init__(self) -> None:
        self.rings = 0
        self.meanwhile: Callable[[float], None] = lambda _: None

    def ring(self) -> None:
        self.rings += 1

    def wait(self, timeout_s: float) -> bool:
        self.meanwhile(timeout_s)
        return True


class Desk:
    """The rings of one handler, the controller and the cleaner, and the ends of the first and the last."""

    def __init__(self) -> None:
        shape = ChannelShape(1, 2, 1024)
        self.channel = RequestChannel(memoryview(bytearray(shape.bytes_needed)), shape)
        self.channel.initialise()
        self.bells = tuple(Bell() for _ in range(shape.peers))
        self.stopped = False
        self.handler = Peers(self.channel, 0, 1, self.bells)  # type: ignore[arg-type]
        self.answered: list[PeerMessage] = []

    def cleaner(self, generation: int) -> OwnerClient:
        return OwnerClient(self.channel, CLEANER, generation, self.bells, lambda: self.stopped, lambda: None)  # type: ignore[arg-type]

    def answer_all(self, payload: bytes = b"done") -> None:
        for source, message, _ in self.handler.receive():
            assert source == CLEANER
            assert message.kind == TASK
            self.answered.append(message)
            self.handler.reply(source, PeerMessage(TASK_REPLY, token=message.token, payload=payload))
        self.handler.publish()
        self.handler.release()


def test_a_question_and_its_response() -> None:
    desk = Desk()
    desk.bells[CLEANER].meanwhile = lambda _: desk.answer_all()
    owners = desk.cleaner(1)
    assert owners.ask(0, "retain_log", b"what") == (0, b"done")
    assert owners.ask(0, "swap_segments", b"else") == (0, b"done")
    assert [(TASK_NAMES[each.part], each.payload) for each in desk.answered] == [
        ("retain_log", b"what"),
        ("swap_segments", b"else"),
    ]
    assert desk.bells[0].rings >= 2


def test_a_response_that_arrives_twice_is_dropped() -> None:
    """The owner was replaced after its response: its replacement responds again."""
    desk = Desk()
    desk.bells[CLEANER].meanwhile = lambda _: desk.answer_all(b"first")
    owners = desk.cleaner(1)
    owners.ask(0, "retain_log", b"")
    (question,) = desk.answered
    desk.handler.reply(CLEANER, PeerMessage(TASK_REPLY, token=question.token, payload=b"again"))
    desk.handler.publish()
    desk.bells[CLEANER].meanwhile = lambda _: desk.answer_all(b"second")
    assert owners.ask(0, "retain_log", b"") == (0, b"second")


def test_a_successor_waits_until_the_last_question_has_been_read() -> None:
    desk = Desk()

    def die(_: float) -> None:
        desk.stopped = True

    desk.bells[CLEANER].meanwhile = die
    with pytest.raises(Stopped):
        desk.cleaner(1).ask(0, "swap_segments", b"")
    desk.stopped = False
    waits: list[float] = []

    def wait(timeout_s: float) -> None:
        waits.append(timeout_s)
        if len(waits) == 3:
            desk.answer_all()

    desk.bells[CLEANER].meanwhile = wait
    successor = desk.cleaner(2)
    successor.await_predecessor()
    assert len(waits) == 3
    desk.bells[CLEANER].meanwhile = lambda _: desk.answer_all(b"new")
    assert successor.ask(0, "swap_segments", b"") == (0, b"new")


def test_the_pace_is_what_the_settings_allow() -> None:
    desk, clock = Desk(), FakeClock()
    desk.bells[CLEANER].meanwhile = lambda timeout_s: clock.advance_ns(int(timeout_s * 1e9))
    pace = Throttler(desk.cleaner(1), clock)
    pace.use(10**12)
    assert clock.monotonic_ns() == 0
    pace.bytes_per_second = 1_000_000
    for _ in range(300):
        pace.use(10_000)
    assert 2.9e9 < clock.monotonic_ns() < 3.1e9
    desk.stopped = True
    with pytest.raises(Stopped):
        pace.use(LOOK_BYTES)


def test_between_two_pieces_of_work_the_rings_are_looked_at() -> None:
    """However little each of them moves: thousands of partitions may have nothing to remove."""
    desk = Desk()
    pace = Throttler(desk.cleaner(1), FakeClock())
    pace.use(0)
    desk.stopped = True
    pace.use(1)
    with pytest.raises(Stopped):
        pace.use(0)
