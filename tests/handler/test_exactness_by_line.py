"""A handler dies before each single line of the code that reads, commits, acknowledges and releases a Produce.

The dead one is replaced, all processes run until idle, and then every record must be stored exactly once, in order, at
the offset in its first response. The lines of a turn are tried one after the other; a case is over when a turn has
survived. Cases that mostly repeat the lines of a simpler case try every n-th line, starting at a random one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from rotunda.broker.ipc.request_channel import NO_OP
from tests.support.fakes import failing
from tests.support.record_batches import record_batch, with_max_timestamp
from tests.support.sampling import Sampling
from tests.support.stepped_broker import Client, Killed, Sent, SteppedBroker, produced

#: (topic, partition, record batch, values in it)
Part = tuple[str, int, bytes, list[bytes]]

ORIGIN, OWNER = 0, 1


class Requests:
    """The requests of one trial, and the records that all trials must have left in the logs."""

    def __init__(self, broker: SteppedBroker) -> None:
        self.broker = broker
        self.trial = 0
        self.sent: list[tuple[Sent, int, list[Part]]] = []
        self.expected: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.own = broker.owned_by("topic", ORIGIN)
        self.foreign = broker.owned_by("topic", OWNER)

    def part(self, partition: int, *, count: int = 1, size: int = 0, **fields: int) -> Part:
        """Return a new batch for a partition."""
        values = [b"%d.%d.%d" % (self.trial, len(self.sent), n) + b"." * size for n in range(count)]
        return "topic", partition, record_batch(values, **fields), values

    def produce(self, client: Client, parts: Sequence[Part], acks: int = 1, *, again: bool = False) -> None:
        """Send a request; ``again``: its records have been sent before."""
        self.sent.append((client.produce([part[:3] for part in parts], acks), acks, list(parts)))
        if not again:
            for topic, partition, _, values in parts:
                self.expected[topic, partition] += values

    def check_answers(self) -> None:
        """Check that every request got a response without an error."""
        for sent, acks, parts in self.sent:
            assert sent.answers, f"trial {self.trial}: no answer"
            if acks == 0:
                assert sent.answer.kind == NO_OP
                assert sent.answer.payload == b""
            else:
                assert [error for error, _ in produced(sent)] == [0] * len(parts), f"trial {self.trial}"

    def check_records(self, answered: Sequence[tuple[Sent, int, list[Part]]]) -> None:
        """Check that all records are stored once, in order, and at the offsets in the responses."""
        found = {place: self.broker.records(*place) for place in self.expected}
        for place, records in found.items():
            assert [record.value for record in records] == self.expected[place], place
        for sent, acks, parts in answered:
            if acks:
                for (topic, partition, _, values), (_, offset) in zip(parts, produced(sent), strict=True):
                    assert found[topic, partition][offset].value == values[0]


def fast(requests: Requests) -> None:
    """Send three requests on a known connection."""
    client = requests.broker.client()
    requests.produce(client, [requests.part(requests.own[0])])
    requests.broker.settle()
    for _ in range(3):
        requests.produce(client, [requests.part(requests.own[0], count=2)])


def general(requests: Requests) -> None:
    requests.produce(requests.broker.client(), [requests.part(requests.own[0])], acks=-1)


def two_partitions(requests: Requests) -> None:
    client = requests.broker.client()
    for _ in range(2):
        requests.produce(client, [requests.part(partition) for partition in requests.own])


def untold(requests: Requests) -> None:
    """Send batches that are copied before storing: their headers lack the largest timestamp."""
    client = requests.broker.client()
    requests.produce(client, [requests.part(requests.own[0])])
    requests.broker.settle()
    for _ in range(2):
        topic, partition, batch, values = requests.part(requests.own[0], count=2)
        requests.produce(client, [(topic, partition, with_max_timestamp(batch, -1), values)])


def both_owners_untold(requests: Requests) -> None:
    client = requests.broker.client()
    parts = [requests.part(place) for place in (requests.own[0], requests.foreign[0])]
    requests.produce(client, [(topic, at, with_max_timestamp(batch, -1), values) for topic, at, batch, values in parts])


def without_acks(requests: Requests) -> None:
    client = requests.broker.client()
    for _ in range(2):
        requests.produce(client, [requests.part(requests.own[0])], acks=0)


def idempotent(requests: Requests) -> None:
    """Send three requests of an idempotent producer and one that repeats the second."""
    client = requests.broker.client()
    producer = {"producer_id": 1000 + requests.trial, "producer_epoch": 0}
    parts: list[Part] = []
    for n in range(3):
        parts.append(requests.part(requests.own[0], base_sequence=n, **producer))
        requests.produce(client, [parts[-1]])
    requests.produce(client, [parts[1]], again=True)


def in_the_arena(requests: Requests) -> None:
    requests.produce(requests.broker.client(), [requests.part(requests.own[0], size=70_000)])


def both_owners(requests: Requests) -> None:
    client = requests.broker.client()
    for _ in range(2):
        requests.produce(client, [requests.part(requests.own[0]), requests.part(requests.foreign[0])])


def both_owners_in_the_arena(requests: Requests) -> None:
    parts = [requests.part(requests.own[0]), requests.part(requests.foreign[0], size=70_000)]
    requests.produce(requests.broker.client(), parts, acks=-1)


def both_owners_idempotent(requests: Requests) -> None:
    client = requests.broker.client()
    producer = {"producer_id": 1000 + requests.trial, "producer_epoch": 0}
    places = (requests.own[0], requests.foreign[0], requests.foreign[1])
    first = [requests.part(place, base_sequence=0, **producer) for place in places]
    requests.produce(client, first)
    requests.produce(client, [requests.part(place, base_sequence=1, **producer) for place in places])
    requests.produce(client, first, again=True)


def both_owners_without_acks(requests: Requests) -> None:
    requests.produce(requests.broker.client(), [requests.part(p) for p in (requests.own[0], *requests.foreign)], acks=0)


class Case(NamedTuple):
    """The order of turns, of which the last one is killed."""

    send: Callable[[Requests], None]
    turns: tuple[int, ...]
    every: int = 1
    stamped: bool = False


ALONE = (ORIGIN,)
FORWARDING = (ORIGIN,)
OWNING = (ORIGIN, OWNER)
ANSWERING = (ORIGIN, OWNER, ORIGIN)
RELEASING = (ORIGIN, OWNER, ORIGIN, ORIGIN)

CASES = {
    "fast": Case(fast, ALONE),
    "general": Case(general, ALONE),
    "general, log append time": Case(general, ALONE, 3, stamped=True),
    "without the largest timestamp": Case(untold, ALONE, 3),
    "two partitions": Case(two_partitions, ALONE, 3),
    "without acks": Case(without_acks, ALONE, 3),
    "idempotent": Case(idempotent, ALONE, 3),
    "in the arena": Case(in_the_arena, ALONE, 3),
    "both owners, origin forwards": Case(both_owners, FORWARDING, 3),
    "both owners, owner appends": Case(both_owners, OWNING, 3),
    "both owners, owner appends, log append time": Case(both_owners, OWNING, 3, stamped=True),
    "both owners, owner appends, without the largest timestamp": Case(both_owners_untold, OWNING, 3),
    "both owners, origin answers": Case(both_owners, ANSWERING, 3),
    "both owners, origin releases": Case(both_owners, RELEASING, 3),
    "both owners in the arena, owner appends": Case(both_owners_in_the_arena, OWNING, 3),
    "both owners in the arena, origin answers": Case(both_owners_in_the_arena, ANSWERING, 3),
    "both owners idempotent, owner appends": Case(both_owners_idempotent, OWNING, 5),
    "both owners without acks, origin answers": Case(both_owners_without_acks, ANSWERING, 3),
}


pytestmark = [pytest.mark.slow, pytest.mark.stepped({})]


def run(broker: SteppedBroker, case: Case, sampling: Sampling, die: Callable[[int], bool]) -> int:
    """Run the case for each of its lines; ``die(line)`` is False when the turn survived."""
    broker.create("topic", 4, {"message.timestamp.type": "LogAppendTime"} if case.stamped else {})
    requests = Requests(broker)
    answered: list[tuple[Sent, int, list[Part]]] = []
    for line in sampling.walk(case.every):
        requests.trial = line
        requests.sent = []
        case.send(requests)
        for target in case.turns[:-1]:
            broker.run_once(target)
        died = die(line)
        broker.settle()
        requests.check_answers()
        answered += requests.sent
        broker.forget_clients()
        if not died:
            break
    requests.check_records(answered)
    assert all(broker.released(0, target) for target in (ORIGIN, OWNER))
    return line


@pytest.mark.parametrize("name", CASES)
def test_a_handler_dies_at_any_line(broker: SteppedBroker, sampling: Sampling, name: str) -> None:
    case = CASES[name]
    victim = case.turns[-1]

    assert run(broker, case, sampling, lambda line: broker.replaced_at_line(victim, line)) > 100


@pytest.mark.parametrize("name", ["both owners, origin forwards", "both owners, owner appends"])
def test_both_owners_die(broker: SteppedBroker, sampling: Sampling, name: str) -> None:
    """The second one at a random line, and in either order of replacement."""
    case = CASES[name]._replace(every=6)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)

    def die(line: int) -> bool:
        first = case.turns[-1]
        second = OWNER if first == ORIGIN else ORIGIN
        died = broker.turn_until_line(first, line)
        broker.turn_until_line(second, choose.randrange(1, 1000))
        for target in choose.sample((first, second), 2):
            broker.replace(target)
            if choose.random() < 0.5:
                broker.run_once(target)
        return died

    assert run(broker, case, sampling, die) > 100


@pytest.mark.parametrize("name", ["fast", "both owners, owner appends", "both owners, owner appends, log append time"])
def test_the_replacement_dies_during_recovery(broker: SteppedBroker, sampling: Sampling, name: str) -> None:
    """The first dies between the write of the records and the publication of the end: the notes exist."""
    case = CASES[name]._replace(every=5)
    victim = case.turns[-1]

    def die(line: int) -> bool:
        owned = next(o for o in broker.parts(victim).partitions.owned.values() if o.log.name.topic == "topic")
        dies_before(broker, victim, type(owned.writer), "publish")
        died = broker.boot_until_line(victim, line)
        broker.replace(victim)
        return died

    assert run(broker, case, sampling, die) > 40


def dies_before(broker: SteppedBroker, target: int, owner: type, method: str) -> None:
    """Run a target, kill it when it calls a method, and leave it dead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, failing(Killed()))
        with pytest.raises(Killed):
            broker.run_once(target)
    broker.kill(target)
