"""Requests are released in order, and not while one of them is held."""

from __future__ import annotations

import pytest

from rotunda.broker.ipc.request import RequestRing
from rotunda.shm.rings.ring import RingConsumer, RingProducer, initialise, ring_bytes

CAPACITY = 1024


@pytest.fixture
def ends() -> tuple[RingProducer, RingConsumer]:
    memory = memoryview(bytearray(ring_bytes(CAPACITY)))
    initialise(memory, 0, CAPACITY)
    return RingProducer(memory, 0), RingConsumer(memory, 0)


def fill(producer: RingProducer, count: int) -> list[int]:
    """Publish this number of frames; return the start of each."""
    starts = []
    for _ in range(count):
        starts.append(producer.position)
        assert producer.claim(16) >= 0
    producer.publish()
    return starts


def test_every_read_request_is_released(ends: tuple[RingProducer, RingConsumer]) -> None:
    producer, consumer = ends
    ring = RequestRing(consumer, 0)
    fill(producer, 3)
    ring.release()
    assert producer.consumed() == 0
    (_, _, first), (_, _, second) = ring.read(2)
    ring.release()
    assert producer.consumed() == 0
    ring.cursor = first
    ring.release()
    assert producer.consumed() == first
    ring.cursor = second
    ring.release()
    assert 0 < producer.consumed() < producer.position
    assert not ring.holding


def test_release_stops_at_the_first_request_that_is_held(ends: tuple[RingProducer, RingConsumer]) -> None:
    producer, consumer = ends
    ring = RequestRing(consumer, 0)
    starts = fill(producer, 4)
    ring.cursor = ring.read(4)[-1][2]
    later, earlier = ring.hold(starts[2]), ring.hold(starts[1])
    ring.release()
    assert producer.consumed() == starts[1]
    later.answered = True
    ring.release()
    assert producer.consumed() == starts[1]
    earlier.answered = True
    ring.release()
    assert producer.consumed() == producer.position
    assert not ring.holding


def test_a_completed_request_is_held_while_a_peer_may_read_it(ends: tuple[RingProducer, RingConsumer]) -> None:
    producer, consumer = ends
    memory = memoryview(bytearray(ring_bytes(CAPACITY)))
    initialise(memory, 0, CAPACITY)
    question, peer = RingProducer(memory, 0), RingConsumer(memory, 0)
    ring = RequestRing(consumer, 0)
    starts = fill(producer, 2)
    ring.cursor = ring.read(2)[-1][2]
    hold = ring.hold(starts[0])
    question.claim(8)
    question.publish()
    hold.peers.append((question, question.position))
    hold.answered = True
    ring.release()
    assert producer.consumed() == 0
    assert ring.holding
    peer.read(1)
    peer.release()
    ring.release()
    assert producer.consumed() == producer.position
