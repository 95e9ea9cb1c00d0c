"""Half requests, and clients that do not read: no other client notices, and memory stays bounded."""

import struct
from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    produce,
)

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def witness(broker: BrokerProcess, topic: str) -> Iterator[WireClient]:
    """Hold a good connection open through the test; at the end it works and no process was replaced."""
    before = {row["pid"] for row in broker.processes()}
    with WireClient(broker.port) as client:
        create_topic(client, topic)
        yield client
        assert produce(client, topic, 0, record_batch([b"witness"])).error_code == 0
    assert {row["pid"] for row in broker.processes()} == before


def test_c04_memory_grows_with_received_bytes_and_not_with_declared_ones(broker, witness) -> None:
    wait_until(broker.has_loaded_everything, "the background imports")
    before = broker.memory_bytes()
    clients = [WireClient(broker.port) for _ in range(200)]
    for client in clients:
        client.send(struct.pack(">ihh", MEGABYTE, PRODUCE, PRODUCE_VERSION))
    witness.call(API_VERSIONS, 0)
    grown = broker.memory_bytes() - before
    for client in clients:
        client.close()
    assert grown < 50 * MEGABYTE, f"{grown} bytes for 200 connections that sent 8 bytes each"


def test_half_a_frame_and_silence_holds_nobody_up(broker, witness, topic) -> None:
    frame = request_frame(METADATA, 4, 1, struct.pack(">i", 0))
    stuck = [WireClient(broker.port) for _ in range(50)]
    for number, client in enumerate(stuck):
        client.send(frame[: 1 + number % (len(frame) - 1)])
    for _ in range(20):
        assert produce(witness, topic, 0, record_batch([b"x"])).error_code == 0
    stuck[0].expect_silence(0)
    for client in stuck:
        client.close()


def test_a_reader_that_does_not_read_holds_nobody_up(broker, witness, topic) -> None:
    """B27: its responses queue up to a limit, then its requests are not read; memory stays bounded."""
    wait_until(broker.has_loaded_everything, "the background imports")
    before = broker.memory_bytes()
    with WireClient(broker.port) as deaf:
        deaf.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            deaf.send(request_frame(API_VERSIONS, 0, 1) * (4 * MEGABYTE))
        assert produce(witness, topic, 0, record_batch([b"x"])).error_code == 0
        assert broker.memory_bytes() - before < 48 * MEGABYTE
