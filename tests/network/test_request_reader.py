"""Parsing requests from bytes: frames cut anywhere, invalid sizes, and limits that mute a channel."""

import socket
import struct
from collections.abc import Iterator

import pytest

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.request_channel import ARENA, INLINE, INLINE_REQUEST_BYTES
from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from tests.support.feeds import feeds, random_seed
from tests.support.processor_bench import ARENA_BYTES, CREATE_TOPICS, METADATA, PRODUCE, ProcessorBench, Taken, frame
from tests.support.wire_client import request_frame, sized

LIMIT = 2_000_000
HEADER_BYTES = len(frame(1)) - 4


class Wire:
    """A channel that is read directly, without a loop."""

    def __init__(self, bench: ProcessorBench) -> None:
        self.bench = bench
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.channel = Channel(ours, 77, 1, 3, "peer")
        self.taken: list[Taken] = []
        self.sent_bytes = 0

    def feed(self, data: bytes) -> None:
        """Alternate sends and reads until all is read or the channel is muted."""
        view = memoryview(data)
        while view and not self.channel.muted:
            sent = self.client.send(view[:50_000])
            self.sent_bytes += sent
            view = view[sent:]
            while self.bench.reader.counts.bytes < self.sent_bytes and not self.channel.muted:
                self.read()

    def read(self) -> bool:
        open_still = self.bench.reader.read(self.channel)
        self.bench.sender.publish()
        for target in self.bench.targets:
            self.taken += target.take(release=False)
        return open_still

    def close(self) -> None:
        self.client.close()
        self.channel.sock.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with ProcessorBench(socket_request_max_bytes=LIMIT, pipeline_max_bytes=2 * LIMIT) as bench:
        made = Wire(bench)
        yield made
        made.close()


def fill_ring(bench: ProcessorBench) -> None:
    """Fill target 0's ring completely."""
    for size in (60_000, 0):
        while bench.sender.try_send(0, (1, 0, 0, METADATA, 4, 5, size), 0, bytes(size)):
            pass


def test_c01_frames_may_be_cut_anywhere() -> None:
    seed = random_seed()
    frames = [frame(1, b"first"), frame(2), frame(3, bytes(300)), frame(4, b"x", CREATE_TOPICS)]
    for name, chunks in feeds(b"".join(frames), seed):
        with ProcessorBench() as bench:
            wire = Wire(bench)
            for chunk in chunks:
                wire.feed(chunk)
            payloads = {each.sequence: sized(each.payload) for each in wire.taken}
            assert payloads == dict(enumerate(frames)), name
            assert wire.channel.inbox == b"", name
            wire.close()


def test_a_request_is_described_by_its_first_bytes(wire: Wire) -> None:
    wire.feed(request_frame(METADATA, 9, -12345, b"body"))
    (received,) = wire.taken
    assert (received.connection_id, received.sequence, received.listener) == (77, 0, 3)
    assert (received.api_key, received.api_version, received.correlation_id) == (METADATA, 9, -12345)
    assert received.received_ns == wire.bench.clock.monotonic_ns()
    assert (received.area, received.address) == (INLINE, -1)
    assert wire.bench.reader.counts.requests == 1
    assert wire.bench.reader.counts.bytes == HEADER_BYTES + 8


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1, 0, 1, 7])
def test_c02_c03_a_bad_size_is_rejected_before_its_bytes_arrive(wire: Wire, size: int) -> None:
    """Row C03: an empty frame is invalid too. No memory is reserved for it: C04."""
    with pytest.raises(InvalidReceive, match=f"size {size}:"):
        wire.feed(struct.pack(">i", size))
    assert wire.channel.large is None
    assert wire.bench.sender.pool.used_bytes == 0


def test_c02_a_request_of_exactly_the_limit_is_accepted(wire: Wire) -> None:
    wire.feed(frame(1, bytes(LIMIT - HEADER_BYTES), PRODUCE))
    (received,) = wire.taken
    assert len(received.payload) == LIMIT


@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_c02_a_limit_below_the_inline_size_holds_for_whole_requests(surplus: int) -> None:
    limit = 500
    with ProcessorBench(socket_request_max_bytes=limit) as bench:
        wire = Wire(bench)
        request = frame(1, bytes(limit + surplus - HEADER_BYTES))
        if surplus > 0:
            with pytest.raises(InvalidReceive, match=f"size {limit + surplus}:"):
                wire.feed(request)
        else:
            wire.feed(request)
        assert len(wire.taken) == (surplus <= 0)
        wire.close()


