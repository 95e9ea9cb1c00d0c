"""Input of strangers and broken clients: each such connection ends, and no other client notices."""

import random
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame, sized
from tests.support.wire_messages import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    produce,
    produce_body,
    read_partition,
    string,
)

MEGABYTE = 1 << 20
HUGE = 2**31 - 1
VARINT_HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.fixture(autouse=True)
def witness(broker: BrokerProcess, topic: str) -> Iterator[WireClient]:
    """Hold a good connection open through the test; at the end it works and no process was replaced."""
    before = {row["pid"] for row in broker.processes()}
    with WireClient(broker.port) as client:
        create_topic(client, topic)
        yield client
        assert produce(client, topic, 0, record_batch([b"witness"])).error_code == 0
    assert {row["pid"] for row in broker.processes()} == before


def lines_about(broker: BrokerProcess, position: int, *words: str) -> list[str]:
    return [line for line in broker.log_since(position) if any(word in line.lower() for word in words)]


def assert_one_line(broker: BrokerProcess, position: int, *words: str) -> None:
    """Assert that exactly one log line reports the input; others may warn of a busy machine."""
    [_] = wait_until(lambda: lines_about(broker, position, *words), f"a log line with one of {words}")


def test_tls_hello_gets_closed_and_one_log_line_says_tls(broker) -> None:
    position = broker.log_bytes()
    context = ssl.create_default_context()
    refused = pytest.raises((ssl.SSLError, ConnectionError))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=deadline_s()) as plain, refused:
        context.wrap_socket(plain, server_hostname="localhost")
    assert_one_line(broker, position, "tls", "ssl")


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_end_their_connection(broker, seed) -> None:
    """Random bytes are mostly impossible sizes; some wait for more, and are cut off by the half-close."""
    random_source = random.Random(seed)
    for _ in range(25):
        data = random_source.randbytes(random_source.randint(1, 5000))
        with WireClient(broker.port) as client:
            try:
                client.send(data)
                client.socket.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # closed while we were still sending
            client.expect_closed()


@pytest.mark.parametrize("seed", range(8))
def test_random_bodies_behind_a_good_header(broker, seed) -> None:
    """Every served API gets random bodies: it must respond or close, never stay silent."""
    random_source = random.Random(seed)
    for api_key in (0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 60, 75):
        with WireClient(broker.port) as client:
            version = random_source.randint(0, 12)
            noise = random_source.randbytes(random_source.randint(0, 300))
            client.send(request_frame(api_key, version, 9, noise, flexible=random_source.random() < 0.5))
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass


def test_random_damage_to_a_good_produce_request(broker, witness, topic) -> None:
    """Flip bits anywhere in a frame: an error, the end, or, beyond the reach of the CRC, the true record."""
    body = produce_body([(topic, 0, record_batch([b"damage me"]))])
    good = request_frame(PRODUCE, PRODUCE_VERSION, 1, body)
    seed = 20240607
    random_source = random.Random(seed)
    for _ in range(200):
        damaged = bytearray(good)
        for _ in range(random_source.randint(1, 3)):
            damaged[random_source.randrange(4, len(good))] ^= 1 << random_source.randrange(8)
        with WireClient(broker.port) as client:
            client.send(bytes(damaged))
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass
    assert {record.value for record in read_partition(witness, topic, 0)} <= {b"damage me"}, f"seed {seed}"


TOO_MANY = {
    "metadata topics": (METADATA, 4, struct.pack(">i", HUGE)),
    "metadata topics, compact": (METADATA, 9, VARINT_HUGE),
    "produce topics": (PRODUCE, 7, struct.pack(">hhii", -1, 1, 1000, HUGE)),
    "produce partitions": (
        PRODUCE,
        7,
        struct.pack(">hhii", -1, 1, 1000, 1) + string("t") + struct.pack(">i", HUGE),
    ),
    "produce record bytes": (
        PRODUCE,
        7,
        struct.pack(">hhii", -1, 1, 1000, 1) + string("t") + struct.pack(">iii", 1, 0, HUGE),
    ),
    "produce topics, compact": (PRODUCE, 9, b"\0" + struct.pack(">hi", 1, 1000) + VARINT_HUGE),
    "fetch topics": (FETCH, 11, struct.pack(">iiiibiii", -1, 0, 1, 1000, 0, 0, -1, HUGE)),
    "fetch topics, compact": (FETCH, 12, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1) + VARINT_HUGE),
    "list offsets topics": (LIST_OFFSETS, 2, struct.pack(">ibi", -1, 0, HUGE)),
    "create topics": (CREATE_TOPICS, 2, struct.pack(">i", HUGE)),
    "create topics, compact": (CREATE_TOPICS, 5, VARINT_HUGE),
    "transactional id": (INIT_PRODUCER_ID, 0, struct.pack(">hi", 32767, 1000)),
    "tagged fields": (API_VERSIONS, 3, bytes([2]) + b"a" + bytes([2]) + b"1" + VARINT_HUGE),
    "size of a tagged field": (
        API_VERSIONS,
        3,
        bytes([2]) + b"a" + bytes([2]) + b"1" + b"\1\7" + VARINT_HUGE,
    ),
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_counts_larger_than_the_frame(broker, name) -> None:
    """C07; and the count is never trusted: no memory is reserved for it."""
    api_key, version, body = TOO_MANY[name]
    wait_until(broker.has_loaded_everything, "the background imports")
    before = broker.memory_bytes()
    flexible = "compact" in name or "tagged" in name
    for _ in range(3):
        with WireClient(broker.port) as client:
            client.send(request_frame(api_key, version, 1, body, flexible=flexible))
            client.expect_closed()
    assert broker.memory_bytes() - before < 32 * MEGABYTE


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


def test_one_bad_request_leaves_the_other_connections_of_its_processor_alone(broker, topic) -> None:
    """Sixteen good connections per processor are served while bad ones open and close."""
    good = [WireClient(broker.port) for _ in range(32)]
    for _ in range(20):
        with WireClient(broker.port) as bad:
            bad.send(sized(b"\x7f\xff" + bytes(20)))
            bad.expect_closed()
        for client in good:
            assert produce(client, topic, 0, record_batch([b"good"])).error_code == 0
    for client in good:
        client.close()
