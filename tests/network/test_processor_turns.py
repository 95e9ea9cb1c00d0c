"""One turn of the loop, with its order of steps: sleep, memory, reading, writing, activity, idle expiry."""

import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rotunda.broker.ipc.response_writer import FileRange, ResponseFacts
from rotunda.broker.network.processor import channel as channel_module
from rotunda.broker.network.processor import request_reader, selector
from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.processor import POLL_TIMEOUT_MS, PUBLISH_EVERY, RETRY_MS
from rotunda.broker.network.processor.response_reader import BATCH
from rotunda.broker.server_log.slow_turns import LONG_NS
from tests.support.processor_bench import ARENA_BYTES, PRODUCE, Client, ProcessorBench, Taken, frame

IDLE_MS = 1000
SMALL_BUFFER_BYTES = 4096


@pytest.fixture
def sleeps(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which every poll appends its timeout; no poll sleeps."""
    return record_sleeps(bench, monkeypatch)


def record_sleeps(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    recorded: list[int] = []
    real: Callable[[int], list[tuple[int, int]]] = bench.processor._selector.poll

    def poll(timeout_ms: int) -> list[tuple[int, int]]:
        recorded.append(timeout_ms)
        return real(0)

    monkeypatch.setattr(bench.processor._selector, "poll", poll)
    return recorded


def one_request(bench: ProcessorBench, client: Client) -> Taken:
    client.send(frame(1))
    return bench.requests(1)[0]


def peers_by_activity(bench: ProcessorBench) -> list[int]:
    """Return the serials of the open connections, the least recently active first."""
    return [channel.serial for channel in bench.processor._selector.channels.values()]


def test_b04_the_loop_does_not_sleep_while_responses_wait(bench: ProcessorBench, sleeps: list[int]) -> None:
    """A turn reads a batch; the remaining responses in the ring cause no further bell."""
    clients = [bench.connect() for _ in range(1 + BATCH // 50)]
    for client in clients:
        client.send(b"".join(frame(number) for number in range(50)))
    requests = bench.requests(50 * len(clients))
    assert BATCH < len(requests) < 2 * BATCH
    bench.run_once()
    for request in requests:
        bench.targets[0].answer(request, b"answer")
    bench.bell.drain()
    sleeps.clear()
    for _ in range(3):
        bench.processor.step()
    assert sleeps == [0, POLL_TIMEOUT_MS, POLL_TIMEOUT_MS]
    assert sum(len(client.read()) for client in clients) == len(requests) * len(b"answer")


def test_b04_the_loop_does_not_sleep_while_new_connections_wait(bench: ProcessorBench, sleeps: list[int]) -> None:
    """The hand-off wakes one poll; the next turn adopts the connection without another sleep."""
    bench.connect()
    bench.run_once()
    assert sleeps[-1] == POLL_TIMEOUT_MS
    bench.processor._new_waiting = True
    bench.processor.poll()
    assert sleeps[-1] == 0


def test_b05_memory_is_recovered_before_the_loop_sleeps(bench: ProcessorBench, sleeps: list[int]) -> None:
    """A channel that waited for memory resumes in the same turn that frees it, and the loop may sleep immediately."""
    holder, waiting = bench.connect(), bench.connect()
    holder.send(frame(1, bytes(ARENA_BYTES - 100), PRODUCE))
    bench.requests(1, release=False)
    large = frame(2, bytes(200_000), PRODUCE)
    waiting.send(large[:50_000])
    bench.turn_until(lambda: bench.value("mutes", "arena"), "the channel is muted")
    bench.run_once()
    assert sleeps[-1] == RETRY_MS
    bench.targets[0].consumer.release()
    bench.run_once()
    assert sleeps[-1] == POLL_TIMEOUT_MS
    waiting.send(large[50_000:])
    assert bench.requests(1)[0].payload == large[4:]


def test_b05_idle_expiry_is_last_so_an_arrived_request_saves_its_connection() -> None:
    with ProcessorBench(connections_max_idle_ms=IDLE_MS) as bench:
        client = bench.connect()
        client.send(frame(1))
        bench.clock.advance_ms(10 * IDLE_MS)
        assert len(bench.requests(1)) == 1
        bench.run_once(3)
        assert bench.closed() == []
        bench.clock.advance_ms(IDLE_MS + 1)
        bench.run_once()
        assert bench.closed() == [client.serial]


def test_b06_reading_and_writing_make_a_connection_the_most_recently_active(bench: ProcessorBench) -> None:
    clients = [bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES) for _ in range(3)]
    slow, second, third = clients
    request = one_request(bench, slow)
    assert peers_by_activity(bench) == [second.serial, third.serial, slow.serial]
    one_request(bench, second)
    one_request(bench, third)
    bench.targets[0].answer(request, bytes(400_000))
    bench.run_once(2)
    one_request(bench, second)
    assert peers_by_activity(bench) == [slow.serial, third.serial, second.serial]
    bench.clock.advance_ms(5)
    slow.read()
    bench.turn_until(lambda: peers_by_activity(bench)[-1] == slow.serial, "what was written counts as activity")
    channel = next(reversed(bench.processor._selector.channels.values()))
    assert channel.last_active_ns == bench.clock.monotonic_ns()


def test_b06_one_run_reads_and_writes_the_same_connection(bench: ProcessorBench) -> None:
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    request = one_request(bench, client)
    bench.targets[0].answer(request, bytes(400_000))
    bench.run_once(2)
    (channel,) = bench.processor._by_id.values()
    unsent = channel.out_bytes
    assert unsent
    client.send(frame(2))
    bench.turn_until(lambda: client.read() and bench.processor._selector.poll(0), "there is room to write")
    bench.run_once()
    assert channel.out_bytes < unsent
    assert [each.correlation_id for each in bench.targets[0].take()] == [2]


def test_b10_with_a_pipeline_of_one_the_next_request_waits_for_the_last_byte_of_the_response() -> None:
    """As in Apache Kafka: muted from the request until its response is fully sent."""
    with ProcessorBench(pipeline_max=1, pipeline_resume=1) as bench:
        client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
        client.send(frame(1) + frame(2) + frame(3, api_key=PRODUCE) + frame(4))
        (first,) = bench.requests(1)
        bench.run_once(3)
        assert bench.targets[0].take() == []
        bench.targets[0].answer(first, bytes(400_000))
        bench.run_once(3)
        assert bench.targets[0].take() == []
        client.receive(400_000)
        (second,) = bench.requests(1)
        assert second.correlation_id == 2
        bench.targets[0].answer(second, b"second")
        (third,) = bench.requests(1)
        bench.run_once(3)
        assert bench.targets[0].take() == []
        bench.targets[0].no_response(third)
        assert [each.correlation_id for each in bench.requests(1)] == [4]
        assert client.receive(6) == b"second"


def leave(bench: ProcessorBench, client: Client, _: pytest.MonkeyPatch) -> None:
    client.reset()
    bench.wait_closed(client)


def fail_to_send(bench: ProcessorBench, client: Client, _: pytest.MonkeyPatch) -> None:
    (channel,) = bench.processor._by_id.values()
    client.send(frame(2))
    (second,) = bench.requests(1)
    channel.sock.shutdown(socket.SHUT_WR)
    bench.targets[0].answer(second._replace(sequence=second.sequence - 1), b"not sent")
    bench.wait_closed(client)
    bench.targets[0].answer(second, b"too late")


def expire(bench: ProcessorBench, client: Client, _: pytest.MonkeyPatch) -> None:
    bench.clock.advance_ms(IDLE_MS + 1)
    bench.run_once()
    assert client.serial in bench.closed()


def strike(bench: ProcessorBench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(bench.reader, "read", lambda channel: channel.no_such_attribute)
        client.send(frame(2))
        bench.wait_closed(client)


def shut_down(bench: ProcessorBench, client: Client, _: pytest.MonkeyPatch) -> None:
    bench.processor.close_all()
    assert client.wait_ended() == b""


@pytest.mark.parametrize(
    ("end", "cause"),
    [(leave, "client"), (fail_to_send, "io_error"), (expire, "idle"), (strike, "fault"), (shut_down, "shutdown")],
)
def test_b20_every_end_but_a_rejection_is_at_once(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[ProcessorBench, Client, pytest.MonkeyPatch], None], cause: str
) -> None:
    """It does not wait for pending responses, drops late ones, and is reported once.

    At the broker's shutdown it is not reported: the acceptor has stopped before.
    """
    with ProcessorBench(connections_max_idle_ms=IDLE_MS) as bench:
        client = bench.connect()
        request = one_request(bench, client)
        end(bench, client, monkeypatch)
        dropped = bench.responses.responses_dropped
        bench.targets[0].answer(request, b"too late")
        bench.run_once(3)
        assert bench.responses.responses_dropped > dropped
        assert bench.closed() == ([] if cause == "shutdown" else [client.serial])
        assert bench.value("connections_closed", cause) == 1
        assert bench.processor._by_id == {}


def test_channels_that_are_slow_to_read_are_read_in_several_steps_and_each_once(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [bench.connect() for _ in range(2 * PUBLISH_EVERY + 3)]
    real = bench.processor._reader.read
    read: list[int] = []

    def slow(channel: Channel) -> bool:
        read.append(channel.serial)
        bench.clock.advance_ns(LONG_NS // PUBLISH_EVERY)
        return real(channel)

    monkeypatch.setattr(bench.processor._reader, "read", slow)
    for number, client in enumerate(clients):
        client.send(frame(number))
    rounds = []
    while len(read) < len(clients):
        before = len(read)
        bench.run_once()
        rounds.append(len(read) - before)
    assert max(rounds) <= PUBLISH_EVERY
    assert len(set(read)) == len(read) == len(clients)
    assert len(bench.requests(len(clients))) == len(clients)


def test_channels_that_are_slow_to_write_are_written_in_several_steps(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels with new responses, and channels whose sockets accept more of old ones; all are served eventually."""
    clients = [bench.connect() for _ in range(9)]
    flush = Channel.flush
    written: list[int] = []

    def slow(channel: Channel) -> bool:
        written.append(channel.serial)
        bench.clock.advance_ns(selector.WRITING_NS // 2)
        return flush(channel)

    for client in clients:
        client.send(frame(client.serial) + frame(client.serial))
    requests = bench.requests(2 * len(clients))
    for request in requests:
        # With an error: compiled code leaves it to the write that is measured.
        bench.targets[0].answer_failed(request, b"answer %d" % request.correlation_id, ResponseFacts(error_code=1))
    monkeypatch.setattr(Channel, "flush", slow)
    rounds = []
    while len(written) < len(clients):
        before = len(written)
        bench.run_once()
        rounds.append(len(written) - before)
    assert max(rounds) <= 4
    assert sorted(written) == sorted(client.serial for client in clients)
    for client in clients:
        wire = b"answer %d" % client.serial
        assert client.receive(2 * len(wire)) == 2 * wire
    bench.run_once()
    assert not bench.processor._selector.writable


def test_a_client_that_reads_as_fast_as_it_is_written_to_does_not_block_others(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A socket that accepts everything is written a limited number of bytes per turn; then other channels follow."""
    monkeypatch.setattr(channel_module, "WRITTEN_AT_ONCE_BYTES", 1000)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(5000))
    client = bench.connect()
    client.send(frame(1) + frame(2))
    first, second = bench.requests(2)
    place = FileRange(0, str(path).encode(), path.stat().st_ino, 0, 4500)
    bench.targets[0].answer_ranges(first, b"", [place])
    bench.targets[0].answer(second, b"second")
    arrived = []
    while not arrived or arrived[-1] < 4506:
        bench.run_once()
        client.read()
        arrived.append(len(client.received))
    # Twice in the first turn: as a new response, and as a partially written one.
    assert arrived == [2000, 3000, 4000, 4506]


def test_a_large_request_is_received_in_several_steps(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_reader, "RECEIVED_AT_ONCE_BYTES", 20_000)
    client = bench.connect()
    request = frame(1, bytes(100_000), PRODUCE)
    client.send(request)
    filled = []
    while bench.processor._by_id:
        bench.run_once()
        [channel] = bench.processor._by_id.values()
        if channel.large is None and filled:
            break
        filled.append(0 if channel.large is None else channel.large.filled)
    assert max(after - before for before, after in pairwise(filled)) <= 20_000
    assert bench.requests(1)[0].payload == request[4:]


def test_a_channel_that_ends_before_it_is_written_to_is_forgotten(bench: ProcessorBench) -> None:
    bench.connect()
    bench.run_once()
    [channel] = bench.processor._by_id.values()
    writable = bench.processor._selector.writable
    writable[channel] = None
    bench.processor._close(channel, "fault")
    assert not writable


def test_a_channel_that_ends_before_it_is_read_is_forgotten(
    bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [bench.connect() for _ in range(2 * PUBLISH_EVERY)]
    monkeypatch.setattr(selector, "LONG_NS", 0)
    for number, client in enumerate(clients):
        client.send(frame(number))
    bench.run_once()
    readable = bench.processor._selector.readable
    assert len(readable) == len(clients)
    for channel in list(readable):
        bench.processor._close(channel, "fault")
    assert not readable
