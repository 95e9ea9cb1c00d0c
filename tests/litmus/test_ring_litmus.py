"""One ring, a producing and a consuming process, either of which may be killed and replaced at any moment.

Each frame has a number and bytes that follow from it. Allowed, for each frame the consumer reads: it is the frame after
the last one read, whole; or, first after a replacement, the frame after the last RELEASED one. Not allowed: a gap, a
repetition of anything released, a frame out of order, bytes that differ from those written, and bytes that change
before release.
"""

from __future__ import annotations

import os
import random
import select
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import posix_ipc
import pytest

from rotunda.shm.rings.bell import EventBell, SemaphoreBell
from rotunda.shm.rings.ring import RingConsumer, RingProducer, initialise, ring_bytes
from rotunda.shm.segment import new_instance
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of
from tests.support.deadline import deadline_s

NUMBER = struct.Struct("@q")
PATTERN = bytes(random.Random(1).randrange(256) for _ in range(2048))
NOTES_BYTES = 128
RING = NOTES_BYTES
FRAMES = 100_000


def frame(number: int, largest: int) -> bytes:
    """Return the contents of the frame of this number."""
    size = number * 7919 % (largest - NUMBER.size)
    start = number % 1024
    return NUMBER.pack(number) + PATTERN[start : start + size]


class Notes:
    """Two slots of (position, next number): maps the ring's position to the number for a replacement.

    The slot of the former position stays whole while the other is filled, so its writer may die at any store.
    """

    def __init__(self, words: memoryview, first: int, position: int) -> None:
        self.words = words
        slots = (first, first + 2)
        current = next(slot for slot in slots if words[slot] == position)
        self.current, self.other = current, slots[0] + slots[1] - current

    def number(self) -> int:
        return self.words[self.current + 1]

    def note(self, position: int, number: int) -> None:
        self.words[self.other + 1] = number
        self.words[self.other] = position
        self.current, self.other = self.other, self.current


def produce(view: memoryview, target: int, chance: random.Random) -> None:
    """Publish frames in batches up to the number `target`, going on where a predecessor stopped."""
    producer = RingProducer(view, RING)
    largest = min(producer.max_payload, 1000)
    notes = Notes(view[:NOTES_BYTES].cast("q"), 0, producer.position)
    number = notes.number()
    while number < target:
        before = number
        for _ in range(min(chance.randrange(1, 9), target - number)):
            payload = frame(number, largest)
            at = producer.claim(len(payload))
            if at < 0:
                break
            view[at : at + len(payload)] = payload
            number += 1
        if number > before:
            notes.note(producer.position, number)
            producer.publish()
        else:
            os.sched_yield()


def consume(view: memoryview, target: int, chance: random.Random) -> None:
    """Check every frame on arrival and again before its release; releases are delayed by random steps."""
    consumer = RingConsumer(view, RING)
    largest = min(consumer.capacity // 2 - 8, 1000)
    notes = Notes(view[:NOTES_BYTES].cast("q"), 4, consumer.cursor)
    number = notes.number()
    held: deque[tuple[int, int, int, int]] = deque()
    while number < target or held:
        frames = consumer.read(chance.randrange(1, 12))
        for at, size, end in frames:
            expected = frame(number, largest)
            assert view[at : at + size] == expected, f"frame {number} at {end}"
            held.append((at, size, end, number))
            number += 1
        if not frames and not held:
            os.sched_yield()
        for _ in range(chance.randrange(len(held) + 1) if frames else len(held)):
            at, size, end, released = held.popleft()
            assert view[at : at + size] == frame(released, largest), f"frame {released} changed before release"
            notes.note(end, released + 1)
            consumer.release_to(end)
    assert consumer.pending() == 0


def bodies_over(view: memoryview, target: int, chance: random.Random) -> list[Callable[[], None]]:
    producing, consuming = chance.getrandbits(32), chance.getrandbits(32)
    return [
        lambda: produce(view, target, random.Random(producing)),
        lambda: consume(view, target, random.Random(consuming)),
    ]


@pytest.mark.parametrize("capacity", [64, 192, 4096, 65536])
def test_frames_come_once_whole_and_in_order(capacity: int) -> None:
    chance = seeded()
    with segment_of(RING + ring_bytes(capacity)) as segment:
        initialise(segment.view, RING, capacity)
        run_together(*bodies_over(segment.view, 8000, chance))


@pytest.mark.parametrize("victims", [[0], [1], [0, 1]], ids=["producer", "consumer", "both"])
@pytest.mark.parametrize("capacity", [192, 8192])
def test_also_when_an_end_is_killed_and_replaced(capacity: int, victims: list[int]) -> None:
    chance = seeded()

    def run() -> int:
        with segment_of(RING + ring_bytes(capacity)) as segment:
            initialise(segment.view, RING, capacity)
            # Long enough that deaths do not fall after the end of the run; the rest then runs undisturbed.
            killed = run_with_deaths(bodies_over(segment.view, FRAMES, chance), victims, 25, chance)
            assert FRAMES in (segment.words[1], segment.words[3])
            assert FRAMES in (segment.words[5], segment.words[7])
        return killed

    repeat_until_hit(run)


Bell = SemaphoreBell | EventBell


@contextmanager
def bells_of(kind: str) -> Iterator[list[Bell]]:
    """Yield a bell for each of two processes."""
    if kind == "eventfd":
        events = [EventBell(), EventBell()]
        yield list(events)
        for event in events:
            event.close()
        return
    names = [f"/rotundatest-{new_instance()}-bell-{side}" for side in range(2)]
    semaphores = [SemaphoreBell(posix_ipc.Semaphore(name, posix_ipc.O_CREX)) for name in names]
    try:
        yield list(semaphores)
    finally:
        for semaphore in semaphores:
            semaphore.unlink()
            semaphore.close()


def wait_for(bell: Bell) -> None:
    """Sleep until the bell rings; AssertionError when it does not."""
    if isinstance(bell, SemaphoreBell):
        assert bell.wait(deadline_s(60))
    else:
        poll = select.poll()
        poll.register(bell.fileno(), select.POLLIN)
        assert poll.poll(120_000)
        bell.drain()


@pytest.mark.parametrize("kind", ["semaphore", "eventfd"])
def test_no_wake_up_is_lost(kind: str) -> None:
    """Each frame is published and rung for once, and only after the former was seen; a lost ring would hang."""
    rounds = 3000
    bases = (0, ring_bytes(4096))

    def play(view: memoryview, bells: list[Bell], side: int) -> None:
        consumer = RingConsumer(view, bases[side])
        producer = RingProducer(view, bases[1 - side])

        def serve() -> None:
            producer.claim(8)
            producer.publish()
            bells[1 - side].ring()

        if side == 0:
            serve()
        seen = 0
        while seen < rounds:
            wait_for(bells[side])
            for _ in consumer.read(10):
                seen += 1
                consumer.release()
                serve()

    with segment_of(2 * ring_bytes(4096)) as segment, bells_of(kind) as bells:
        for base in bases:
            initialise(segment.view, base, 4096)
        run_together(lambda: play(segment.view, bells, 0), lambda: play(segment.view, bells, 1))
