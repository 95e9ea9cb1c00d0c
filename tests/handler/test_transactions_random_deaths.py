"""Concurrent transactional producers of both protocols, while handlers and the controller die at random lines.

Every request must get the same response as without a death. A read_committed consumer may see a record only after its
producer has requested the commit, and never if it requested the abort; at the end exactly the committed ones are
stored, once and in order, and the group has the offset of the last commit. users.md row 11.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.transactional import (
    Fuse,
    TransactionalProducer,
    add_errors,
    answer_of,
    committed_offset,
    committed_values,
    offset_errors,
    produce_errors,
)

pytestmark = pytest.mark.slow

PARTITIONS = 4
TARGETS = 3
CONTROLLER = 2
ROUNDS = 800
LONGEST_FUSE = 2500
DEATH = 0.08


class Actor:
    """One producer that runs transaction after transaction; each step is sent after the response to the last one."""

    def __init__(self, broker: SteppedBroker, name: str, chance: random.Random, *, newest: bool) -> None:
        self.name = name
        self.producer = TransactionalProducer(broker, name, newest=newest)
        self.going_on = True
        #: By partition: values whose commit has been requested, and those that will never be committed.
        self.committed: defaultdict[int, list[bytes]] = defaultdict(list)
        self.transactions = 0
        self.offset = -1
        self._chance = chance
        self._steps = self._work()
        self._waiting: list[Sent] = []

    def act(self) -> bool:
        """Send the next step if no request is pending; return False after the last one."""
        if all(sent.answers for sent in self._waiting):
            self._waiting = next(self._steps, [])
            return bool(self._waiting)
        return True

    def _work(self) -> Iterator[list[Sent]]:
        sent = self.producer.init()
        yield [sent]
        assert self.producer.take(sent) == 0, self.name
        while self.going_on:
            yield from self._transaction(commit=self._chance.random() < 0.6)
            self.transactions += 1
            if self._chance.random() < 0.1:
                sent = self.producer.init()
                yield [sent]
                assert self.producer.take(sent) == 0, self.name

    def _transaction(self, *, commit: bool) -> Iterator[list[Sent]]:
        producer, chance, group = self.producer, self._chance, f"group-{self.name}"
        places = [("topic", p) for p in chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))]
        values: defaultdict[int, list[bytes]] = defaultdict(list)
        if not producer.newest:
            sent = producer.add(places)
            yield [sent]
            assert set(add_errors(sent)) == {0}, self.name
        requests = []
        for number in range(chance.randint(1, 3)):
            value = b"%s.%d.%d" % (self.name.encode(), self.transactions, number)
            requests.append(producer.produce([(*place, value) for place in places]))
            for _, partition in places:
                values[partition].append(value)
        yield requests
        for sent in requests:
            assert set(produce_errors(sent)) == {0}, self.name
        if not producer.newest:
            sent = producer.add_offsets(group)
            yield [sent]
            assert int(answer_of(sent).error_code) == 0, self.name
        sent = producer.commit_offset(group, "topic", self.transactions)
        yield [sent]
        assert offset_errors(sent) == [0], self.name
        if commit:
            self.offset = self.transactions
            for partition, added in values.items():
                self.committed[partition] += added
        sent = producer.end(commit=commit)
        yield [sent]
        assert producer.take(sent) == 0, self.name


def check_visible(broker: SteppedBroker, actors: list[Actor], *, complete: bool) -> None:
    """Check that only committed records are visible, in order; ``complete``: and all of them."""
    for partition in range(PARTITIONS):
        visible: defaultdict[str, list[bytes]] = defaultdict(list)
        for value in committed_values(broker, "topic", partition):
            visible[value.split(b".")[0].decode()].append(value)
        for actor in actors:
            expected, seen = actor.committed[partition], visible[actor.name]
            assert seen == (expected if complete else expected[: len(seen)]), f"{actor.name} in {partition}"


class Deaths:
    """Runs every target, sometimes kills one in the middle of its turn, and replaces it some rounds later."""

    def __init__(self, broker: SteppedBroker, chance: random.Random) -> None:
        self.count = 0
        self._broker = broker
        self._chance = chance

    def turn_all(self) -> None:
        """Run one round."""
        for target in range(TARGETS):
            self._turn(target)
        self._broker.drain()
        self._broker.clock.advance_ns(1_000_000)

    def replace_all(self) -> None:
        """Replace all dead targets."""
        for target in range(TARGETS):
            if self._broker.handlers[target] is None:
                self._broker.replace(target)

    def _turn(self, target: int) -> None:
        broker, chance = self._broker, self._chance
        handler = broker.handlers[target]
        if handler is None:
            if chance.random() < 0.4:
                broker.replace(target)
        elif chance.random() < DEATH:
            fuse = Fuse(chance.randrange(1, LONGEST_FUSE))
            fuse.run(handler.run_once)
            if fuse.burnt:
                broker.kill(target)
                self.count += 1
        else:
            handler.run_once()


def test_random_deaths_leave_transactions_whole(broker: SteppedBroker) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    actors = [Actor(broker, f"id-{n}", chance, newest=n % 2 == 0) for n in range(4)]
    deaths = Deaths(broker, chance)
    for number in range(ROUNDS):
        for actor in actors:
            actor.act()
        deaths.turn_all()
        if number % 10 == 0 and broker.handlers[CONTROLLER] is not None:
            check_visible(broker, actors, complete=False)
    deaths.replace_all()
    for actor in actors:
        actor.going_on = False
    while sum(actor.act() for actor in actors):
        broker.settle(20)
    check_visible(broker, actors, complete=True)
    for actor in actors:
        assert committed_offset(broker, f"group-{actor.name}", "topic") == actor.offset
    transactions = sum(actor.transactions for actor in actors)
    print(f"{deaths.count} deaths, {transactions} transactions")
    assert deaths.count > 20
    assert transactions > 20
