"""SIGKILL before every step of a change of handlers, processors and listeners (issue 13; `A28`, `A30`, `E04`).

The supervisor itself kills one of its children or itself before lines of its part of the change; the processes that
follow the change kill themselves before lines of theirs; see `tests.support.killed_at_steps`. The process and the line
are chosen by the seed.
"""

import json
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Message, Producer

from ops.broker import send
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_over_wire
from tests.support.deadline import deadline_s, wait_until
from tests.support.killed_at_steps import VARIABLE, Orders
from tests.support.wire_client import WireClient
from tests.support.wire_messages import API_VERSIONS, create_topic, read_partition
from tests.support.writers import Writer, assert_exact

PARTITIONS = 4
DEPTH = 4
PACE_S = 0.005
#: A line in so many is a step with a kill in one change; with as many changes each was one.
NTH = 4
#: At some steps no process is left to be killed; then there are more rounds.
MOST_ROUNDS = 5 * NTH
#: Those of which no connection depends on one process.
UNCONNECTED = ("handler", "controller", "cleaner", "acceptor", "recorder")
SETTINGS = {
    "num.network.threads": 2,
    "num.io.threads": 2,
    "process.restart.limit": 1000,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
}
LISTENERS = "PLAINTEXT://127.0.0.1:0"


class Change(NamedTuple):
    """A setting, its value, and the supervisor's log line for a completed change."""

    name: str
    value: str
    done: str


MORE_HANDLERS = Change("num.io.threads", "4", "have moved: 4 handlers")
FEWER_HANDLERS = Change("num.io.threads", "2", "have moved: 2 handlers")
MORE_PROCESSORS = Change("num.network.threads", "3", "has joined: 3 processors")
FEWER_PROCESSORS = Change("num.network.threads", "2", "has left: 2 processors")
MORE_LISTENERS = Change("listeners", f"{LISTENERS},INNER://127.0.0.1:0", "listener INNER://127.0.0.1:0 is open")
FEWER_LISTENERS = Change("listeners", LISTENERS, "listener INNER closed")
#: Functions that every change needs: in each of these a process is killed, or kills itself.
FUNCTIONS = {
    MORE_HANDLERS: {
        "_begin",
        "make_handlers",
        "_make_pair",
        "_hold",
        "_change",
        "_finish",
        "_set_hold",
        "boot",
        "close",
    },
    FEWER_HANDLERS: {"_begin", "_hold", "_change", "_finish", "_set_hold", "boot", "close", "alter_configs"},
    MORE_PROCESSORS: {"_grow", "make_processor", "_make_pair", "_admit", "confirmed"},
    FEWER_PROCESSORS: {"_shrink", "_ask_to_leave", "has_left", "confirmed"},
    MORE_LISTENERS: {"_open", "_publish", "run_once", "announce", "obey", "alter_configs"},
    FEWER_LISTENERS: {"_close", "_publish", "run_once", "announce", "obey", "alter_configs"},
}


class Producing(threading.Thread):
    """Sends numbers to one partition with an idempotent producer until it is stopped; records confirmed ones."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 2}
        self._producer = Producer(settings)
        self._topic, self._partition = topic, partition
        self.stop = threading.Event()
        self.confirmed: list[int] = []
        self.errors: list[str] = []

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            self._producer.produce(self._topic, str(number), partition=self._partition, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(deadline_s(60))

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.confirmed.append(int(message.value()))


class Killing:
    """A broker, and the kills in its changes."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory / "steps"
        self.directory.mkdir()
        environment = {VARIABLE: str(self.directory)}
        module = "tests.support.killed_at_steps"
        self.broker = BrokerProcess(directory, SETTINGS, False, module, environment).start()
        self._chance = chance
        self._number = 0

    def order(self, roles: tuple[str, ...] = (), first: int = 0, nth: int = NTH, ends_at: int = 0) -> int:
        """Order the kills of the next change; return its number."""
        self._number += 1
        Orders(self._number, roles, first, nth, self._chance.getrandbits(32), ends_at).give(self.directory)
        return self._number

    def make(self, change: Change) -> None:
        """Make a change, and return when it has been made."""
        position = self.broker.log_bytes()
        wait_until(lambda: self.ask_for(change), f"{change} is taken")
        wait_until(lambda: self.says(change, position), change.done)

    def says(self, change: Change, position: int) -> bool:
        """Return whether the log reports a completed change after a position."""
        return any(change.done in line for line in self.broker.log_since(position))

    def ask_for(self, change: Change) -> bool:
        """Return whether an administrator's connection lasted until the change was acknowledged."""
        try:
            set_over_wire(self.broker.port, change.name, change.value)
        except (AssertionError, OSError) as failure:
            if isinstance(failure, AssertionError) and "closed by the broker" not in str(failure):
                raise
            return False
        return True

    def passed(self, number: int) -> list[tuple[str, str]]:
        """Return the function of each step of a change, and the process killed there."""
        lines = map(json.loads, (self.directory / "passed").read_text().splitlines())
        return [(function, killed) for change, _, _, function, killed in lines if change == number]

    def walk(self, changes: tuple[Change, ...], roles: tuple[str, ...]) -> None:
        """Alternate the changes until a process was killed at every step of theirs, and in each of its functions."""
        missing = {change: set(FUNCTIONS[change]) for change in changes}
        for first in range(MOST_ROUNDS):
            if first >= NTH and not any(missing.values()):
                break
            for change in changes:
                missing[change] -= set(self.make_and_kill(change, self.order(roles, first)))
        assert not any(missing.values()), missing

    def make_and_kill(self, change: Change, number: int) -> list[str]:
        """Make a change, and return the functions in which a process was killed."""
        self.make(change)
        wait_until(lambda: self.has_made(change), f"{change}, as it is told")
        return [function for function, killed in self.passed(number) if killed]

    def has_made(self, change: Change) -> bool:
        """Return whether the broker has applied a change; each of its listeners responds."""
        role = {"num.io.threads": "handler", "num.network.threads": "processor"}.get(change.name)
        if role is not None:
            return len(self.broker.processes(role)) == int(change.value)
        addresses = self.broker.status()["bootstrap"].split(",")
        if len(addresses) != len(change.value.split(",")):
            return False
        for address in addresses:
            with WireClient(int(address.rpartition(":")[2])) as client:
                client.call(API_VERSIONS, 0)
        return True


