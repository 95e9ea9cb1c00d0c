"""What a replacement takes of what it finds in its rings, in order of arrival, and what is sent again only once."""

from __future__ import annotations

from broker.request_channel import REQUEST
from broker.server.request_ring import RequestRing
from broker.server.unreleased_requests import REPEATS_END_NS, UnreleasedRequests
from shm.ring import RingConsumer, RingProducer, initialise, ring_bytes

CAPACITY = 8192


class Rings:
    """Two request rings in one piece of memory."""

    def __init__(self) -> None:
        size = ring_bytes(CAPACITY)
        self.view = memoryview(bytearray(2 * size))
        for number in range(2):
            initialise(self.view, number * size, CAPACITY)
        self.producers = [RingProducer(self.view, number * size) for number in range(2)]
        self.rings = [RequestRing(RingConsumer(self.view, number * size)) for number in range(2)]

    def put(self, processor: int, sequence: int, received_ns: int, api_key: int = 0) -> None:
        at = self.producers[processor].claim(REQUEST.size)
        assert at >= 0
        REQUEST.pack_into(self.view, at, processor, sequence, received_ns, api_key, 9, 0, 0, -1, 0, 0, 0)
        self.producers[processor].publish()

    def taken(self, requests: UnreleasedRequests) -> list[tuple[int, list[int]]]:
        """Return (processor, sequences) of every run."""
        return [
            (processor, [REQUEST.unpack_from(self.view, at)[1] for at, _, _ in frames])
            for processor, frames in requests.take()
        ]


def test_requests_of_all_rings_are_taken_in_order_of_arrival() -> None:
    rings = Rings()
    for processor, sequence, received_ns in ((1, 0, 10), (0, 0, 20), (0, 1, 30), (1, 1, 40), (0, 2, 50)):
        rings.put(processor, sequence, received_ns)
    requests = UnreleasedRequests(rings.view, rings.rings, 0)
    assert rings.taken(requests) == [(1, [0]), (0, [0, 1]), (1, [1]), (0, [2])]
    assert rings.taken(requests) == []


def test_the_order_of_one_ring_stays_as_it_is() -> None:
    """A request that was sent again bears the time at which it first came."""
    rings = Rings()
    for processor, sequence, received_ns in ((0, 7, 100), (0, 3, 5), (1, 0, 50), (1, 1, 150)):
        rings.put(processor, sequence, received_ns)
    assert rings.taken(UnreleasedRequests(rings.view, rings.rings, 0)) == [(1, [0]), (0, [7, 3]), (1, [1])]


def test_what_may_have_been_answered_is_left_to_be_sent_again() -> None:
    """Only Produce has notes that say what became of a request; what comes later than the replacement is new."""
    rings = Rings()
    rings.put(0, 0, 10, api_key=22)
    rings.put(0, 1, 20)
    requests = UnreleasedRequests(rings.view, rings.rings, 0)
    rings.put(0, 2, 30, api_key=22)
    assert rings.taken(requests) == [(0, [1, 2])]


def test_a_request_that_comes_twice_is_known() -> None:
    rings = Rings()
    requests = UnreleasedRequests(rings.view, rings.rings, 1_000)
    assert not requests.has_taken((0, 5, 1, 0, 0, 8))
    assert not requests.has_taken((0, 5, 2, 0, 0, 8))
    assert not requests.has_taken((1, 6, 1, 0, 0, 8))
    assert requests.has_taken((0, 5, 1, 0, 0, 8))
    assert requests.over_ns == 1_000 + REPEATS_END_NS
