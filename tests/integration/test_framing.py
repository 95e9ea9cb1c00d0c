"""Framing, headers, versions, acks and batch checks over raw bytes, row by row."""

import struct

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame, sized
from tests.support.wire_messages import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    SASL_HANDSHAKE,
    Reader,
    create_topic,
    list_offset,
    metadata_body,
    produce,
    produce_body,
    read_produce,
    string,
)

LIMIT_BYTES = 1 << 20
BROKER_SETTINGS = {"socket.request.max.bytes": LIMIT_BYTES, "message.max.bytes": 2 * LIMIT_BYTES}
CORRUPT_MESSAGE, INVALID_REQUIRED_ACKS, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION = 2, 21, 34, 35
INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 42, 76, 87
ZSTD, CRC_AT, MAGIC_AT = 4, 17, 16


def assert_serves(client: WireClient) -> None:
    """Assert that this very connection is still served."""
    assert client.call(API_VERSIONS, 0, correlation_id=4242)[:2] == b"\0\0"


def api_ranges(answer: bytes) -> dict[int, tuple[int, int]]:
    """Read an ApiVersions 0 response that starts at the error code."""
    reader = Reader(answer)
    reader.number("h")
    return {key: (low, high) for key, low, high in (reader.take("hhh") for _ in range(reader.number("i")))}


def test_c04_memory_grows_with_what_arrives_not_with_what_is_declared(broker: BrokerProcess, wire) -> None:
    assert_serves(wire)
    wait_until(broker.has_loaded_everything, "the background imports")
    before = broker.memory_bytes()
    clients = [WireClient(broker.port) for _ in range(200)]
    for client in clients:
        client.send(struct.pack(">ihh", LIMIT_BYTES, PRODUCE, PRODUCE_VERSION))
    assert_serves(wire)
    grown = broker.memory_bytes() - before
    for client in clients:
        client.close()
    assert grown < 50 * LIMIT_BYTES, f"{grown} bytes for 200 connections that sent 8 bytes each"


def test_c06_a_null_client_id_is_an_empty_one(wire) -> None:
    wire.send(sized(struct.pack(">hhih", API_VERSIONS, 0, 5, -1)))
    assert wire.receive_frame()[:6] == struct.pack(">ih", 5, 0)


def test_c06_flexible_headers_carry_tagged_fields_both_ways(wire) -> None:
    """A request header may have unknown tags; the response header has an empty tag section."""
    header = struct.pack(">hhih", METADATA, 9, 6, 2) + b"me" + bytes([1, 99, 3]) + b"tag"
    wire.send(sized(header + bytes([1, 1, 0, 0, 0])))  # no topics, no auto-create, no operations, no tags
    answer = wire.receive_frame()
    correlation_id, tags, throttle_ms, brokers = struct.unpack_from(">ibib", answer)
    assert (correlation_id, tags, throttle_ms, brokers) == (6, 0, 0, 2)


