"""Requests that wait, at a real broker: however large they are and however many, memory and bystanders are well."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.exposition import Scraper
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, create_topic, fetch, produce

CONNECTIONS, PIPELINED = 200, 64
FIVE_MINUTES_MS = 300_000
MB = 1024 * 1024
TOTAL_MOST_BYTES = 16 * MB
FETCH_VERSION = 12


@pytest.fixture
def own_broker(broker_directory: Path) -> Iterator[BrokerProcess]:
    settings = {"num.network.threads": 1, "num.io.threads": 2, "pipeline.max.total.bytes": TOTAL_MOST_BYTES}
    broker = BrokerProcess(broker_directory, settings)
    try:
        yield broker.start()
    finally:
        broker.stop()


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def padded_fetch(topic: str, padding_bytes: int) -> bytes:
    """Return a Fetch that waits at the end of partition 0, with an unknown tagged field."""
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, MB) + b"\0"
    padding = b"\1" + varint(100) + varint(padding_bytes) + bytes(padding_bytes)
    body = (
        struct.pack(">iiiibii", -1, FIVE_MINUTES_MS, 1, MB, 0, 0, -1)
        + (b"\2" + varint(len(topic) + 1) + topic.encode() + b"\2" + partition + b"\0")
        + (b"\1" + b"\1" + padding)
    )
    return request_frame(FETCH, FETCH_VERSION, 7, body, flexible=True)


def sample(broker: BrokerProcess, name: str) -> float:
    """Return the sum of the samples that begin like this, labels included."""
    lines = Scraper(broker).scrape().text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"rotunda_processor_{name}"))


def send_what_is_taken(client: WireClient, data: memoryview) -> memoryview:
    """Send until the broker stops reading; return the rest."""
    client.socket.setblocking(False)
    try:
        while data:
            data = data[client.socket.send(data[:MB]) :]
    except BlockingIOError:
        pass
    return data


def pipeline_everywhere(broker: BrokerProcess, held: ExitStack, request: bytes) -> list[WireClient]:
    """Return connections that all send the request many times, once none of them is read any more."""
    clients = [held.enter_context(WireClient(broker.port)) for _ in range(CONNECTIONS)]
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    waiting = [memoryview(request * PIPELINED)] * CONNECTIONS

    def are_muted() -> bool:
        waiting[:] = [send_what_is_taken(*each) for each in zip(clients, waiting, strict=True)]
        return sample(broker, 'mutes_total{processor="0",cause="pipeline_bytes"}') >= CONNECTIONS

    wait_until(are_muted, "connections that are read no further")
    return clients


@pytest.mark.parametrize("padding_bytes", [32_000, 150_000])
def test_waiting_requests_need_a_bounded_amount_of_memory(own_broker: BrokerProcess, padding_bytes: int) -> None:
    """The second size is sent through the arena. Without a limit it would be 400 MB, or 2 GB."""
    with WireClient(own_broker.port) as bystander:
        create_topic(bystander, "idle", 1)
        create_topic(bystander, "busy", 1)
        fetch(bystander, "idle", 0, 0)
        wait_until(own_broker.has_loaded_everything, "what is loaded in the background")
        before = {role: own_broker.resident_bytes(role) for role in ("processor", "handler")}
        with ExitStack() as held:
            clients = pipeline_everywhere(own_broker, held, padded_fetch("idle", padding_bytes))
            wait_until(lambda: sample(own_broker, "requests_kept_bytes") > TOTAL_MOST_BYTES // 2, "the metric")
            assert sample(own_broker, "requests_kept_bytes") <= TOTAL_MOST_BYTES
            produced = produce(bystander, "busy", 0, record_batch([b"x"]))
            assert produced.error_code == 0
            assert fetch(bystander, "busy", 0, produced.base_offset).records
            grown = {role: own_broker.resident_bytes(role) - before[role] for role in before}
            assert max(grown.values()) < TOTAL_MOST_BYTES + 48 * MB, grown
            for client in clients:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: sample(own_broker, "connections{") == 1, "the end of the connections")
        wait_until(lambda: sample(own_broker, "requests_kept_bytes") == 0, "the end of what was kept")
