"""Ring fill: frames and bytes between head and tail, across the wrap, and while both ends move."""

import os
import random

from rotunda.shm.rings.ring import RingConsumer, RingProducer, initialise, ring_bytes
from rotunda.shm.rings.ring_fill import RingFill, read_fill
from tests.litmus.two_processes import run_together, segment_of

BASE = 64
CAPACITY = 4096


def test_of_a_ring_that_is_filled_and_emptied_at_random() -> None:
    """Row `D01`: the request queue's size is the number of published, unreleased frames."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    view = memoryview(bytearray(BASE + ring_bytes(CAPACITY)))
    assert read_fill(view, BASE) == RingFill(0, 0, 0)
    initialise(view, BASE, CAPACITY)
    producer, consumer = RingProducer(view, BASE), RingConsumer(view, BASE)
    ends: list[int] = []
    for _ in range(2000):
        while chance.random() < 0.6 and producer.claim(chance.randrange(400)) >= 0:
            ends.append(0)
        producer.publish()
        used = producer.position - producer.consumed()
        assert read_fill(view.toreadonly(), BASE) == RingFill(used, len(ends), CAPACITY)
        if ends and chance.random() < 0.7:
            frames = consumer.read(chance.randrange(1, 10))
            consumer.release()
            del ends[: len(frames)]


def test_a_frame_that_is_claimed_and_not_published_does_not_count() -> None:
    view = memoryview(bytearray(BASE + ring_bytes(CAPACITY)))
    initialise(view, BASE, CAPACITY)
    producer = RingProducer(view, BASE)
    producer.claim(8)
    assert read_fill(view, BASE) == RingFill(0, 0, CAPACITY)


def test_the_fill_is_possible_whenever_another_process_reads_it() -> None:
    """Possible values: from zero to the ring's capacity in frames of 56 bytes, with a matching number of bytes."""
    done = 0
    with segment_of(BASE + ring_bytes(CAPACITY)) as segment:
        initialise(segment.view, BASE, CAPACITY)

        def move() -> None:
            producer, consumer = RingProducer(segment.view, BASE), RingConsumer(segment.view, BASE)
            for number in range(60_000):
                if producer.claim(48) < 0 or not number % 7:
                    producer.publish()
                    consumer.read(number % 90)
                    consumer.release()
            segment.words[done] = 1

        def look() -> None:
            while not segment.words[done]:
                fill = read_fill(segment.view, BASE)
                assert 0 <= fill.used_bytes <= CAPACITY
                # The end of the data is padded where a frame would not fit.
                assert fill.used_bytes - 56 < fill.frames * 56 <= fill.used_bytes
                os.sched_yield()

        run_together(move, look)