def test_c06_api_versions_responses_with_the_old_header(wire) -> None:
    body = bytes([5]) + b"wire" + bytes([4]) + b"1.0" + b"\0"
    answer = wire.call(API_VERSIONS, 3, body, flexible=True)
    assert answer[:2] == b"\0\0"  # the error code follows the correlation id at once: no tag section
    assert answer[2] > 10


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(struct.pack(">hhih", 9999, 0, 1, -1), id="unknown key"),
        pytest.param(struct.pack(">hhih", -1, 0, 1, -1), id="negative key"),
        pytest.param(struct.pack(">hhih", 4, 0, 1, -1), id="key of another role"),
        pytest.param(struct.pack(">hhih", METADATA, 99, 1, -1), id="version too new"),
        pytest.param(struct.pack(">hhih", METADATA, -1, 1, -1), id="version negative"),
        pytest.param(struct.pack(">hhih", METADATA, 4, 1, 500), id="client id beyond the end"),
        pytest.param(struct.pack(">hhih", METADATA, 4, 1, -1), id="no body"),
        pytest.param(struct.pack(">hhihi", METADATA, 4, 1, -1, 3) + string("a"), id="body cut short"),
        pytest.param(struct.pack(">hhih", PRODUCE, 7, 1, -1) + b"\0\0", id="produce cut short"),
        pytest.param(struct.pack(">hhihi", METADATA, 4, 1, -1, -2), id="negative count"),
        *[pytest.param(bytes(size), id=f"header of {size} bytes") for size in (1, 2, 4, 7)],
    ],
)
def test_c07_what_cannot_be_parsed_closes_the_connection(broker: BrokerProcess, wire, payload) -> None:
    with WireClient(broker.port) as bad:
        bad.send(sized(payload))
        bad.expect_closed()
    assert_serves(wire)


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_c08_api_versions_of_an_unknown_version_says_which_it_knows(wire, version) -> None:
    wire.send(sized(struct.pack(">hhih", API_VERSIONS, version, 8, -1) + b"\xff whatever"))
    answer = wire.receive_frame()
    assert struct.unpack_from(">ih", answer) == (8, UNSUPPORTED_VERSION)
    assert api_ranges(answer[4:]) == {API_VERSIONS: (0, 5)}
    assert_serves(wire)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "é", "a_b"])
def test_c09_a_bad_client_name_is_rejected_and_the_connection_stays(wire, name) -> None:
    data = name.encode()
    body = bytes([len(data) + 1]) + data + bytes([4]) + b"1.0" + b"\0"
    answer = wire.call(API_VERSIONS, 3, body, flexible=True)
    assert struct.unpack_from(">h", answer)[0] == INVALID_REQUEST
    assert_serves(wire)


def test_c11_api_versions_may_come_at_any_time_and_as_often_as_one_likes(wire, topic) -> None:
    """No request waits for it or depends on it, and an error response changes no state."""
    create_topic(wire, topic)
    whole = wire.call(API_VERSIONS, 0)
    unknown = sized(struct.pack(">hhih", API_VERSIONS, 99, 2, -1))
    batch = record_batch([b"between"])
    produced = request_frame(PRODUCE, PRODUCE_VERSION, 3, produce_body([(topic, 0, batch)]))
    again = request_frame(API_VERSIONS, 0, 4)
    wire.send(unknown + produced + again + unknown + again)
    first, second, third, fourth, fifth = wire.receive_frames(5)
    assert struct.unpack_from(">ih", first) == struct.unpack_from(">ih", fourth) == (2, UNSUPPORTED_VERSION)
    assert read_produce(second[4:])[0].error_code == 0
    assert third == fifth == struct.pack(">i", 4) + whole


def test_c11_api_versions_throttles_nobody(wire) -> None:
    assert wire.call(API_VERSIONS, 2)[-4:] == struct.pack(">i", 0)


def test_c12_old_produce_versions_are_listed_but_close_the_connection(broker: BrokerProcess, wire) -> None:
    ranges = api_ranges(wire.call(API_VERSIONS, 0))
    assert ranges[PRODUCE][0] == 0
    for version in (0, 1, 2):
        with WireClient(broker.port) as bad:
            bad.send(request_frame(PRODUCE, version, 1, struct.pack(">hii", 1, 1000, 0)))
            bad.expect_closed()
    assert_serves(wire)


def test_everything_listed_is_a_sensible_range(wire) -> None:
    ranges = api_ranges(wire.call(API_VERSIONS, 0))
    assert all(0 <= low <= high for low, high in ranges.values())
    assert {
        PRODUCE,
        1,
        2,
        METADATA,
        FIND_COORDINATOR,
        API_VERSIONS,
        19,
        20,
        21,
        22,
        23,
        32,
        33,
        35,
        37,
    } <= set(ranges)
    assert {44, 60, 75} <= set(ranges)


def test_c13_acks_none_has_no_response(wire, topic) -> None:
    create_topic(wire, topic)
    body = produce_body([(topic, 0, record_batch([b"silent"]))], acks=0)
    wire.send(request_frame(PRODUCE, PRODUCE_VERSION, 1, body) + request_frame(API_VERSIONS, 0, 2))
    assert wire.receive_frame()[:4] == struct.pack(">i", 2)
    assert list_offset(wire, topic, 0) == (0, 1)


