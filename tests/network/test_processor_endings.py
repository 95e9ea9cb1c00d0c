"""Ends of connections: by the client, by a bad request, by a target, by idleness, by the broker's shutdown."""

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.ipc.response_writer import FileRange
from rotunda.broker.network.processor.processor import DRAINING_POLL_MS
from rotunda.broker.network.processor.response_reader import MOST_RESENDS
from rotunda.broker.network.processor.selector import Selector
from rotunda.broker.network.processor.unwritten_responses import UNREAD_NS
from tests.support.processor_bench import (
    ARENA_BYTES,
    CREATE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    RING_BYTES,
    Client,
    ProcessorBench,
    frame,
)

SMALL_BUFFER_BYTES = 4096
BAD_SIZE = struct.pack(">i", -1)


def half_close(client: Client) -> None:
    client.sock.shutdown(socket.SHUT_WR)


def close(client: Client) -> None:
    client.sock.close()


@pytest.mark.parametrize("end", [close, half_close, Client.reset])
def test_b19_requests_sent_before_the_end_are_still_done(bench: ProcessorBench, end: Callable[[Client], None]) -> None:
    """For example of a producer with acks=0: write and close. More than `pipeline.max`, so that muting is included."""
    client = bench.connect()
    client.send(b"".join(frame(number, b"x" * 100, PRODUCE) for number in range(150)))
    end(client)
    done: list[int] = []
    while len(done) < 150:
        for request in bench.requests(min(64, 150 - len(done))):
            bench.targets[0].no_response(request)
            done.append(request.correlation_id)
    assert done == list(range(150))
    bench.wait_closed(client)
    assert not bench.restless()


@pytest.mark.parametrize("body", [b"", bytes(60_000)])
def test_b19_a_muted_channel_of_a_disconnected_client_does_not_keep_the_loop_awake(
    bench: ProcessorBench, body: bytes
) -> None:
    client = bench.connect()
    client.send(b"".join(frame(number) for number in range(64)) + frame(64, body))
    requests = bench.requests(64)
    client.reset()
    bench.run_once(5)
    assert not bench.restless()
    for request in requests:
        bench.targets[0].answer(request, b"x")
    bench.wait_closed(client)
    assert not bench.restless()


def test_b19_a_client_that_disconnects_while_it_waits_for_memory_is_noticed(bench: ProcessorBench) -> None:
    holder, client = bench.connect(), bench.connect()
    holder.send(frame(1, bytes(ARENA_BYTES - 100), PRODUCE))
    bench.requests(1, release=False)
    client.send(frame(2, bytes(200_000), PRODUCE)[:60_000])
    bench.turn_until(lambda: bench.value("mutes", "arena"), "the channel is muted")
    client.reset()
    bench.run_once(5)
    bench.targets[0].consumer.release()
    bench.wait_closed(client)
    bench.run_once(2)
    assert bench.sender.reclaim() or bench.sender.pool.used_bytes == 0


def test_b19_a_client_that_disconnects_with_responses_unread_is_closed(bench: ProcessorBench) -> None:
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(1))
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, bytes(100_000))
    bench.run_once(3)
    client.reset()
    bench.wait_closed(client)
    assert not bench.restless()


@pytest.mark.parametrize("bad", [BAD_SIZE, struct.pack(">i", 7), b"GET / HTTP/1.0\r\n\r\n"])
def test_c02_c03_an_invalid_request_closes_without_a_response(bench: ProcessorBench, bad: bytes) -> None:
    client, other = bench.connect(), bench.connect()
    client.send(bad)
    bench.wait_closed(client)
    assert client.wait_ended() == b""
    assert bench.value("connections_closed", "invalid_request") == 1
    other.send(frame(1))
    assert len(bench.requests(1)) == 1


def test_d12_earlier_requests_get_responses_before_a_bad_one_closes(bench: ProcessorBench) -> None:
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(1) + frame(2) + BAD_SIZE + frame(3))
    first, second = bench.requests(2)
    bench.targets[0].answer(second, bytes(100_000))
    assert bench.nothing_more()
    assert bench.closed() == []
    bench.targets[0].answer(first, b"first")
    assert client.receive(100_005) == b"first" + bytes(100_000)
    bench.wait_closed(client)


