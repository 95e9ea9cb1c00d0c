"""A handler or the controller dies at any line during a transaction: read_committed never shows wrong records.

Three targets, all run by the test. Every trial runs one whole transaction, and in one of its steps one target dies
before its n-th line, over all turns of the step, and is replaced. Every request must get the same response as without a
death; no undecided or aborted record may be visible at any time, and at the end every committed record is stored once
and in order, and no transaction is open. users.md row 11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.support.sampling import Sampling
from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.transactional import (
    TIMEOUT_MS,
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
PLACES = [("topic", partition) for partition in range(PARTITIONS)]
CONTROLLER = 2
GROUP = "group"
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED = 47, 48, 90


class Trial(NamedTuple):
    """One transaction: its values, its end, and its steps."""

    number: int
    commit: bool

    def value(self, partition: int, request: int) -> bytes:
        """Return a unique value."""
        return b"%d.%d.%d" % (self.number, partition, request)


#: Sends the requests of a step, and sets the expected error codes of the responses.
Step = Callable[[TransactionalProducer, Trial], list[tuple[Sent, Callable[[Sent], list[int]]]]]


def _one_code(sent: Sent) -> list[int]:
    return [int(answer_of(sent).error_code)]


def init(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    del trial
    return [(producer.init(), _one_code)]


def add(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    del trial
    return [(producer.add(PLACES), add_errors)]


def produce(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Send two requests for all partitions: the handler that gets them forwards half of each."""
    return [
        (producer.produce([("topic", p, trial.value(p, request)) for p in range(PARTITIONS)]), produce_errors)
        for request in range(2)
    ]