@pytest.fixture
def killing(broker_directory: Path, chance: random.Random) -> Iterator[Killing]:
    """Yield a broker whose supervisor kills."""
    killing = Killing(broker_directory, chance)
    yield killing
    killing.broker.stop()


def test_e04_a30_somebody_dies_at_every_step_and_no_client_sees_an_error(killing: Killing, topic: str) -> None:
    """Handlers and listeners: producers without idempotence stay connected, and have each record once."""
    broker = killing.broker
    with writing(broker, topic) as writers:
        killing.walk((MORE_HANDLERS, FEWER_HANDLERS), UNCONNECTED)
        killing.walk((MORE_LISTENERS, FEWER_LISTENERS), UNCONNECTED)
        before = [writer.sent for writer in writers]
        wait_until(lambda: all(w.sent > b for w, b in zip(writers, before, strict=True)), "every writer goes on")
    with WireClient(broker.port) as wire:
        for partition in range(PARTITIONS):
            concerned = [writer for writer in writers if partition in writer.partitions]
            assert_exact(read_partition(wire, topic, partition), partition, concerned)


@contextmanager
def writing(broker: BrokerProcess, topic: str, *, is_killed: bool = False) -> Iterator[list[Writer]]:
    """Run writers to all partitions inside the `with`, without any error, or until the broker dies."""
    with WireClient(broker.port) as wire:
        create_topic(wire, topic, PARTITIONS)
    places = [[n, (n + 1) % PARTITIONS] for n in range(PARTITIONS)]
    writers = [Writer(f"writer{n}", topic, places[n], depth=DEPTH, pace_s=PACE_S) for n in range(PARTITIONS)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(write, writer, broker.port, stop, is_killed=is_killed) for writer in writers]
        try:
            yield writers
        finally:
            stop.set()
        for future in running:
            future.result()


def write(writer: Writer, port: int, stop: threading.Event, *, is_killed: bool) -> None:
    """Run a writer, whose connection may break if the broker is killed."""
    try:
        writer.run(port, stop)
    except (AssertionError, OSError) as failure:
        if not is_killed or (isinstance(failure, AssertionError) and "closed by the broker" not in str(failure)):
            raise


def test_a28_e04_connections_die_too_at_every_step_and_no_record_notices(killing: Killing, topic: str) -> None:
    """Processors start, stop and are killed as handlers move: idempotent producers have each record once, in order."""
    broker = killing.broker
    with WireClient(broker.port) as wire:
        create_topic(wire, topic, PARTITIONS)
    producing = [Producing(broker.bootstrap, topic, partition) for partition in range(2)]
    for each in producing:
        each.start()
    try:
        killing.walk((MORE_PROCESSORS, FEWER_PROCESSORS), (*UNCONNECTED, "processor"))
        # There are but two of them, so the steps are those of chance.
        changes = (MORE_HANDLERS, FEWER_HANDLERS) * 4
        killed_in = [killing.make_and_kill(change, killing.order(("processor",), nth=0)) for change in changes]
        assert any(killed_in)
    finally:
        for each in producing:
            each.stop.set()
    for each in producing:
        each.join()
        assert not each.errors
        assert each.confirmed == list(range(len(each.confirmed)))
    with WireClient(broker.port) as wire:
        for partition, each in enumerate(producing):
            values = [int(record.value) for record in read_partition(wire, topic, partition)]
            assert values == each.confirmed


def test_a28_a30_e04_the_supervisor_dies_at_any_step_and_the_next_start_has_the_settings(
    killing: Killing, topic: str, chance: random.Random
) -> None:
    """The broker ends with it. Acknowledged records are there once and in order, and so is an acknowledged change."""
    broker = killing.broker
    steps = {}
    for change in FUNCTIONS:
        number = killing.order()
        killing.make(change)
        steps[change] = len(killing.passed(number))
    for number, change in enumerate(FUNCTIONS):
        with writing(broker, f"{topic}-{number}", is_killed=True) as writers:
            wait_until(lambda writers=writers: all(writer.acknowledged for writer in writers), "every writer is served")
            killing.order(ends_at=chance.randint(1, steps[change]))
            position = broker.log_bytes()
            acknowledged = killing.ask_for(change)
            wait_until(
                lambda change=change, position=position: not broker.is_running() or killing.says(change, position),
                f"the supervisor dies in {change}",
            )
            # Its way may have been one or two lines shorter, as nothing had to be waited for.
            if broker.is_running():
                send(broker.pid(), signal.SIGKILL)
        broker.assert_no_process_left()
        killing.order()
        broker.start()
        assert killing.has_made(change) or not acknowledged
        with WireClient(broker.port) as wire:
            for partition in range(PARTITIONS):
                concerned = [writer for writer in writers if partition in writer.partitions]
                assert_exact(read_partition(wire, f"{topic}-{number}", partition), partition, concerned, spare=DEPTH)
        if not killing.has_made(change):
            killing.make(change)
