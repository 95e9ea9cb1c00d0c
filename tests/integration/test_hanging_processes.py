"""Hanging processes of every role: the log line, the replacement, and the effects on clients."""

import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rotunda.broker.ipc.poison_requests import MOST_DEATHS
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import wait_until
from tests.support.poisonable_broker import HANGS
from tests.support.sampling import Sampling
from tests.support.status_page import page_text
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import METADATA, create_topic, metadata_body, read_partition
from tests.support.writers import Writer, assert_exact

HANG_TIMEOUT_MS = 4000
BROKER_SETTINGS = {**PAGE, "process.hang.timeout.ms": HANG_TIMEOUT_MS}
BROKER_OPTIONS = {"module": "tests.support.poisonable_broker"}


def readiness_with(broker: BrokerProcess, words: str) -> tuple[int, str]:
    """Return status and text of /readyz, once these words are in it."""

    def found() -> tuple[int, str] | None:
        response = page_text(broker, "/readyz")
        return response if words in response[1] else None

    return wait_until(found, f"/readyz with {words}")


def row_of(broker: BrokerProcess, role: str) -> dict:
    return next(row for row in broker.processes(role) if row["index"] == 0)


def is_replaced(broker: BrokerProcess, role: str, pid: int) -> bool:
    row = row_of(broker, role)
    return row["pid"] != pid and row["ready"]


def test_a_stopped_process_is_logged_and_replaced(broker: BrokerProcess, topic: str, sampling: Sampling) -> None:
    """No record is lost or there twice, and no connection is closed but those of a processor."""
    for role in sampling.some(2, ["acceptor", "processor", "handler", "controller", "cleaner", "recorder"]):
        print(role)
        stop_and_look(broker, f"{topic}-{role}", role)


def stop_and_look(broker: BrokerProcess, topic: str, role: str) -> None:
    with WireClient(broker.port) as wire:
        create_topic(wire, topic, 4)
    clients = [WireClient(broker.port) for _ in range(6)]
    wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "nobody hangs")
    writers = [Writer(f"{topic}-{n}", topic, [n]) for n in range(4)] if role != "processor" else []
    stop = threading.Event()
    victim = row_of(broker, role)
    with ThreadPoolExecutor(len(writers) or 1) as pool:
        running = [pool.submit(writer.run, broker.port, stop) for writer in writers]
        try:
            # A connection that an acceptor has in its hands dies with it.
            wait_until(lambda: all(writer.acknowledged for writer in writers), "every writer's first answer")
            os.kill(victim["pid"], signal.SIGSTOP)
            name = f"{role} 0" if role in {"processor", "handler"} else role
            status, _ = readiness_with(broker, f"{name} has been hanging for")
            assert status == (200 if role in {"cleaner", "recorder"} else 503)
            if role == "processor":
                # New connections are handed to the other one.
                with WireClient(broker.port) as one, WireClient(broker.port) as another:
                    assert one.is_served()
                    assert another.is_served()
            wait_until(lambda: is_replaced(broker, role, victim["pid"]), f"a new {role}")
            wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "nobody hangs any more")
        finally:
            stop.set()
        for future in running:
            future.result()
    named = rf"\(pid {victim['pid']}\) has been hanging for \d+ s: it is stopped by a signal"
    assert re.search(named, broker.log_text())
    assert sum(map(WireClient.is_served, clients)) == (3 if role == "processor" else 6)
    for client in clients:
        client.close()
    with WireClient(broker.port) as reader:
        for partition in range(4):
            assert_exact(read_partition(reader, topic, partition), partition, writers[partition : partition + 1])


def test_the_page_is_replaced_when_it_hangs(broker: BrokerProcess) -> None:
    page_text(broker, "/readyz")
    victim = row_of(broker, "web")
    os.kill(victim["pid"], signal.SIGSTOP)
    wait_until(lambda: is_replaced(broker, "web", victim["pid"]), "a new web")
    assert page_text(broker, "/readyz") == (200, "ready\n")


def test_clients_are_served_while_the_supervisor_is_stopped(broker: BrokerProcess, wire: WireClient) -> None:
    """The processes it reports afterwards have turned all the time, and are not killed."""
    before = {(row["role"], row["index"]): row["pid"] for row in broker.processes()}
    os.kill(broker.pid(), signal.SIGSTOP)
    try:
        status, text = readiness_with(broker, "supervisor has been hanging")
        assert status == 200
        assert text.startswith("ready\n")
        assert wire.is_served()
        with WireClient(broker.port) as late:
            assert late.is_served()
        time_s = time.monotonic()
        wait_until(lambda: time.monotonic() > time_s + 1.5 * HANG_TIMEOUT_MS / 1000, "longer than anybody may hang")
    finally:
        os.kill(broker.pid(), signal.SIGCONT)
    wait_until(lambda: page_text(broker, "/readyz") == (200, "ready\n"), "nobody hangs any more")
    assert {(row["role"], row["index"]): row["pid"] for row in broker.processes()} == before


def test_a_handler_that_hangs_in_a_request_counts_as_one_that_dies_of_it(broker: BrokerProcess, topic: str) -> None:
    before = sum(row["restarts"] for row in broker.processes("handler"))
    logged = broker.log_bytes()
    with WireClient(broker.port) as client:
        client.send(request_frame(METADATA, 4, 7, metadata_body([HANGS.decode()])))
        assert client.socket.recv(1) == b""
    assert sum(row["restarts"] for row in broker.processes("handler")) == before + MOST_DEATHS
    lines = "\n".join(broker.log_since(logged))
    assert "poisonable_broker.py" in lines, "the log says where it hung"
    assert "it is dropped, and its connection is closed" in lines
    with WireClient(broker.port) as late:
        create_topic(late, topic)