def test_d12_a_bad_request_after_unsent_responses_waits_for_them(bench: ProcessorBench) -> None:
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(1))
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, bytes(100_000))
    bench.run_once(3)
    client.send(BAD_SIZE)
    assert bench.nothing_more()
    assert bench.closed() == []
    assert client.receive(100_000) == bytes(100_000)
    bench.wait_closed(client)


def test_d12_a_target_that_closes_is_obeyed_after_the_responses_before_it(bench: ProcessorBench) -> None:
    """Responses to later requests are dropped: the client would match them to the missing one."""
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(1) + frame(2) + frame(3))
    first, second, third = bench.requests(3)
    bench.targets[0].close_connection(second)
    bench.targets[0].answer(first, bytes(100_000))
    bench.run_once(3)
    bench.targets[0].answer(third, b"third")
    client.send(frame(4))
    assert bench.nothing_more()
    assert client.wait_ended() == bytes(100_000)
    assert bench.value("connections_closed", "response") == 1


def test_d12_a_close_with_unread_input_does_not_reset_the_connection(bench: ProcessorBench) -> None:
    """A reset would discard responses that have not reached the client."""
    client = bench.connect()
    client.send(frame(1) + BAD_SIZE)
    (request,) = bench.requests(1)
    client.send(frame(2))
    bench.targets[0].answer(request, b"first")
    bench.wait_closed(client)
    client.sock.settimeout(60)
    assert client.sock.recv(100) == b"first"
    assert client.sock.recv(100) == b""


def test_b17_idle_connections_are_closed_one_at_a_time_least_recent_first() -> None:
    with ProcessorBench(connections_max_idle_ms=1000) as bench:
        clients = [bench.connect() for _ in range(3)]
        bench.clock.advance_ms(900)
        clients[0].send(frame(1))
        bench.requests(1)
        bench.clock.advance_ms(200)
        bench.run_once()
        assert bench.closed() == [1]
        bench.run_once()
        assert bench.closed() == [1, 2]
        bench.run_once(3)
        assert bench.closed() == [1, 2]
        assert bench.value("connections_closed", "idle") == 2


def test_b17_a_muted_channel_is_idle_too_and_its_response_is_dropped() -> None:
    with ProcessorBench(connections_max_idle_ms=1000, pipeline_max=1, pipeline_resume=1) as bench:
        client = bench.connect()
        client.send(frame(1))
        (request,) = bench.requests(1)
        bench.clock.advance_ms(2000)
        bench.wait_closed(client)
        bench.targets[0].answer(request, b"late")
        bench.run_once(2)
        assert bench.responses.responses_dropped == 1


def test_b17_a_negative_limit_disables_it() -> None:
    with ProcessorBench(connections_max_idle_ms=-1) as bench:
        bench.connect()
        bench.clock.advance_ms(10**10)
        bench.run_once(3)
        assert bench.closed() == []


def test_b26_d13_a_closed_connection_leaves_nothing(bench: ProcessorBench) -> None:
    """Open files of held or partially sent responses are closed with it."""
    path = bench.directory / "segment"
    path.write_bytes(bytes(400_000))
    inode = path.stat().st_ino
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(1, api_key=FETCH) + frame(2, api_key=FETCH) + frame(3, api_key=FETCH))
    requests = bench.requests(3)
    for request in (requests[0], requests[2]):
        ranges = [FileRange(0, bytes(path), inode, 0, 400_000)]
        bench.targets[0].answer_ranges(request, b"", ranges)
    bench.run_once(3)
    client.reset()
    bench.wait_closed(client)
    path.unlink()
    bench.clock.advance_ms(2000)
    bench.run_once()
    held = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    assert not [target for target in held if str(target).startswith(str(path))]
    assert bench.processor._by_id == {}


def test_b21_a_truncated_segment_closes_the_connection(bench: ProcessorBench) -> None:
    path = bench.directory / "segment"
    path.write_bytes(bytes(100))
    client = bench.connect()
    client.send(frame(1, api_key=FETCH))
    (request,) = bench.requests(1)
    bench.targets[0].answer_ranges(request, b"", [FileRange(0, bytes(path), path.stat().st_ino, 50, 100)])
    bench.wait_closed(client)
    assert bench.value("connections_closed", "io_error") == 1


