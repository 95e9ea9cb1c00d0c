"""The loop with real connections: requests, responses, and faults confined to their connection."""

import random
import socket
import struct

import pytest

from rotunda.broker.native import compiled
from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.processor import NEW_CONNECTIONS, POLL_TIMEOUT_MS
from rotunda.shm.metrics.process_metrics import MetricsReader
from tests.support.feeds import random_seed
from tests.support.processor_bench import METADATA, PRODUCE, ProcessorBench, Taken, frame
from tests.support.wire_client import sized

SMALL_BUFFER_BYTES = 4096


def response_to(request: Taken, body: bytes = b"") -> bytes:
    return sized(struct.pack(">i", request.correlation_id) + body)


def test_a_request_is_received_and_its_response_sent(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(5, b"body"))
    (request,) = bench.requests(1)
    assert sized(request.payload) == frame(5, b"body")
    bench.targets[0].answer(request, response_to(request, b"result"))
    assert client.receive(14) == response_to(request, b"result")


def test_b09_a_slow_reader_gets_everything_and_the_loop_sleeps_afterwards(bench: ProcessorBench) -> None:
    """B08: write interest ends with the send, otherwise the loop would be woken for ever."""
    seed = random_seed()
    large = random.Random(seed).randbytes(240_000)
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    for number in range(3):
        client.send(frame(number))
    for request in bench.requests(3):
        bench.targets[0].answer(request, large[: 80_000 * (request.sequence + 1)])
        bench.run_once()
    assert client.receive(480_000) == large[:80_000] + large[:160_000] + large, f"seed {seed}"
    assert not bench.restless()
    assert bench.published_value("responses_sent") == 3


def test_b03_the_loop_sleeps_until_a_bell_a_socket_or_a_new_connection_wakes_it(bench: ProcessorBench) -> None:
    client = bench.connect()
    assert not bench.restless()
    client.send(frame(1))
    bench.processor.step()
    (request,) = bench.targets[0].take()
    bench.targets[0].answer(request, b"answer")
    bench.processor.step()
    bench.processor.step()
    assert client.read() == b"answer"
    assert not bench.restless()
    assert POLL_TIMEOUT_MS == 300


def test_b02_new_connections_are_received_twenty_at_a_time(bench: ProcessorBench) -> None:
    sockets = [socket.socketpair() for _ in range(NEW_CONNECTIONS + 1)]
    for serial, (ours, _) in enumerate(sockets):
        assert bench.acceptor.try_send(ours, serial, 0, ("127.0.0.1", 1))
        ours.close()
    bench.run_once(2)
    assert bench.value("connections_opened") == NEW_CONNECTIONS
    bench.run_once()
    assert bench.value("connections_opened") == NEW_CONNECTIONS + 1
    for _, client in sockets:
        client.close()


