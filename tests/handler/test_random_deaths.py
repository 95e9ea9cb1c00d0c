"""Handlers that die at random lines, in random order, with rings that are often full and disks that sometimes are.

Every request gets a response; a record is in its partition once if its first response had no error, and not at all
otherwise; the response has the record's true offset. Processors die too, alone and together with handlers: pending
requests of their connections are stored once or not at all.
"""

from __future__ import annotations

import errno
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.ipc import request_channel
from rotunda.broker.log.segments import log_segment
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker, produced

pytestmark = pytest.mark.slow

TOPICS = {"plain": {}, "stamped": {"message.timestamp.type": "LogAppendTime"}}
PARTITIONS = 6


class Schedule:
    """One run: the sent requests, and the dead processes."""

    def __init__(self, broker: SteppedBroker, seed: int, disk_fails: Callable[[float], None], death: float) -> None:
        self.broker = broker
        #: The probability of a death at a step.
        self.death = death
        self.random = random.Random(seed)
        self.disk_fails = disk_fails
        self.clients = [Producer(broker.client(p % broker.context.processors), p) for p in range(4)]
        self.dead: set[int] = set()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        for target in sorted(self.dead):
            self.bring_back(target)
        self.broker.settle(400)

    def step(self) -> None:
        broker, choose = self.broker, self.random
        # A handler looks at each request until it gets one that is younger than its start.
        broker.clock.advance_ns(1000)
        kind = choose.random()
        target = choose.randrange(broker.context.handlers)
        if kind < 0.35:
            producer = choose.choice(self.clients)
            for _ in range(choose.randrange(1, 5)):
                producer.send(choose)
        elif kind < 0.44:
            broker.drain(choose.randrange(broker.context.processors))
        elif kind < 0.45:
            self.replace_processor(choose.randrange(broker.context.processors))
        elif target in self.dead:
            self.bring_back(target)
        elif kind < 0.55:
            self.disk_fails(0.3)
            broker.run_once(target)
            self.disk_fails(0.0)
        elif kind < 1 - self.death:
            broker.run_once(target)
        elif broker.turn_until_line(target, int(choose.expovariate(1 / 600)) + 1):
            broker.kill(target)
            self.dead.add(target)

    def replace_processor(self, processor: int) -> None:
        self.broker.replace_processor(processor)
        for producer in self.clients:
            if producer.client.processor == processor:
                producer.connect_again(self.broker.client(processor))

    def bring_back(self, target: int) -> None:
        self.dead.discard(target)
        dies_too = self.random.random() < 0.2
        if dies_too and self.broker.boot_until_line(target, self.random.randrange(1, 400)):
            self.broker.kill(target)
        self.broker.replace(target)


class Producer:
    """A connection whose records are all different."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.requests: list[tuple[Sent, int, list[tuple[str, int, bytes]]]] = []
        #: Requests without a response when their connection was lost: the client never learns the outcome.
        self.unknown: set[tuple[str, int, bytes]] = set()

    def connect_again(self, client: Client) -> None:
        self.client = client
        self.unknown.update(value for sent, _, values in self.requests if not sent.answers for value in values)
        self.number += 100
        self.requests = [each for each in self.requests if each[0].answers]

    def send(self, choose: random.Random) -> None:
        waiting = [sent for sent, _, _ in self.requests if not sent.answers]
        if len(waiting) >= 8 or sum(len(sent.frame) for sent in waiting) > 3000:
            return
        if self.number % 4 and choose.random() < 0.9:
            # Like its last one: compiled code handles these.
            acks, places = -1, [("plain", self.number % PARTITIONS)]
        else:
            acks = choose.choice((1, 1, 1, -1, 0))
            places = [
                (choose.choice(list(TOPICS)), choose.randrange(PARTITIONS)) for _ in range(choose.choice((1, 1, 2, 4)))
            ]
        parts, values = [], []
        for topic, partition in dict.fromkeys(places):
            value = b"%d.%d.%d" % (self.number, len(self.requests), len(parts))
            padding = b"." * choose.choice((0, 0, 0, 5000 if len(waiting) < 2 else 0))
            parts.append((topic, partition, record_batch([value + b" " + padding])))
            values.append((topic, partition, value))
        self.requests.append((self.client.produce(parts, acks), acks, values))


@pytest.fixture
def disk_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the probability of a partial write to a segment."""
    chance = 0.0
    writes = 0
    real = os.pwritev

    def pwritev(fd: int, chunks: list[memoryview], position: int) -> int:
        nonlocal writes
        writes += 1
        if zlib.crc32(b"%d" % writes) / 2**32 < chance:
            os.pwrite(fd, bytes(chunks[0])[:40], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, chunks, position)

    def set_chance(value: float) -> None:
        nonlocal chance
        chance = value

    monkeypatch.setattr(log_segment.os, "pwritev", pwritev)
    return set_chance


@pytest.mark.parametrize("round_number", range(12))
def test_every_record_once_despite_deaths(
    tmp_path: Path,
    round_number: int,
    disk_fails: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = random.SystemRandom().randrange(1 << 32) if round_number >= 4 else round_number
    print(f"seed {seed}")
    settings = random.Random(seed)
    monkeypatch.setattr(request_channel, "PEER_RING_BYTES", settings.choice((512, 1024, 64 * 1024)))
    broker = SteppedBroker(
        tmp_path,
        handlers=settings.choice((1, 2, 3)),
        processors=settings.choice((1, 2)),
        ring_bytes=settings.choice((8 * 1024, 16 * 1024, 256 * 1024)),
    )
    try:
        for topic, configs in TOPICS.items():
            broker.create(topic, PARTITIONS, configs)
        # Compiled code handles no requests until each processor has sent one after a death.
        schedule = Schedule(broker, seed, disk_fails, death=settings.choice((0.01, 0.2)))
        schedule.run(250)
        check(broker, schedule)
    finally:
        broker.close()


def check(broker: SteppedBroker, schedule: Schedule) -> None:
    found = {
        (topic, partition): [
            (record.offset, record.value.split(b" ")[0]) for record in broker.records(topic, partition)
        ]
        for topic in TOPICS
        for partition in range(PARTITIONS)
    }
    expected: set[tuple[str, int, bytes]] = set()
    for producer in schedule.clients:
        for topic, partition, value in producer.unknown:
            places = [at for at, other in found[topic, partition] if other == value]
            assert len(places) <= 1, f"{value}, of a lost connection, stands at {places}"
            expected.update((topic, partition, value) for _ in places)
        for sent, acks, values in producer.requests:
            assert sent.answers, f"request of {values} was never answered"
            outcomes = produced(sent) if acks else [(0, None)] * len(values)
            if acks == 0 and sent.answer.kind == request_channel.CLOSE_CONNECTION:
                # Some part failed, and the response does not identify it.
                expected.update(value for value in values if value[2] in {v for _, v in found[value[:2]]})
                continue
            for (topic, partition, value), (error, offset) in zip(values, outcomes, strict=True):
                places = [at for at, other in found[topic, partition] if other == value]
                if error:
                    assert not places, f"{value} stands at {places} and was answered with error {error}"
                    continue
                expected.add((topic, partition, value))
                assert len(places) == 1, f"{value} stands at {places}, answered {offset}"
                assert offset in (places[0], None)
    assert expected == {(*place, value) for place, records in found.items() for _, value in records}
    for processor in range(broker.context.processors):
        for target in range(broker.context.handlers):
            assert broker.released(processor, target)
