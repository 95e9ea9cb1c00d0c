"""Requests that kill their process, against a whole broker: they cost their own connection and a few deaths."""

import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from rotunda.broker.ipc.poison_requests import MOST_DEATHS
from rotunda.broker.request_log.part_files import dataset_path, finished
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.poisonable_broker import KILLS, KILLS_PROCESSOR
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import (
    CREATE_TOPICS,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    metadata_body,
    produce_body,
    read_partition,
    string,
)
from tests.support.writers import Writer, assert_exact

BROKER_SETTINGS = {"request.log.roll.ms": 500}
BROKER_OPTIONS = {"ephemeral": False, "module": "tests.support.poisonable_broker"}
NAME = KILLS.decode()


def deaths(broker: BrokerProcess) -> int:
    return sum(row["restarts"] for role in ("handler", "controller") for row in broker.processes(role))


def send_poison(broker: BrokerProcess, api_key: int, version: int, body: bytes) -> None:
    """Send a poison request, and return when its connection has been closed without a response."""
    with WireClient(broker.port) as client:
        client.send(request_frame(api_key, version, 7, body))
        assert client.socket.recv(1) == b""


@pytest.mark.parametrize("what", ["forwarded", "create"])
def test_a_request_that_kills_costs_a_few_deaths_and_its_own_connection(
    broker: BrokerProcess, wire: WireClient, topic: str, what: str
) -> None:
    create_topic(wire, topic, 4)
    killing, name = record_batch([KILLS]), NAME + topic
    api_key, version, body = {
        "forwarded": (PRODUCE, PRODUCE_VERSION, produce_body([(topic, n, killing) for n in range(4)])),
        "create": (
            CREATE_TOPICS,
            2,
            struct.pack(">i", 1) + string(name) + struct.pack(">ihiii?", 1, 1, 0, 0, 1, False),
        ),
    }[what]
    before, logged = deaths(broker), broker.log_bytes()
    writers = [Writer(f"{topic}-{n}", topic, [n]) for n in range(4)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer.run, broker.port, stop) for writer in writers]
        try:
            send_poison(broker, api_key, version, body)
        finally:
            stop.set()
        for future in running:
            future.result()
    assert deaths(broker) == before + MOST_DEATHS
    for partition in range(4):
        assert_exact(read_partition(wire, topic, partition), partition, [writers[partition]])
    [line] = [line for line in broker.log_since(logged) if "times; it is dropped" in line]
    assert " ERROR " in line
    assert "of client 'wire' at 127.0.0.1 (" in line
    assert ("controller" if what == "create" else "handler") in line


def test_a_request_that_kills_its_processor_is_not_resent(broker: BrokerProcess, topic: str) -> None:
    """Its connection ended with its processor, and those of the other stay."""
    before = deaths(broker), sum(row["restarts"] for row in broker.processes("processor"))
    bystanders = [WireClient(broker.port) for _ in range(4)]
    for each in bystanders:
        each.call(METADATA, 4, metadata_body([]))
    with WireClient(broker.port) as client:
        client.send(request_frame(METADATA, 4, 7, metadata_body([KILLS_PROCESSOR.decode() + topic])))
        assert client.socket.recv(1) == b""

    def is_replaced() -> bool:
        rows = broker.processes("processor")
        return sum(row["restarts"] for row in rows) > before[1] and all(row["ready"] for row in rows)

    wait_until(is_replaced, "a new processor")
    with WireClient(broker.port) as late:
        create_topic(late, topic)
    assert (deaths(broker), sum(row["restarts"] for row in broker.processes("processor"))) == (before[0], before[1] + 1)
    closed = 0
    for each in bystanders:
        try:
            each.call(METADATA, 4, metadata_body([]))
        except (AssertionError, OSError):
            closed += 1
        each.close()
    assert closed == 2


def test_a_request_that_was_dropped_has_a_row_in_the_request_log(broker: BrokerProcess, topic: str) -> None:
    send_poison(broker, METADATA, 4, metadata_body([NAME + topic]))

    def is_there() -> bool:
        parts = finished(dataset_path(broker.data_dir / "request-log", "requests"))
        rows = [row for part in parts for row in pq.read_table(part.path, partitioning=None).to_pylist()]
        return any(row["errorCode"] == -1 and row["requestApiKey"] == METADATA for row in rows)

    wait_until(is_there, "the row of the dropped request")