def test_b33_requests_in_flight_to_a_dead_target_are_resent(bench: ProcessorBench) -> None:
    """Except Produce: its owner's replacement finds it in the ring. The second response is ignored."""
    client = bench.connect()
    client.send(frame(1) + frame(2, api_key=PRODUCE) + frame(3) + frame(4, api_key=CREATE_TOPICS))
    first = bench.requests(3)
    bench.requests(1, target=1)
    bench.targets[0].answer(first[2], b"three")
    bench.run_once(2)
    bench.processor.target_ready(0, 2)
    again = bench.requests(2)
    assert [each.correlation_id for each in again] == [1, 3]
    assert bench.targets[1].take() == []
    bench.targets[0].answer(again[0], b"one")
    bench.targets[0].answer(again[1], b"THREE")
    bench.targets[0].answer(first[1], b"two")
    assert client.receive(11) == b"onetwothree"
    bench.run_once(2)
    assert client.read() == b""


def test_b33_repeats_wait_for_room_and_none_is_lost(bench: ProcessorBench) -> None:
    client, other = bench.connect(), bench.connect()
    count = 2 * (RING_BYTES // 60_000)
    for number in range(count):
        client.send(frame(number, bytes(60_000)))
        bench.requests(1)
    bench.processor.target_ready(0, 2)
    other.send(frame(99, api_key=CREATE_TOPICS))
    assert len(bench.requests(1, target=1)) == 1
    repeated = bench.requests(count)
    assert [each.correlation_id for each in repeated] == list(range(count))
    assert not bench.restless()


def test_b33_a_target_that_dies_again_gets_each_waiting_request_once(bench: ProcessorBench) -> None:
    client = bench.connect()
    count = 2 * (RING_BYTES // 60_000)
    for number in range(count):
        client.send(frame(number, bytes(60_000)))
        bench.requests(1)
    bench.processor.target_ready(0, 2)
    bench.processor.target_ready(0, 3)
    stale = [each.correlation_id for each in bench.targets[0].take()]
    assert stale == list(range(len(stale)))
    assert 0 < len(stale) < count
    assert sorted(each.correlation_id for each in bench.requests(count)) == list(range(count))
    assert bench.nothing_more()


def test_b33_repeats_of_a_closed_connection_are_dropped(bench: ProcessorBench) -> None:
    client = bench.connect()
    count = 2 * (RING_BYTES // 60_000)
    for number in range(count):
        client.send(frame(number, bytes(60_000)))
        bench.requests(1)
    bench.processor.target_ready(0, 2)
    client.reset()
    bench.wait_closed(client)
    bench.targets[0].take()
    assert bench.nothing_more()
    assert not bench.restless()


def test_b33_a_replaced_processor_drops_its_predecessors_responses_and_frees_their_room(bench: ProcessorBench) -> None:
    """If they were only read, the target would wait for ever for space in the ring."""
    client = bench.connect()
    count = 2 * (RING_BYTES // 50_000)
    for number in range(count):
        client.send(frame(number))
    requests = bench.requests(count)
    for request in requests:
        bench.targets[0].answer(request, bytes(50_000))
    assert bench.targets[0].responses.blocked(0)
    bench.processor.close_all()
    bench.replace_processor(generation=2)
    bench.turn_until(lambda: not bench.targets[0].responses.blocked(0), "the target's answers have gone in")
    bench.run_once(2)
    assert bench.responses.responses_dropped == count
    newcomer = bench.connect()
    newcomer.send(frame(1))
    (request,) = bench.requests(1)
    assert request.connection_id != requests[0].connection_id
    bench.targets[0].answer(request, b"answer")
    assert newcomer.receive(6) == b"answer"


def test_draining_reads_no_requests_and_sends_responses(bench: ProcessorBench) -> None:
    busy, idle, fetching = (bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES) for _ in range(3))
    busy.send(frame(1))
    fetching.send(frame(2, api_key=FETCH))
    request, _ = bench.requests(2)
    bench.bell.ring()
    assert not bench.processor.drain()
    idle.send(frame(3))
    newcomer = bench.connect()
    newcomer.send(frame(4))
    assert bench.nothing_more()
    assert bench.value("mutes", "draining") == 4
    bench.targets[0].answer(request, bytes(100_000))
    bench.run_once()
    assert not bench.processor.drain()
    assert busy.receive(100_000) == bytes(100_000)
    bench.bell.ring()
    assert bench.processor.drain()
    bench.processor.close_all()
    for client in (busy, idle, fetching, newcomer):
        client.read()
        assert client.ended
    assert bench.value("connections_closed", "shutdown") == 4


def test_a_stop_waits_for_a_produce_and_not_for_long_requests(bench: ProcessorBench) -> None:
    asking, producing = bench.connect(), bench.connect()
    asking.send(frame(1))
    producing.send(frame(2, api_key=0))
    requests = bench.requests(2)
    bench.bell.ring()
    assert not bench.processor.drain(produce_only=True)
    [produce] = [request for request in requests if request.api_key == 0]
    bench.targets[0].answer(produce, b"answer")
    bench.bell.ring()
    assert bench.processor.drain(produce_only=True)
    assert not bench.processor.drain()
    assert producing.receive(6) == b"answer"


def test_a_stop_does_not_wait_for_a_client_that_reads_nothing(bench: ProcessorBench) -> None:
    deaf, slow = (bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES) for _ in range(2))
    deaf.send(frame(1))
    slow.send(frame(2))
    for request in bench.requests(2):
        bench.targets[0].answer(request, bytes(200_000))
    bench.bell.ring()
    assert not bench.processor.drain(produce_only=True)
    bench.clock.advance_ns(UNREAD_NS)
    slow.receive(SMALL_BUFFER_BYTES)
    bench.bell.ring()
    assert not bench.processor.drain(produce_only=True), "one of them still reads"
    bench.clock.advance_ns(UNREAD_NS)
    bench.bell.ring()
    assert bench.processor.drain(produce_only=True)
    assert not bench.processor.drain()


def test_a_stop_looks_often_whether_its_time_is_over(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without events: the loop's usual sleep must not delay the check of the timeout."""
    asking = bench.connect()
    asking.send(frame(1))
    bench.requests(1)
    sleeps: list[int] = []

    def poll(_: Selector, timeout_ms: int) -> list[tuple[int, int]]:
        sleeps.append(timeout_ms)
        return []

    monkeypatch.setattr(Selector, "poll", poll)
    for _ in range(5):
        assert not bench.processor.drain()
    assert max(sleeps) <= DRAINING_POLL_MS


def test_a_client_that_disconnects_while_draining_is_closed(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1))
    bench.requests(1)
    bench.bell.ring()
    assert not bench.processor.drain()
    client.reset()
    bench.wait_closed(client)
    bench.bell.ring()
    assert bench.processor.drain()


def test_a_foreign_descriptor_wakes_the_loop_once(bench: ProcessorBench) -> None:
    """The stop flag's descriptor remains readable: the loop must not spin on it while it drains."""
    reader, writer = os.pipe()
    bench.processor.watch(reader)
    os.write(writer, b"!")
    bench.processor.step()
    assert not bench.restless()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("early", [False, True])
def test_a_fetch_with_removed_records_is_resent_and_its_connection_stays(bench: ProcessorBench, early: bool) -> None:
    client = bench.connect()
    client.send(frame(1, api_key=FETCH) + frame(2, api_key=FETCH))
    requests = bench.requests(2)
    gone = [FileRange(0, bytes(bench.directory / "gone"), 4711, 0, 7)]
    received = bench.responses.responses_received
    first, second = reversed(requests) if early else requests
    bench.targets[0].answer_ranges(first, b"head", gone)
    (again,) = bench.requests(1)
    assert (again.connection_id, again.sequence) == (first.connection_id, first.sequence)
    assert bench.responses.responses_received == received
    bench.targets[0].answer(again, b"error of its partition")
    bench.targets[0].answer(second, b"other")
    responses = {first.sequence: b"error of its partition", second.sequence: b"other"}
    expected = b"".join(responses[sequence] for sequence in sorted(responses))
    assert client.receive(len(expected)) == expected
    assert bench.closed() == []


def test_a_response_that_cannot_be_sent_repeatedly_closes_the_connection(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1, api_key=FETCH))
    (request,) = bench.requests(1)
    gone = [FileRange(0, bytes(bench.directory / "gone"), 4711, 0, 7)]
    for _ in range(MOST_RESENDS):
        bench.targets[0].answer_ranges(request, b"head", gone)
        (request,) = bench.requests(1)
    bench.targets[0].answer_ranges(request, b"head", gone)
    assert client.wait_ended() == b""


def test_only_requests_without_effect_are_resent(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1, api_key=METADATA))
    (request,) = bench.requests(1)
    bench.targets[0].answer_ranges(request, b"head", [FileRange(0, bytes(bench.directory / "gone"), 4711, 0, 7)])
    assert client.wait_ended() == b""