def test_a_foreign_protocol_is_named(wire: Wire) -> None:
    with pytest.raises(InvalidReceive, match="HTTP"):
        wire.feed(b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("behind", [b"", b"\0\0", frame(5)[:-1], frame(5)[:5]])
def test_c05_the_end_of_the_stream_is_reported_and_half_a_frame_is_no_request(wire: Wire, behind: bytes) -> None:
    wire.feed(frame(1) + behind)
    wire.client.close()
    assert not wire.read()
    assert [each.correlation_id for each in wire.taken] == [1]


def test_nothing_to_read_is_no_end(wire: Wire) -> None:
    assert wire.read()


def test_b07_one_read_receives_all_requests_that_have_arrived(wire: Wire) -> None:
    """Kafka processes one request of a channel per poll; Rotunda all requests of one read, up to `pipeline.max`."""
    wire.client.send(b"".join(frame(number) for number in range(10)))
    wire.read()
    assert [each.correlation_id for each in wire.taken] == list(range(10))


@pytest.mark.parametrize("size", [INLINE_REQUEST_BYTES, INLINE_REQUEST_BYTES + 1, 500_000, ARENA_BYTES])
def test_every_size_and_the_next_request_arrive_whole(wire: Wire, size: int) -> None:
    seed = random_seed()
    body = bytes(range(256)) * (size // 256 + 1)
    large = frame(2, body[: size - HEADER_BYTES])
    wire.feed(frame(1) + large + frame(3) + frame(4))
    assert [sized(each.payload) for each in wire.taken] == [frame(1), large, frame(3), frame(4)], f"seed {seed}"
    assert wire.taken[1].area == (INLINE if size <= INLINE_REQUEST_BYTES else ARENA)


def test_b33_a_request_larger_than_the_arena_is_spilled(wire: Wire) -> None:
    large = frame(1, bytes(range(256)) * 6000, PRODUCE)
    assert len(large) > ARENA_BYTES
    wire.feed(large + frame(2))
    assert [sized(each.payload) for each in wire.taken] == [large, frame(2)]
    assert wire.taken[0].area > ARENA


@pytest.mark.parametrize("size", [60_000, 200_000])
def test_b32_a_full_ring_keeps_the_request_and_its_order(wire: Wire, size: int) -> None:
    fill_ring(wire.bench)
    stuck = frame(1, bytes(size))
    wire.feed(stuck)
    assert wire.channel.muted == MuteCause.RING_FULL
    assert list(wire.bench.reader.waiting.values()) == [wire.channel]
    assert wire.channel.in_flight == 0
    wire.bench.reader.resume(wire.channel)
    assert wire.channel.muted == MuteCause.RING_FULL
    wire.bench.targets[0].take(release=False)
    wire.bench.targets[0].consumer.release()
    wire.taken.clear()
    wire.bench.reader.resume(wire.channel)
    assert wire.channel.muted == MuteCause.NONE
    wire.feed(frame(2))
    assert [sized(each.payload) for each in wire.taken] == [stuck, frame(2)]


def test_b13_resuming_leaves_the_mutes_of_other_causes(wire: Wire) -> None:
    wire.channel.muted = MuteCause.ARENA | MuteCause.OUTPUT
    wire.channel.inbox = frame(1)
    wire.bench.reader.resume(wire.channel)
    assert wire.channel.muted == MuteCause.OUTPUT
    assert wire.channel.inbox == frame(1)


@pytest.mark.parametrize("body", [b"", bytes(200_000)])
def test_a_repeat_has_the_same_sequence_and_stamp(wire: Wire, body: bytes) -> None:
    wire.feed(frame(1, body))
    first = wire.taken[0]
    wire.bench.clock.advance_ms(5)
    assert wire.bench.reader.try_repeat(wire.channel, first.sequence)
    wire.bench.sender.publish()
    (again,) = wire.bench.targets[0].take()
    assert again[:8] == first[:8]
    assert again.payload == first.payload


def test_a_repeat_without_room_allocates_none(wire: Wire) -> None:
    wire.feed(frame(1, bytes(200_000)))
    used = wire.bench.sender.pool.used_bytes
    fill_ring(wire.bench)
    assert not wire.bench.reader.try_repeat(wire.channel, 0)
    assert wire.bench.sender.pool.used_bytes == used


def produce(correlation_id: int, *partitions: int) -> bytes:
    """Return a Produce with no records for these partitions of one topic."""
    parts = b"".join(struct.pack(">ii", partition, -1) for partition in partitions)
    body = struct.pack(">hhiih1si", -1, 1, 30_000, 1, 1, b"t", len(partitions)) + parts
    return request_frame(PRODUCE, 7, correlation_id, body)


def test_a_produce_of_several_partitions_waits_and_the_next_ones_follow_it() -> None:
    """Parts for other owners are forwarded: later requests must not arrive there first."""
    with ProcessorBench(handlers=3) as bench:
        wire = Wire(bench)
        wire.feed(produce(1, 0) + produce(2, 1) + produce(3, 0, 1) + produce(4, 1))
        direct = [request.correlation_id for request in wire.taken]
        assert sorted(direct) == [1, 2]
        assert wire.channel.muted == MuteCause.ORDER
        wire.channel.next_response = 2
        wire.channel.muted &= ~MuteCause.ORDER
        bench.reader.resume(wire.channel)
        bench.sender.publish()
        queues = [[request.correlation_id for request in target.take()] for target in bench.targets]
        assert [3, 4] in queues
        assert wire.channel.muted == MuteCause.NONE
        wire.close()
