"""Authentication in the processor: delays, failures, requests that never reach a ring, and expiring sessions."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.processor_bench import Client, ProcessorBench
from tests.support.wire_client import request_frame

METADATA = 3
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="sesame";'

BENCH_OPTIONS: dict[str, object] = {
    "listeners": "SASL://127.0.0.1:0",
    "listener_security_protocol_map": "SASL:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener_name_sasl_plain_sasl_jaas_config": USERS,
    "connections_max_reauth_ms": 60_000,
    "connection_failed_authentication_delay_ms": 500,
    "authentication_timeout_ms": 20_000,
}


def response(client: Client, key: ApiKey, version: int) -> Any:
    (size,) = struct.unpack(">i", client.receive(4))
    body = client.receive(size)
    return codec.decode_response(key, version, memoryview(body), 0, size)


def ask(client: Client, key: ApiKey, version: int, **fields: Any) -> Any:
    client.send(codec.encode_request(key, version, 1, "me", fields))
    return response(client, key, version)


def log_in(client: Client, token: str = "\0alice\0secret") -> None:  # noqa: S107 - a planted one
    assert int(ask(client, ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
    assert int(ask(client, ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=token.encode()).error_code) == 0


def nothing_sent_on(bench: ProcessorBench) -> None:
    bench.run_once(5)
    assert bench.targets[0].take() == []


def test_b23_a_failure_is_sent_after_a_delay_and_later_frames_are_ignored(bench: ProcessorBench) -> None:
    client = bench.connect()
    assert int(ask(client, ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
    client.send(codec.encode_request(ApiKey.SASL_AUTHENTICATE, 1, 1, "me", {"auth_bytes": b"\0alice\0wrong"}))
    bench.run_once(5)
    client.send(codec.encode_request(ApiKey.SASL_AUTHENTICATE, 1, 1, "me", {"auth_bytes": b"\0alice\0secret"}))
    client.send(request_frame(METADATA, 4, 2))
    bench.clock.advance_ms(499)
    nothing_sent_on(bench)
    client.read()
    assert not client.received
    bench.clock.advance_ms(1)
    failed = response(client, ApiKey.SASL_AUTHENTICATE, 1)
    assert int(failed.error_code) == 58
    bench.wait_closed(client)
    assert bench.published_value("authentications_failed") == 1
    assert bench.value("connections_closed", "failed_authentication") == 1


def test_b23_little_is_logged_of_a_long_name(bench: ProcessorBench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.connect()
    assert int(ask(client, ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
    token = b"%b\0alice\0secret" % (b"x" * 10_000)
    client.send(codec.encode_request(ApiKey.SASL_AUTHENTICATE, 1, 1, "me", {"auth_bytes": token}))
    nothing_sent_on(bench)
    bench.clock.advance_ms(500)
    assert int(response(client, ApiKey.SASL_AUTHENTICATE, 1).error_code) == 58
    [line] = [each.getMessage() for each in caplog.records if " failed: " in each.getMessage()]
    assert "as 'alice' failed: the client asks to be xxx" in line
    assert len(line) < 500


def test_b23_a_client_that_disconnects_before_the_response_is_forgotten(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(request_frame(METADATA, 4, 2))
    bench.run_once(5)
    client.reset()
    bench.wait_closed(client)
    bench.clock.advance_ms(1000)
    bench.run_once(5)
    assert bench.value("connections_closed", "failed_authentication") == 0


def test_clients_that_do_not_authenticate_in_time_are_closed(bench: ProcessorBench) -> None:
    silent, busy = bench.connect(), bench.connect()
    log_in(busy)
    bench.clock.advance_ms(19_999)
    bench.run_once(5)
    assert not bench.closed()
    bench.clock.advance_ms(1)
    bench.wait_closed(silent)
    assert bench.closed() == [silent.serial]


def test_h06_requests_travel_with_the_user_and_only_then(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(request_frame(18, 0, 1))
    [versions] = bench.requests(1)
    client.send(codec.encode_request(ApiKey.SASL_HANDSHAKE, 1, 2, "me", {"mechanism": "PLAIN"}))
    bench.run_once(5)
    client.read()
    assert not client.received, "the answer to ApiVersions comes first"
    bench.targets[0].answer(versions, codec.encode_response(ApiKey.API_VERSIONS, 0, 1, {}))
    assert int(response(client, ApiKey.API_VERSIONS, 0).error_code) == 0
    assert int(response(client, ApiKey.SASL_HANDSHAKE, 1).error_code) == 0
    assert int(ask(client, ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0alice\0secret").error_code) == 0
    client.send(request_frame(METADATA, 4, 3))
    [request] = bench.requests(1)
    bench.targets[0].answer(request, b"on")
    assert client.receive(2) == b"on"


@pytest.mark.parametrize("size", [100, 200_000])
def test_b24_after_its_end_a_session_has_no_more_requests_small_or_large(bench: ProcessorBench, size: int) -> None:
    client = bench.connect()
    log_in(client)
    bench.clock.advance_ms(60_001)
    client.send(struct.pack(">ihhi", size, METADATA, 4, 1) + bytes(size - 8))
    nothing_sent_on(bench)
    bench.wait_closed(client)
    assert bench.published_value("sessions_expired") == 1


def test_b24_a_large_request_completed_after_the_end_is_not_served(bench: ProcessorBench) -> None:
    client = bench.connect()
    log_in(client)
    client.send(struct.pack(">ihhi", 200_000, METADATA, 4, 1) + bytes(100_000))
    bench.run_once(20)
    assert not bench.closed()
    bench.clock.advance_ms(60_001)
    client.send(bytes(100_000 - 8))
    nothing_sent_on(bench)
    bench.wait_closed(client)
    assert bench.published_value("sessions_expired") == 1


def test_b25_reauthentication_waits_for_earlier_responses(bench: ProcessorBench) -> None:
    client = bench.connect()
    log_in(client)
    bench.clock.advance_ms(30_000)
    client.send(request_frame(METADATA, 4, 9))
    [request] = bench.requests(1)
    client.send(codec.encode_request(ApiKey.SASL_HANDSHAKE, 1, 2, "me", {"mechanism": "PLAIN"}))
    bench.run_once(5)
    client.read()
    assert not client.received
    bench.targets[0].answer(request, b"first")
    assert client.receive(5) == b"first"
    assert int(response(client, ApiKey.SASL_HANDSHAKE, 1).error_code) == 0
    assert int(ask(client, ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0alice\0secret").error_code) == 0
    bench.clock.advance_ms(59_000)
    client.send(request_frame(METADATA, 4, 10))
    assert len(bench.requests(1)) == 1
    assert bench.published_value("reauthentications_succeeded") == 1
    assert bench.value("authentications_succeeded") == 1


def test_b25_a_request_while_a_session_is_begun_again_is_a_failure(bench: ProcessorBench) -> None:
    """Its user would be undefined."""
    for size in (100, 200_000):
        client = bench.connect()
        log_in(client)
        bench.clock.advance_ms(2000)
        assert int(ask(client, ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
        client.send(struct.pack(">ihhi", size, METADATA, 4, 1) + bytes(size - 8))
        nothing_sent_on(bench)
        bench.clock.advance_ms(600)
        bench.wait_closed(client)


def test_sessions_end_with_their_processor(bench: ProcessorBench) -> None:
    """SASL state is lost with its process: clients that reconnect authenticate again."""
    client = bench.connect()
    log_in(client)
    bench.processor.close_all()
    bench.replace_processor(generation=2)
    again = bench.connect()
    again.send(request_frame(METADATA, 4, 1))
    nothing_sent_on(bench)
    bench.clock.advance_ms(600)
    bench.wait_closed(again)
