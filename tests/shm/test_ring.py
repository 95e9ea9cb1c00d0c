"""One ring in one process: edges, wraps, corruption, order of stores, and random traffic checked with a list."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rotunda.shm.layout import RING_HEADER
from rotunda.shm.rings import ring
from rotunda.shm.rings.ring import RingConsumer, RingCorrupt, RingProducer, initialise, ring_bytes
from tests.support.native import IMPLEMENTATIONS, ring_ends

BASE = 128


@pytest.fixture(autouse=True, scope="module", params=IMPLEMENTATIONS)
def _ends(request: pytest.FixtureRequest) -> None:
    """Have every test use the ends of one implementation."""
    globals()["RingProducer"], globals()["RingConsumer"] = ring_ends(request.param)


def new_ring(capacity: int) -> tuple[memoryview, RingProducer, RingConsumer]:
    view = memoryview(bytearray(BASE + ring_bytes(capacity) + 64))
    initialise(view, BASE, capacity)
    return view, RingProducer(view, BASE), RingConsumer(view, BASE)


def put(view: memoryview, producer: RingProducer, payload: bytes) -> bool:
    at = producer.claim(len(payload))
    if at < 0:
        return False
    assert at % 8 == 0
    view[at : at + len(payload)] = payload
    return True


def take(view: memoryview, consumer: RingConsumer, limit: int = 100) -> list[bytes]:
    return [bytes(view[at : at + size]) for at, size, _ in consumer.read(limit)]


def test_full_is_a_return_value_and_changes_nothing() -> None:
    view, producer, consumer = new_ring(128)
    for _ in range(4):
        assert put(view, producer, b"x" * 24)
    before = bytes(view), producer.position
    assert producer.claim(0) == -1
    assert (bytes(view), producer.position) == before
    producer.publish()
    consumer.read(1)
    consumer.release()
    assert put(view, producer, b"y" * 24)
    assert producer.claim(0) == -1


def test_a_frame_that_does_not_fit_before_the_end_goes_to_the_start() -> None:
    view, producer, consumer = new_ring(128)
    put(view, producer, b"a" * 40)
    put(view, producer, b"b" * 40)
    producer.publish()
    assert take(view, consumer) == [b"a" * 40, b"b" * 40]
    consumer.release()
    put(view, producer, b"c" * 40)
    producer.publish()
    ((at, size, end),) = consumer.read(10)
    assert at == BASE + RING_HEADER.size + 8
    assert bytes(view[at : at + size]) == b"c" * 40
    assert end == 128 + 48
    assert producer.position == end


def test_the_largest_payload_always_fits_an_empty_ring() -> None:
    view, producer, consumer = new_ring(192)
    for start in range(0, 192, 8):
        for _ in range(start // 8):
            put(view, producer, b"")
            producer.publish()
            take(view, consumer)
            consumer.release()
        payload = bytes([start]) * producer.max_payload
        assert put(view, producer, payload)
        producer.publish()
        assert take(view, consumer) == [payload]
        consumer.release()


@pytest.mark.parametrize("size", [-1, -8, 89, 1 << 40])
def test_a_frame_larger_than_the_limit_is_misuse(size: int) -> None:
    _, producer, _ = new_ring(192)
    with pytest.raises(ValueError, match=str(size)):
        producer.claim(size)


@pytest.mark.parametrize("capacity", [0, -64, 32, 100])
def test_a_capacity_that_is_no_multiple_of_a_cache_line_is_rejected(capacity: int) -> None:
    with pytest.raises(ValueError, match=str(capacity)):
        ring_bytes(capacity)


def test_consumed_is_the_position_up_to_which_frames_are_released() -> None:
    view, producer, consumer = new_ring(256)
    put(view, producer, b"a")
    first_end = producer.position
    put(view, producer, b"b")
    producer.publish()
    consumer.read(1)
    assert producer.consumed() == 0
    consumer.release()
    assert producer.consumed() == first_end


@pytest.mark.parametrize("length", [0, 1, 7, -1, -8, 4096, -4096, 1 << 40])
def test_a_length_that_cannot_be_is_reported_with_its_value(length: int) -> None:
    view, producer, consumer = new_ring(256)
    at = producer.claim(16)
    producer.publish()
    view[at - 8 : at] = length.to_bytes(8, "little", signed=True)
    for _ in range(2):
        with pytest.raises(RingCorrupt, match=f"length {length}$"):
            consumer.read(10)


def test_memory_that_was_never_a_ring_is_rejected() -> None:
    view = memoryview(bytearray(1024))
    with pytest.raises(RingCorrupt, match="capacity 0"):
        RingProducer(view, 0)


def test_closed_ends_let_go_of_the_memory() -> None:
    memory = bytearray(ring_bytes(64))
    with memoryview(memory) as view:
        initialise(view, 0, 64)
        producer, consumer = ring.RingProducer(view, 0), ring.RingConsumer(view, 0)
        producer.close()
        consumer.close()
    memory.append(0)


class RecordingWords:
    """Words that record every store."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.stored: list[int] = []

    def __getitem__(self, index: int) -> int:
        return self.words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self.stored.append(index)
        self.words[index] = value


