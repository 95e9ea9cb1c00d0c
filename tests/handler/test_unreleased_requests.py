"""Unreleased requests in a replacement's rings, in order of arrival."""

from __future__ import annotations

import pytest

from rotunda.broker.handler.request_handler import Handle
from rotunda.broker.handler.screening import Screening
from rotunda.broker.ipc.request import Request, RequestRing
from rotunda.broker.ipc.request_channel import REQUEST
from rotunda.broker.ipc.request_rings import unreleased
from rotunda.shm.rings.ring import RingConsumer, RingProducer, initialise, ring_bytes
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.wire_messages import METADATA

CAPACITY = 8192


class Rings:
    """Two request rings in one buffer."""

    def __init__(self) -> None:
        size = ring_bytes(CAPACITY)
        self.view = memoryview(bytearray(2 * size))
        for number in range(2):
            initialise(self.view, number * size, CAPACITY)
        self.producers = [RingProducer(self.view, number * size) for number in range(2)]
        self.rings = [RequestRing(RingConsumer(self.view, number * size), number) for number in range(2)]

    def put(self, processor: int, sequence: int, received_ns: int) -> None:
        at = self.producers[processor].claim(REQUEST.size)
        assert at >= 0
        REQUEST.pack_into(self.view, at, processor, sequence, received_ns, 0, 9, 0, 0, 0, -1, 0, 0, 1, 0)
        self.producers[processor].publish()

    def left(self) -> list[tuple[int, list[int]]]:
        """Return (processor, sequences) of every run."""
        return [
            (ring.processor, [REQUEST.unpack_from(self.view, at)[1] for at, _, _ in frames])
            for ring, frames in unreleased(self.view, self.rings)
        ]


def test_requests_of_all_rings_are_returned_in_order_of_arrival() -> None:
    rings = Rings()
    for processor, sequence, received_ns in ((1, 0, 10), (0, 0, 20), (0, 1, 30), (1, 1, 40), (0, 2, 50)):
        rings.put(processor, sequence, received_ns)
    assert rings.left() == [(1, [0]), (0, [0, 1]), (1, [1]), (0, [2])]
    assert rings.left() == []


def test_the_order_of_one_ring_stays_as_it_is() -> None:
    """A resent request has the time of its first arrival."""
    rings = Rings()
    for processor, sequence, received_ns in ((0, 7, 100), (0, 3, 5), (1, 0, 50), (1, 1, 150)):
        rings.put(processor, sequence, received_ns)
    assert rings.left() == [(1, [0]), (0, [7, 3]), (1, [1])]


def test_late_messages_to_an_earlier_generation_are_skipped(stepped: SteppedBroker) -> None:
    """A processor that was blocked for longer than any window resends it; it is handled once, with its own sequence."""
    client = stepped.client()
    stepped.replace(0)
    handler, sender = stepped.handler(0), stepped.senders[0]
    sender.generations[0] = 1
    sent = client.send(METADATA, 1, bytes(4), target=0)
    stepped.clock.advance_ns(3600 * 10**9)
    handler.run_once()
    stepped.drain()
    assert sent.answers == []
    sender.generations[0] = 2
    stepped.put(client, 0)
    for _ in range(3):
        handler.run_once()
    stepped.drain()
    assert len(sent.answers) == 1
    assert stepped.released(0, 0)


def test_a_produce_to_any_generation_is_handled(stepped: SteppedBroker) -> None:
    stepped.replace(0)
    stepped.senders[0].generations[0] = 1
    partition = stepped.owned_by("topic", 0)[0]
    sent = stepped.client().produce([batch_for(partition, b"value")])
    stepped.settle()
    assert produced(sent) == [(0, 0)]


@pytest.mark.stepped({"topic": 4}, processors=2)
def test_a_successor_screens_requests_until_each_processor_has_followed_it(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the requests that a processor has sent to others, and for no request of an idle one."""
    screened: list[int] = []
    real = Screening.handle

    def handle(self: Screening, request: Request, handle: Handle) -> None:
        screened.append(request.sequence)
        real(self, request, handle)

    def send() -> list[int]:
        broker.clock.advance_ms(1)
        client.send(METADATA, 1, bytes(4), target=0)
        broker.settle(3)
        return screened

    monkeypatch.setattr(Screening, "handle", handle)
    slow = broker.senders[1]
    with monkeypatch.context() as patched:
        patched.setattr(slow, "follow", lambda *_: None)
        broker.replace(0)
    client, late = broker.client(0), broker.client(1)
    assert send() == [0]
    assert send() == [0, 1]
    late.send(METADATA, 1, bytes(4), target=0)
    slow.follow(0, 2)
    slow.confirm()
    assert send() == [0, 1, 2, 0]
    assert send() == [0, 1, 2, 0, 3]
    assert send() == [0, 1, 2, 0, 3]
