"""Channels of clients above a quota: muted for exactly their throttle time."""

from __future__ import annotations

import socket

import pytest

from rotunda.broker.protocol.schema.marks import with_throttle_time
from tests.support.processor_bench import Client, ProcessorBench, Taken
from tests.support.wire_client import request_frame

METADATA = 3
SECOND_MS = 1000

BENCH_OPTIONS: dict[str, object] = {}


def send(client: Client, correlation_id: int) -> None:
    client.send(request_frame(METADATA, 4, correlation_id))


def waiting(bench: ProcessorBench) -> list[Taken]:
    bench.run_once(5)
    return bench.targets[0].take()


def test_d09_b11_the_response_is_sent_at_once_and_later_requests_wait(bench: ProcessorBench) -> None:
    """D09, E17: reading resumes when the time is over."""
    client = bench.connect()
    send(client, 1)
    [request] = bench.requests(1)
    bench.targets[0].answer_throttled(request, b"throttled", 2 * SECOND_MS)
    assert client.receive(9) == b"throttled"
    send(client, 2)
    assert not waiting(bench)
    bench.clock.advance_ms(1999)
    assert not waiting(bench)
    bench.clock.advance_ms(1)
    [request] = bench.requests(1)
    bench.targets[0].answer(request, b"on")
    assert client.receive(2) == b"on"
    assert bench.published_value("mutes", "throttled") == 1


def test_b12_of_two_throttles_the_latest_end_counts(bench: ProcessorBench) -> None:
    """B12: the first one to end does not end the other; responses to earlier requests are still sent."""
    client = bench.connect()
    for number in range(3):
        send(client, number)
    requests = bench.requests(3)
    bench.targets[0].answer_throttled(requests[0], b"a", 5 * SECOND_MS)
    bench.targets[0].answer_throttled(requests[1], b"b", SECOND_MS)
    assert client.receive(2) == b"ab"
    send(client, 3)
    bench.clock.advance_ms(SECOND_MS)
    assert not waiting(bench)
    bench.targets[0].answer(requests[2], b"c")
    assert client.receive(1) == b"c"
    assert not waiting(bench)
    bench.clock.advance_ms(4 * SECOND_MS)
    assert len(bench.requests(1)) == 1


def test_b12_a_throttle_that_ends_lifts_no_other_cause(bench: ProcessorBench) -> None:
    client = bench.connect()
    for number in range(64):
        send(client, number)
    requests = bench.requests(64)
    bench.targets[0].answer_throttled(requests[0], b"a", SECOND_MS)
    assert client.receive(1) == b"a"
    send(client, 64)
    bench.clock.advance_ms(SECOND_MS)
    assert not waiting(bench)
    for request in requests[1:]:
        bench.targets[0].answer(request, b"b")
    assert len(bench.requests(1)) == 1


def test_d06_a_request_without_a_response_throttles_too(bench: ProcessorBench) -> None:
    """D06: a throttle is attached to the end of any request."""
    client = bench.connect()
    send(client, 1)
    [request] = bench.requests(1)
    bench.targets[0].no_response(request, throttle_ms=SECOND_MS)
    bench.run_once(5)
    send(client, 2)
    assert not waiting(bench)
    bench.clock.advance_ms(SECOND_MS)
    assert len(bench.requests(1)) == 1


def test_d09_an_early_response_throttles_before_it_leaves(bench: ProcessorBench) -> None:
    """D09: the mute starts although the response waits for an earlier one."""
    client = bench.connect()
    for number in range(2):
        send(client, number)
    first, second = bench.requests(2)
    bench.targets[0].answer_throttled(second, b"b", SECOND_MS)
    bench.run_once(5)
    send(client, 2)
    assert not waiting(bench)
    bench.targets[0].answer(first, b"a")
    assert client.receive(2) == b"ab"
    assert not waiting(bench)
    bench.clock.advance_ms(SECOND_MS)
    assert len(bench.requests(1)) == 1


def test_b28_a_closed_channel_is_dropped_silently(bench: ProcessorBench, caplog: pytest.LogCaptureFixture) -> None:
    client, other = bench.connect(), bench.connect()
    for each in (client, other):
        send(each, 1)
        [request] = bench.requests(1)
        bench.targets[0].answer_throttled(request, b"x", SECOND_MS)
        assert each.receive(1) == b"x"
    client.reset()
    bench.run_once(5)
    bench.clock.advance_ms(SECOND_MS)
    bench.wait_closed(client)
    send(other, 2)
    assert len(bench.requests(1)) == 1
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_response_without_a_throttle_time_stays_as_it_is() -> None:
    assert with_throttle_time(METADATA, 0, b"wire", 5) == b"wire"


def test_e17_a_throttled_client_that_hangs_up_gives_its_descriptor_back_at_once(bench: ProcessorBench) -> None:
    """A channel with a request still pending is kept: it is read to the end when the time is over."""
    ended, waits = bench.connect(), bench.connect()
    for client in (ended, waits):
        send(client, 1)
        [request] = bench.requests(1)
        bench.targets[0].answer_throttled(request, b"throttled", 60 * SECOND_MS)
        assert client.receive(9) == b"throttled"
    send(waits, 2)
    ended.sock.close()
    waits.sock.shutdown(socket.SHUT_WR)
    bench.wait_closed(ended)
    assert not waiting(bench)
    bench.clock.advance_ms(60 * SECOND_MS)
    [request] = bench.requests(1)
    bench.targets[0].answer(request, b"on")
    assert waits.receive(2) == b"on"


def test_b19_requests_sent_before_a_throttled_client_disconnects_are_handled(bench: ProcessorBench) -> None:
    client = bench.connect()
    send(client, 1)
    [request] = bench.requests(1)
    bench.targets[0].answer_throttled(request, b"throttled", 60 * SECOND_MS)
    assert client.receive(9) == b"throttled"
    send(client, 2)
    client.sock.close()
    assert not waiting(bench)
    bench.clock.advance_ms(60 * SECOND_MS)
    assert len(bench.requests(1)) == 1
    bench.wait_closed(client)
