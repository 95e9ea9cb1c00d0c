"""Tests of the grid of rings: one per pair of processes, within the memory budget."""

import itertools

import pytest

from rotunda.broker.ipc.request_channel import (
    INLINE_REQUEST_BYTES,
    PEER_RING_BYTES,
    REQUEST,
    RING_BUDGET_BYTES,
    SMALLEST_RING_BYTES,
    ChannelShape,
    RequestChannel,
)
from rotunda.shm.rings.ring import RingConsumer, RingProducer

PROCESSORS, TARGETS = 2, 3


def channel_of(base: int = 0) -> RequestChannel:
    shape = ChannelShape(PROCESSORS, TARGETS, SMALLEST_RING_BYTES)
    channel = RequestChannel(memoryview(bytearray(base + shape.bytes_needed)), shape, base)
    channel.initialise()
    return channel


def put(producer: RingProducer, view: memoryview, payload: bytes) -> None:
    at = producer.claim(len(payload))
    assert at >= 0
    view[at : at + len(payload)] = payload
    producer.publish()


def get(consumer: RingConsumer, view: memoryview) -> list[bytes]:
    return [bytes(view[at : at + size]) for at, size, _ in consumer.read(100)]


def test_d07_d24_every_pair_has_rings_of_its_own() -> None:
    channel = channel_of(base=64)
    for processor, target in itertools.product(range(PROCESSORS), range(TARGETS)):
        name = f"{processor}-{target}".encode()
        put(channel.request_producer(processor, target), channel.view, b"request " + name)
        put(channel.response_producer(processor, target), channel.view, b"response " + name)
    for source, destination in itertools.product(range(TARGETS), repeat=2):
        put(channel.peer_producer(source, destination), channel.view, f"peer {source}-{destination}".encode())
    for processor, target in itertools.product(range(PROCESSORS), range(TARGETS)):
        name = f"{processor}-{target}".encode()
        assert get(channel.request_consumer(processor, target), channel.view) == [b"request " + name]
        assert get(channel.response_consumer(processor, target), channel.view) == [b"response " + name]
    for source, destination in itertools.product(range(TARGETS), repeat=2):
        expected = [f"peer {source}-{destination}".encode()]
        assert get(channel.peer_consumer(source, destination), channel.view) == expected


def test_b33_a_replacement_reads_again_what_was_not_released() -> None:
    channel = channel_of()
    producer = channel.request_producer(0, 0)
    put(producer, channel.view, b"released")
    put(producer, channel.view, b"unreleased")
    first = channel.request_consumer(0, 0)
    (_, _, end), _ = first.read(100)
    first.release_to(end)
    assert get(channel.request_consumer(0, 0), channel.view) == [b"unreleased"]
    put(channel.request_producer(0, 0), channel.view, b"by the replacement")
    assert get(channel.request_consumer(0, 0), channel.view) == [b"unreleased", b"by the replacement"]


@pytest.mark.parametrize("processors", [1, 2, 3, 8])
@pytest.mark.parametrize("targets", [2, 3, 9])
@pytest.mark.parametrize("wanted", [1, 300_000, 1 << 20, 1 << 30])
def test_the_rings_fit_their_budget_and_the_largest_inline_request(processors: int, targets: int, wanted: int) -> None:
    shape = ChannelShape.fitting(processors, targets, wanted)
    capacity = shape.ring_capacity_bytes
    assert capacity & (capacity - 1) == 0
    assert capacity >= SMALLEST_RING_BYTES
    assert capacity <= max(wanted, SMALLEST_RING_BYTES)
    data_rings = 2 * processors * targets
    assert capacity == SMALLEST_RING_BYTES or data_rings * capacity <= RING_BUDGET_BYTES
    assert shape.bytes_needed >= data_rings * capacity + targets**2 * PEER_RING_BYTES
    assert capacity // 2 > REQUEST.size + INLINE_REQUEST_BYTES + 8
