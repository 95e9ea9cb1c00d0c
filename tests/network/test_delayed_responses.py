"""Responses delayed by fault injection: held by the processor, in order, until due or until the client is gone."""

from __future__ import annotations

import pytest

from rotunda.broker.faults.faulty_responses import FaultyResponses
from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.shm.faults import FaultWords
from tests.support.processor_bench import Client, ProcessorBench, Taken
from tests.support.wire_client import request_frame

METADATA = 3
BENCH_OPTIONS: dict[str, object] = {}


def send(client: Client, correlation_id: int) -> None:
    client.send(request_frame(METADATA, 4, correlation_id))


def respond_late(
    bench: ProcessorBench, request: Taken, payload: bytes, delay_ms: int, dequeued_ns: int | None = None
) -> None:
    target = bench.targets[0]
    target.responses = FaultyResponses(bench.channel, 0, (bench.bell,), bench.directory)
    now_ns = bench.clock.monotonic_ns()
    to = target.answered(request, now_ns if dequeued_ns is None else dequeued_ns)
    to.session = FaultySession("ANONYMOUS", "", delay_ms=delay_ms)
    target.responses.send(to, now_ns, now_ns, payload)
    target.publish()
    bench.run_once(3)


def test_a_response_is_delayed_and_later_ones_wait_for_it(bench: ProcessorBench) -> None:
    client, other = bench.connect(), bench.connect()
    for number in range(3):
        send(client, number)
    requests = bench.requests(3)
    bench.targets[0].answer(requests[0], b"first")
    respond_late(bench, requests[1], b"late", 5_000)
    bench.targets[0].answer(requests[2], b"behind")
    assert client.receive(5) == b"first"
    send(other, 7)
    [further] = bench.requests(1)
    bench.targets[0].answer(further, b"other")
    assert other.receive(5) == b"other"
    bench.clock.advance_ms(4_999)
    bench.run_once(3)
    assert client.read() == b""
    bench.clock.advance_ms(1)
    assert client.receive(10) == b"latebehind"


def test_delayed_responses_are_sent_when_the_test_or_the_processor_ends(bench: ProcessorBench) -> None:
    words = FaultWords(memoryview(bytearray(FaultWords.bytes_needed(1))), 1)
    bench.processor._responses.delayed.follow(words)
    client = bench.connect()
    for end in (lambda: words.end_delays(bench.clock.monotonic_ns()), bench.processor.drain):
        send(client, 1)
        [request] = bench.requests(1)
        respond_late(bench, request, b"late", 3_600_000)
        assert client.read() == b""
        bench.clock.advance_ms(1)
        end()
        assert client.receive(4) == b"late"


def test_responses_to_requests_read_before_the_end_of_delays_are_sent(bench: ProcessorBench) -> None:
    """A fault counts a request before its response is ready, and a test may end the delay in between."""
    words = FaultWords(memoryview(bytearray(FaultWords.bytes_needed(1))), 1)
    bench.processor._responses.delayed.follow(words)
    client = bench.connect()
    send(client, 1)
    [request] = bench.requests(1)
    dequeued_ns = bench.clock.monotonic_ns()
    bench.clock.advance_ms(1)
    words.end_delays(bench.clock.monotonic_ns())
    bench.clock.advance_ms(1)
    respond_late(bench, request, b"late", 3_600_000, dequeued_ns)
    assert client.receive(4) == b"late"


@pytest.mark.parametrize("delay_ms", [1_000, 3_600_000])
def test_delayed_responses_end_with_their_connection(bench: ProcessorBench, delay_ms: int) -> None:
    client = bench.connect()
    send(client, 1)
    [request] = bench.requests(1)
    respond_late(bench, request, b"late", delay_ms)
    client.sock.close()
    bench.run_once(5)
    bench.clock.advance_ms(delay_ms)
    bench.run_once(5)
    other = bench.connect()
    send(other, 2)
    [request] = bench.requests(1)
    bench.targets[0].answer(request, b"on")
    assert other.receive(2) == b"on"
    assert not bench.processor._responses.delayed