def test_the_tail_is_stored_once_and_after_every_frame_header() -> None:
    view, _, consumer = new_ring(128)
    producer = ring.RingProducer(view, BASE)
    producer.claim(40)
    producer.publish()
    consumer.read(1)
    consumer.release()
    producer._words = recording = RecordingWords(producer._words)
    producer.claim(40)
    producer.claim(40)
    tail, data = RING_HEADER.word("tail"), RING_HEADER.size // 8
    assert tail not in recording.stored
    producer.publish()
    # A frame at 48, padding at 96, a frame at 0, then the tail.
    assert recording.stored == [data + 6, data + 12, data, tail]


class Model:
    """A ring and a deque of its payloads: the published ones, and the claimed ones that may still be lost."""

    def __init__(self, capacity: int) -> None:
        self.view, self.producer, self.consumer = new_ring(capacity)
        self.claimed: list[bytes] = []
        self.published: deque[bytes] = deque()
        self.read: deque[tuple[bytes, int]] = deque()

    def claim(self, size: int, fill: int) -> None:
        payload = bytes([fill]) * min(size, self.producer.max_payload)
        if put(self.view, self.producer, payload):
            self.claimed.append(payload)
        else:
            used = self.producer.position - self.producer.consumed()
            # Full means that the frame really does not fit: at most its own length is lost as padding.
            assert used + 2 * (len(payload) + 15) > self.producer.capacity

    def publish(self) -> None:
        self.producer.publish()
        self.published += self.claimed
        self.claimed = []

    def take(self, limit: int) -> None:
        frames = self.consumer.read(limit)
        assert len(frames) == min(limit, len(self.published))
        for at, size, end in frames:
            payload = self.published.popleft()
            assert bytes(self.view[at : at + size]) == payload
            self.read.append((payload, end))
        assert (self.consumer.pending() == 0) == (not self.published)

    def release(self, count: int) -> None:
        for _ in range(min(count, len(self.read))):
            self.consumer.release_to(self.read.popleft()[1])
        # Read but unreleased frames must still be intact, despite any later claims.
        successor = RingConsumer(self.view, BASE)
        expected = [payload for payload, _ in self.read] + list(self.published)
        assert take(self.view, successor, 1 << 20) == expected

    def replace(self, end: int) -> None:
        if end % 2:
            self.producer = RingProducer(self.view, BASE)
            self.claimed = []
        else:
            self.consumer = RingConsumer(self.view, BASE)
            self.published.extendleft(payload for payload, _ in reversed(self.read))
            self.read.clear()


STEPS = {
    "claim": lambda model, number: model.claim(number % 97, number % 251),
    "publish": lambda model, _: model.publish(),
    "take": lambda model, number: model.take(number % 7),
    "release": lambda model, number: model.release(number % 5),
    "replace": lambda model, number: model.replace(number),
}


@settings(deadline=None, max_examples=200)
@given(
    capacity=st.sampled_from([64, 128, 192, 320, 1024]),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 10_000)), max_size=80),
)
def test_any_sequence_of_steps_behaves_like_a_list(capacity: int, steps: list[tuple[str, int]]) -> None:
    model = Model(capacity)
    for name, number in steps:
        STEPS[name](model, number)