def produce_to_one(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Send three requests in flight to their owner, like librdkafka."""
    return [(producer.produce([("topic", 1, trial.value(1, n))]), produce_errors) for n in range(3)]


def add_offsets(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    del trial
    return [(producer.add_offsets(GROUP), _one_code)]


def commit_offset(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    return [(producer.commit_offset(GROUP, "topic", trial.number), offset_errors)]


def end(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    return [(producer.end(commit=trial.commit), _one_code)]


def time_out(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Silence the producer for longer than its transaction timeout."""
    del trial
    producer.broker.clock.advance_ns((TIMEOUT_MS + 2_000) * 1_000_000)
    return []


def fence(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Start another producer with the same transactional id, on a connection of its own."""
    del trial
    other = TransactionalProducer(producer.broker, producer.transactional_id, newest=producer.newest)
    return [(other.init(), _one_code)]


def fenced(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Try in vain to continue: the error is INVALID_PRODUCER_EPOCH, or PRODUCER_FENCED in newer versions."""
    return [
        produce_in_vain(producer),
        (producer.end(commit=trial.commit), lambda sent: _refused(_one_code(sent))),
    ]


def too_late(producer: TransactionalProducer, trial: Trial) -> list[tuple[Sent, Callable[[Sent], list[int]]]]:
    """Continue after a timeout in transaction version 2: an abort succeeds, a commit is INVALID_TXN_STATE."""
    expected = INVALID_TXN_STATE if trial.commit else 0
    return [
        produce_in_vain(producer),
        (producer.end(commit=trial.commit), lambda sent: [code - expected for code in _one_code(sent)]),
    ]


def produce_in_vain(producer: TransactionalProducer) -> tuple[Sent, Callable[[Sent], list[int]]]:
    zombie = [("topic", p, b"zombie") for p in range(PARTITIONS)]
    return producer.produce(zombie), lambda sent: _refused(produce_errors(sent))


def _refused(codes: list[int]) -> list[int]:
    return [code - INVALID_PRODUCER_EPOCH if code != PRODUCER_FENCED else 0 for code in codes]


PLAIN: tuple[Step, ...] = (add, produce, end)
NEWEST: tuple[Step, ...] = (produce, end)
TO_ONE: tuple[Step, ...] = (add, produce_to_one, end)
NEWEST_TO_ONE: tuple[Step, ...] = (produce_to_one, end)


OFFSETS: tuple[Step, ...] = (add_offsets, commit_offset, end)
NEWEST_OFFSETS: tuple[Step, ...] = (commit_offset, end)


class Case(NamedTuple):
    """The steps of each transaction, and the one in which a target dies; every n-th line is tried."""

    steps: tuple[Step, ...]
    deadly: Step
    newest: bool
    every: int


CASES = {
    "plain, add": Case(PLAIN, add, newest=False, every=41),
    "plain, produce": Case(PLAIN, produce, newest=False, every=97),
    "plain, produce to one": Case(TO_ONE, produce_to_one, newest=False, every=67),
    "plain, end": Case(PLAIN, end, newest=False, every=67),
    "newest, produce": Case(NEWEST, produce, newest=True, every=97),
    "newest, produce to one": Case(NEWEST_TO_ONE, produce_to_one, newest=True, every=67),
    "newest, end": Case(NEWEST, end, newest=True, every=67),
    "plain, init": Case((init, *PLAIN), init, newest=False, every=37),
    "newest, init": Case((init, *NEWEST), init, newest=True, every=37),
    "plain, add offsets": Case(OFFSETS, add_offsets, newest=False, every=61),
    "plain, offsets": Case(OFFSETS, commit_offset, newest=False, every=61),
    "plain, offsets, end": Case(OFFSETS, end, newest=False, every=97),
    "newest, offsets": Case(NEWEST_OFFSETS, commit_offset, newest=True, every=61),
    "newest, offsets, end": Case(NEWEST_OFFSETS, end, newest=True, every=97),
    "plain, time out": Case((add, produce, time_out, fenced, init), time_out, newest=False, every=97),
    "newest, time out": Case((produce, time_out, too_late, init), time_out, newest=True, every=97),
    "plain, fence": Case((add, produce, fence, fenced, init), fence, newest=False, every=131),
    "newest, fence": Case((produce, fence, fenced, init), fence, newest=True, every=131),
}


class World:
    """A broker, its producer, and the records that a committed reader must see."""

    def __init__(self, broker: SteppedBroker, case: Case) -> None:
        self.broker = broker
        self.case = case
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.offset = -1
        self.producer = TransactionalProducer(broker, "id", newest=case.newest)
        sent = self.producer.init()
        broker.settle()
        assert self.producer.take(sent) == 0
        broker.forget_clients()
        self.producer.client = broker.client()

    def run(self, trial: Trial, victim: int, line: int) -> bool:
        """Run one transaction; return False if the victim survived it."""
        fuse = Fuse(line)
        values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for step in self.case.steps:
            requests = step(self.producer, trial)
            self._turn_all(victim, fuse if step is self.case.deadly else None)
            for sent, codes in requests:
                assert sent.answers, f"trial {trial}: no answer in {step.__name__}"
                assert set(codes(sent)) == {0}, f"trial {trial}: {codes(sent)} in {step.__name__}"
            if step in (init, end):
                assert self.producer.take(requests[-1][0]) == 0
            if step in (time_out, fence):
                values = [[] for _ in range(PARTITIONS)]
            if step is produce:
                values = [[trial.value(p, 0), trial.value(p, 1)] for p in range(PARTITIONS)]
            if step is produce_to_one:
                values[1] = [trial.value(1, n) for n in range(3)]
            self._check_nothing_undecided(trial, values if step is end and trial.commit else None)
        if commit_offset in self.case.steps:
            if trial.commit:
                self.offset = trial.number
            assert committed_offset(self.broker, GROUP, "topic") == self.offset, f"trial {trial}"
        self.broker.forget_clients()
        # A connection never uses a sequence number twice.
        self.producer.client = self.broker.client()
        return fuse.burnt

    def check_all(self) -> None:
        """Check that no transaction is open, and that committed records are stored once and in order."""
        assert self._nothing_open()
        for partition in range(PARTITIONS):
            assert committed_values(self.broker, "topic", partition) == self.expected[partition]

    def _check_nothing_undecided(self, trial: Trial, decided: list[list[bytes]] | None) -> None:
        for partition, expected in enumerate(self.expected):
            if decided is not None:
                expected.extend(decided[partition])
            assert committed_values(self.broker, "topic", partition) == expected, f"trial {trial}"

    def _turn_all(self, victim: int, fuse: Fuse | None) -> None:
        """Run all targets until every request has a response; the victim dies and is replaced after a round or two."""
        dead_for = -1
        broker = self.broker
        waits = fuse is not None and self.case.deadly is time_out
        for _ in range(400):
            worked = False
            for target, handler in enumerate(broker.handlers):
                if handler is None:
                    continue
                if target == victim and fuse is not None and not fuse.burnt:
                    worked |= fuse.run(handler.run_once)
                    if fuse.burnt:
                        broker.kill(victim)
                        dead_for = 0
                else:
                    worked |= handler.run_once()
            broker.drain()
            broker.clock.advance_ns(20_000_000 if waits else 1_000_000)
            if dead_for >= 0:
                dead_for += 1
                if dead_for > 2:
                    broker.replace(victim)
                    dead_for = -1
            elif not worked and self._answered() and (not waits or self._nothing_open()):
                return

    def _answered(self) -> bool:
        return all(sent.answers for client in self.broker._clients.values() for sent in client.sent.values())

    def _nothing_open(self) -> bool:
        table = self.broker.context.partitions
        rows = [self.broker.partition("topic", partition).row for partition in range(PARTITIONS)]
        return all(table.read_stable(row) == table.read_end(row) for row in rows)


@pytest.mark.parametrize("victim", [0, 1], ids=["first handler", "second handler"])
@pytest.mark.parametrize("name", CASES)
def test_a_handler_dies_at_any_line_of_a_transaction(
    broker: SteppedBroker, sampling: Sampling, name: str, victim: int
) -> None:
    world = World(broker, CASES[name])
    for number, line in enumerate(sampling.walk(world.case.every)):
        if not world.run(Trial(line, commit=number % 3 != 1), victim, line):
            break
    world.check_all()
    assert line > 30


def test_the_controller_dies_at_any_line_while_it_hands_out_a_producer_id(
    broker: SteppedBroker, sampling: Sampling
) -> None:
    """New transactional ids: each of them gets a producer id of its own."""
    given: set[int] = set()
    for line in sampling.walk(7):
        fuse = Fuse(line)
        producer = TransactionalProducer(broker, f"id-{line}", newest=True)
        sent = producer.init()
        for _ in range(100):
            for target, handler in enumerate(broker.handlers):
                if handler is not None and (target != CONTROLLER or fuse.burnt):
                    handler.run_once()
                elif handler is not None:
                    fuse.run(handler.run_once)
                    if fuse.burnt:
                        broker.kill(target)
            if broker.handlers[CONTROLLER] is None:
                broker.replace(CONTROLLER)
            broker.drain()
            if sent.answers:
                break
        assert producer.take(sent) == 0
        assert producer.epoch == 0
        assert producer.producer_id not in given
        given.add(producer.producer_id)
        if not fuse.burnt:
            break
    assert len(given) > 6
