"""The number of handlers changes under load: no connection or record is affected (`E04`)."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.broker import pids_of, send
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker, set_over_wire
from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body, read_fetch, read_partition
from tests.support.writers import Writer, assert_exact

OWN_SETTINGS = {"num.network.threads": 2, "num.io.threads": 2, "process.restart.limit": 1000}

SETTING = "num.io.threads"
PARTITIONS = 4


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