def test_c13_an_error_with_acks_none_closes_the_connection(broker: BrokerProcess, wire, topic) -> None:
    create_topic(wire, topic)
    for name, partition in ((topic, 50), (f"{topic}-absent", 0)):
        with WireClient(broker.port) as bad:
            body = produce_body([(name, partition, record_batch([b"x"]))], acks=0)
            bad.send(request_frame(PRODUCE, PRODUCE_VERSION, 1, body))
            bad.expect_closed()
    assert_serves(wire)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_c14_other_acks_are_rejected(wire, topic, acks) -> None:
    create_topic(wire, topic)
    assert produce(wire, topic, 0, record_batch([b"x"]), acks).error_code == INVALID_REQUIRED_ACKS
    assert list_offset(wire, topic, 0) == (0, 0)


def with_byte(batch: bytes, position: int, value: int) -> bytes:
    return batch[:position] + bytes([value]) + batch[position + 1 :]


GOOD = record_batch([b"one", b"two"])
BAD_BATCHES = {
    "no batch": (b"", INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "magic 0": (with_byte(GOOD, MAGIC_AT, 0), INVALID_RECORD),
    "magic 1": (with_byte(GOOD, MAGIC_AT, 1), INVALID_RECORD),
    "crc": (with_byte(GOOD, CRC_AT, GOOD[CRC_AT] ^ 1), CORRUPT_MESSAGE),
    "flipped bit in a value": (with_byte(GOOD, len(GOOD) - 2, GOOD[-2] ^ 1), CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_c14_bad_batches_are_rejected_by_kafkas_codes(wire, topic, name) -> None:
    """Each alone, and together with a good partition: errors are per partition."""
    create_topic(wire, topic, 2)
    records, error_code = BAD_BATCHES[name]
    assert produce(wire, topic, 0, records).error_code == error_code
    body = produce_body([(topic, 0, records), (topic, 1, GOOD)])
    answers = read_produce(wire.call(PRODUCE, PRODUCE_VERSION, body))
    assert {part.partition: part.error_code for part in answers} == {0: error_code, 1: 0}
    assert list_offset(wire, topic, 0) == (0, 0)
    assert list_offset(wire, topic, 1) == (0, 2)


@pytest.mark.parametrize("cut", [1, 12, 60, len(GOOD) - 1])
def test_c14_half_a_batch_is_rejected(wire, topic, cut) -> None:
    create_topic(wire, topic)
    assert produce(wire, topic, 0, GOOD[:cut]).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    assert list_offset(wire, topic, 0) == (0, 0)


def test_c14_zstd_needs_version_7(wire, topic) -> None:
    create_topic(wire, topic)
    body = produce_body([(topic, 0, record_batch([b"x"], codec=ZSTD))])
    assert read_produce(wire.call(PRODUCE, 7, body))[0].error_code == 0
    assert read_produce(wire.call(PRODUCE, 6, body))[0].error_code == UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_c15_the_correlation_id_comes_back(wire, correlation_id) -> None:
    wire.call(API_VERSIONS, 0, correlation_id=correlation_id)


def test_c16_sasl_without_sasl_is_an_illegal_state(wire) -> None:
    assert SASL_HANDSHAKE in api_ranges(wire.call(API_VERSIONS, 0))
    answer = wire.call(SASL_HANDSHAKE, 1, string("PLAIN"))
    assert struct.unpack_from(">h", answer)[0] == ILLEGAL_SASL_STATE
    assert_serves(wire)


def test_c18_the_advertised_endpoint_is_where_the_request_came_in(broker: BrokerProcess, wire) -> None:
    reader = Reader(wire.call(METADATA, 4, metadata_body([])))
    throttle_ms, brokers, node_id = reader.take("iii")
    assert (throttle_ms, brokers, node_id) == (0, 1, 1)
    assert (reader.string(), reader.number("i")) == ("127.0.0.1", broker.port)