def test_b02_a_connection_that_cannot_be_watched_is_closed_and_uncounted(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    survivor = bench.connect()

    def reject(channel: Channel) -> None:
        raise OSError(28, f"no room for {channel.peer}")

    with monkeypatch.context() as patch:
        patch.setattr(bench.processor._selector, "register", reject)
        ours, client = socket.socketpair()
        assert bench.acceptor.try_send(ours, 99, 0, ("127.0.0.1", 1))
        ours.close()
        bench.turn_until(lambda: 99 in bench.closed(), "the connection is reported closed")
        assert client.recv(1) == b""
        client.close()
    assert survivor.is_served()
    assert bench.connect().is_served()


@pytest.mark.parametrize("step", ["read", "resume", "flush", "send_out"])
def test_b01_b22_a_fault_of_ours_ends_one_connection_and_no_other(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """Each step for a single connection fails for one, between two others that need the same step."""
    clients = [bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES) for _ in range(3)]
    victim = clients[1]
    place: object = bench.reader if step in {"read", "resume"} else Channel
    real = getattr(place, step)

    def faulty(channel: Channel) -> object:
        if channel.serial == victim.serial:
            raise ZeroDivisionError
        return real(channel)

    for client in clients:
        client.send(frame(client.serial))
    if step == "read":
        monkeypatch.setattr(place, step, faulty)
        requests = bench.requests(2)
    else:
        requests = bench.requests(3)
        monkeypatch.setattr(place, step, faulty)
        if step == "resume":
            for channel in bench.processor._by_id.values():
                bench.reader.waiting[channel.fd] = channel
    for request in requests:
        bench.targets[0].answer(request, bytes(60_000))
    victim.wait_ended()
    bench.wait_closed(victim)
    monkeypatch.undo()
    for client in (clients[0], clients[2]):
        assert client.receive(60_000) == bytes(60_000)
        assert client.is_served()
    assert bench.value("connections_closed", "fault") == 1
    assert "ZeroDivisionError" in caplog.text
    assert not bench.restless()


@pytest.mark.parametrize("step", ["opened", "begin"])
def test_b22_requests_of_a_connection_that_was_not_set_up_are_not_read(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its user is unknown before it is closed: no request of it may reach a ring."""

    def faulty(channel: Channel) -> None:
        raise ZeroDivisionError(channel.peer)

    monkeypatch.setattr(bench.processor.finished if step == "opened" else bench.processor.authentication, step, faulty)
    ours, client = socket.socketpair()
    client.sendall(frame(1))
    assert bench.acceptor.try_send(ours, 99, 0, ("127.0.0.1", 1))
    ours.close()
    bench.turn_until(lambda: 99 in bench.closed(), "the connection is reported closed")
    assert [request for target in bench.targets for request in target.take()] == []
    client.close()


#: Compiled code calls no method of a channel.
PURE = pytest.mark.skipif(compiled is not None, reason="compiled code sends")


@pytest.mark.parametrize("step", [pytest.param("send", marks=PURE), "finish", "attach"])
def test_b22_a_fault_on_one_response_costs_no_other_connection_its_own(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """No ring delivers a response twice: each received response is written in its turn, despite faults on others."""
    clients = [bench.connect() for _ in range(3)]
    victim = clients[1]
    channels = {channel.serial: channel for channel in bench.processor._by_id.values()}
    for client in clients:
        client.send(frame(client.serial))
    requests = bench.requests(3)

    def fault(*_: object) -> int:
        raise ZeroDivisionError("ours")

    add_lone, attach = bench.processor.finished.add_lone, bench.responses._attach
    if step == "send":
        channels[victim.serial].send = fault
    elif step == "finish":
        monkeypatch.setattr(
            bench.processor.finished,
            "add_lone",
            lambda channel, *rest: (fault if channel.serial == victim.serial else add_lone)(channel, *rest),
        )
    else:
        monkeypatch.setattr(
            bench.responses,
            "_attach",
            lambda channel, *rest: (fault if channel.serial == victim.serial else attach)(channel, *rest),
        )
    responses = bench.targets[0].responses
    for request in requests:
        to = bench.targets[0].answered(request, 1)
        if step == "attach":
            # All but plain responses use the general path.
            responses.no_response(to, 1, 1)
        else:
            responses.send(to, 1, 1, b"answer")
    victim.wait_ended()
    bench.wait_closed(victim)
    for client in (clients[0], clients[2]):
        assert channels[client.serial].in_flight == 0
        assert step == "attach" or client.receive(6) == b"answer"
        assert client.is_served()
    assert "ours" in caplog.text
    assert bench.value("connections_closed", "fault") == 1


def test_b22_a_fault_on_a_new_connection_costs_no_other_one_its_beginning(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = bench.processor.finished.opened

    def faulty(channel: Channel) -> None:
        if channel.serial == 0:
            raise ZeroDivisionError("ours")
        opened(channel)

    monkeypatch.setattr(bench.processor.finished, "opened", faulty)
    victim, client = bench.connect(), bench.connect()
    victim.wait_ended()
    bench.wait_closed(victim)
    assert client.is_served()
    assert "ours" in caplog.text
    assert bench.published_value("connections_closed", "fault") == 1


def test_d13_d21_connections_requests_and_bytes_are_counted(bench: ProcessorBench) -> None:
    first, second = bench.connect(), bench.connect()
    first.send(frame(1) + frame(2, b"x", api_key=PRODUCE))
    second.send(frame(3))
    for request in bench.requests(3):
        bench.clock.advance_ns(1_000)
        if request.api_key == PRODUCE:
            bench.targets[0].no_response(request)
        else:
            bench.targets[0].answer(request, b"12345678")
    first.receive(8)
    second.receive(8)
    assert bench.published_value("requests_received") == 3
    assert bench.value("bytes_received") == len(frame(1)) * 3 + 1
    assert bench.value("bytes_sent") == 16
    assert bench.value("connections") == 2
    phases = MetricsReader(bench.page).read().phases
    assert phases[METADATA, "total"].count == 2
    assert phases[PRODUCE, "total"].count == 1
    first.sock.close()
    bench.wait_closed(first)
    assert bench.value("connections_closed", "client") == 1
    assert bench.published_value("connections") == 1
