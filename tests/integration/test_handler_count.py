"""The number of handlers changes under real clients: no connection, record or group is affected (`E04`)."""

import random
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.broker import pids_of, send
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker, set_over_wire
from tests.support.deadline import deadline_s, wait_until
from tests.support.live_clients import Producing, Reading, Transacting
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body, read_fetch, read_partition
from tests.support.writers import Writer, assert_exact

OWN_SETTINGS = {"num.network.threads": 2, "num.io.threads": 2, "process.restart.limit": 1000}

SETTING = "num.io.threads"
PARTITIONS = 4
#: Roles on which no client connection depends.
KILLED = ("handler", "controller", "cleaner", "acceptor", "recorder")


def set_handlers(broker: BrokerProcess, count: int) -> None:
    """Change the number, and return when all of them run and no other does."""
    set_on_broker(broker.bootstrap, SETTING, str(count))
    wait_until(lambda: have(broker, count), f"{count} handlers")


def have(broker: BrokerProcess, count: int) -> bool:
    moved = broker.log_text().rstrip().splitlines()
    rows = broker.processes("handler")
    indexes = [row["index"] for row in rows]
    is_settled = any(f"have moved: {count} handler" in line for line in moved[-20:])
    return is_settled and indexes == list(range(count)) and all(row["state"] == "running" for row in rows)


def kill_one(broker: BrokerProcess, chance: random.Random, roles: Sequence[str]) -> None:
    """SIGKILL a process of one of the roles, if there is one at this moment."""
    pids = pids_of(broker.pid(), chance.choice(roles))
    if pids:
        send(chance.choice(pids), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(250)
def test_e04_a28_transactions_and_groups_of_both_protocols_continue(
    own_broker: BrokerProcess, topic: str, chance: random.Random
) -> None:
    """The numbers of handlers and processors change, with SIGKILLs of every role that serves."""
    with WireClient(own_broker.port) as wire:
        create_topic(wire, topic, PARTITIONS)
    producing: list[Producing | Transacting] = [Producing(own_broker.bootstrap, topic, n) for n in range(2)]
    producing += [Transacting(own_broker.bootstrap, topic, n) for n in (2, 3)]
    reading = [Reading(own_broker.bootstrap, topic, protocol, PARTITIONS) for protocol in ("classic", "consumer")]
    for thread in (*producing, *reading):
        thread.start()
    try:
        for count in (4, 3, 1, 2):
            for name in (SETTING, "num.network.threads"):
                set_on_broker(own_broker.bootstrap, name, str(count))
            for _ in range(chance.randrange(3)):
                stop_s = chance.uniform(0, 0.1)
                threading.Event().wait(stop_s)
                kill_one(own_broker, chance, (*KILLED, "processor"))
            wait_until(lambda count=count: have(own_broker, count), f"{count} handlers")
            wait_until(lambda count=count: len(own_broker.processes("processor")) == count, f"{count} processors")
            before = [len(each.confirmed) for each in producing]
            wait_until(
                lambda before=before: all(len(p.confirmed) > b + 20 for p, b in zip(producing, before, strict=True)),
                "every producer goes on",
            )
    finally:
        for each in producing:
            each.stop.set()
    for each in producing:
        each.join()
        assert not each.errors
    for reader in reading:
        reader.wanted = {partition: len(each.confirmed) for partition, each in enumerate(producing)}
    for reader in reading:
        reader.join(deadline_s(60))
        assert not reader.errors
        for partition, each in enumerate(producing):
            assert reader.values(partition) == each.confirmed, f"partition {partition}"
        assert len(reader.committed) == PARTITIONS


def test_e04_a_waiting_request_gets_its_response_from_the_new_owner(own_broker: BrokerProcess, topic: str) -> None:
    with WireClient(own_broker.port) as wire, WireClient(own_broker.port) as waiting:
        create_topic(wire, topic, PARTITIONS)
        for number in range(PARTITIONS):
            body = fetch_body(topic, number, 0, max_wait_ms=120_000)
            waiting.send(request_frame(FETCH, FETCH_VERSION, number, body))
        set_handlers(own_broker, 4)
        stop = threading.Event()
        writer = Writer("writer", topic, range(PARTITIONS))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(writer.run, own_broker.port, stop)
            for number in range(PARTITIONS):
                response = waiting.receive_frame()
                assert int.from_bytes(response[:4], "big") == number
                assert read_fetch(response[4:])[0].records
            stop.set()
            running.result()


@pytest.fixture
def hasty(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that does not wait for long."""
    settings = {"num.network.threads": 2, "num.io.threads": 2}
    running = BrokerProcess(broker_directory, settings, module="tests.support.hasty_supervisor").start()
    yield running
    running.stop()


def test_e04_busy_handlers_are_resized_later(hasty: BrokerProcess, topic: str) -> None:
    """One stops with requests in its ring: the others' clients are served again, and in the end all moves."""
    with WireClient(hasty.port) as wire:
        create_topic(wire, topic, 2)
        writers = [Writer(f"writer{n}", topic, [n], depth=4) for n in range(2)]
        stop = threading.Event()
        with ThreadPoolExecutor(len(writers)) as pool:
            running = [pool.submit(writer.run, hasty.port, stop) for writer in writers]
            stopped = pids_of(hasty.pid(), "handler")[0]
            try:
                wait_until(lambda: all(writer.acknowledged for writer in writers), "every writer is served")
                send(stopped, signal.SIGSTOP)
                # The admin client would use the stopped one.
                set_over_wire(hasty.port, SETTING, "4")
                wait_until(lambda: "the handlers move later" in hasty.log_text(), "the hold is given up")
                before = [writer.sent for writer in writers]
                wait_until(
                    lambda: any(w.sent > b + 50 for w, b in zip(writers, before, strict=True)), "the other is served"
                )
                send(stopped, signal.SIGCONT)
                wait_until(lambda: have(hasty, 4), "all move")
            finally:
                send(stopped, signal.SIGCONT)
                stop.set()
            for future in running:
                future.result()
        for partition, writer in enumerate(writers):
            assert_exact(read_partition(wire, topic, partition), partition, [writer])
