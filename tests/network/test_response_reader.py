"""Responses from the rings to a channel: in request order, each once, none for closed connections."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.ipc.response_writer import FileRange
from rotunda.broker.network.processor.channel import Channel, FileSend
from rotunda.broker.network.processor.response_reader import BATCH
from rotunda.shm.recorder_layout import REQUEST_ROW
from tests.support.answered_request import answered_request
from tests.support.feeds import random_seed
from tests.support.processor_bench import RING_BYTES, ProcessorBench, Taken

CONNECTION = 9
FIELDS = [field.name for field in REQUEST_ROW.fields]


def unexpected(channel: Channel | None) -> None:
    raise AssertionError(f"a fault on {channel}")


class Reading:
    """A channel with requests in flight; attached responses are collected instead of written."""

    def __init__(self, bench: ProcessorBench, requests: int) -> None:
        self.bench = bench
        self.sock, self._client = socket.socketpair()
        self.channel = Channel(self.sock, CONNECTION, 1, 0, "peer")
        self.channel.repeatable = {number: (100 + number, 0, b"frame") for number in range(requests)}
        self.channel.next_sequence = requests
        self.by_id = {CONNECTION: self.channel}

    def request(self, sequence: int, connection: int = CONNECTION) -> Taken:
        return Taken(connection, sequence, 0, 3, 4, sequence, 0, 0, -1, b"", 0, b"")

    def read(self) -> bytes:
        """Return the bytes attached since the last call."""
        responses = self.bench.responses
        ready = responses.read(self.by_id, unexpected)
        for channel, piece, responded in responses.lone:
            channel.out.append(piece)
            channel.completions.append(responded)
            ready[channel.fd] = channel
        responses.lone.clear()
        written = b"".join(
            Path(f"/proc/self/fd/{piece.file.fd}").read_bytes()[piece.position :][: piece.length]
            if isinstance(piece, FileSend)
            else bytes(piece)
            for piece in self.channel.out
        )
        self.channel.out.clear()
        self.bench.responses.release()
        return written

    def close(self) -> None:
        self.sock.close()
        self._client.close()


BENCH_OPTIONS = {"handlers": 2}


@pytest.fixture
def reading(bench: ProcessorBench) -> Iterator[Reading]:
    made = Reading(bench, requests=6)
    yield made
    made.close()


def test_d10_d11_responses_of_all_targets_are_sent_in_request_order(bench: ProcessorBench) -> None:
    """Three targets send forty responses in a random order; the client's correlation ids are irrelevant."""
    seed = random_seed()
    generator = random.Random(seed)
    count = 40
    reading = Reading(bench, count)
    order = list(range(count))
    generator.shuffle(order)
    written = b""
    for sequence in order:
        bench.targets[generator.randrange(3)].answer(reading.request(sequence), b"<%d>" % sequence)
        if generator.random() < 0.5:
            written += reading.read()
    written += reading.read()
    assert written == b"".join(b"<%d>" % number for number in range(count)), f"seed {seed}"
    assert not reading.channel.repeatable
    assert reading.channel.in_flight == 0
    assert not reading.channel.held
    assert len(reading.channel.completions) == count
    reading.close()


def test_a_held_response_does_not_need_the_ring(reading: Reading) -> None:
    target = reading.bench.targets[0]
    target.answer(reading.request(1), b"early")
    assert reading.read() == b""
    target.responses.publish()
    for _ in range(RING_BYTES // 10_000):
        target.answer(reading.request(99), bytes(10_000))
        reading.read()
    target.answer(reading.request(0), b"first")
    assert reading.read() == b"firstearly"


def test_d14_the_stamps_of_a_response_are_kept_until_it_is_written(reading: Reading) -> None:
    bench = reading.bench
    request = answered_request(CONNECTION, stamps_ns=(100, 200), api=(3, 9), correlation_id=77, size_bytes=50)
    bench.targets[0].responses.send(request, 300, 400, b"answer")
    bench.targets[0].publish()
    reading.read()
    ((facts, received),) = reading.channel.completions
    reported = dict(zip(FIELDS, REQUEST_ROW.struct.unpack(facts.ljust(REQUEST_ROW.size, b"\0")), strict=True))
    stamps = [reported[name] for name in ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns")]
    assert (stamps, reported["api_key"], received) == ([100, 200, 300, 400], 3, bench.clock.monotonic_ns())
    assert (reported["correlation_id"], reported["request_bytes"], reported["response_bytes"]) == (
        77,
        50,
        len(b"answer"),
    )


@pytest.mark.parametrize("held", [True, False])
def test_a_second_response_to_the_same_request_is_ignored(reading: Reading, held: bool) -> None:
    """A replacement of a target may repeat a response of its predecessor (B33)."""
    first = 1 if held else 0
    reading.bench.targets[0].answer(reading.request(first), b"one")
    reading.bench.targets[1].answer(reading.request(first), b"two")
    written = reading.read()
    if held:
        reading.bench.targets[0].answer(reading.request(0), b"zero-")
        assert reading.read() == b"zero-one"
    else:
        assert written == b"one"
    assert reading.bench.responses.responses_dropped == 1


@pytest.mark.parametrize("connection", [CONNECTION + 1, CONNECTION + (1 << 32)])
def test_b21_b33_a_response_for_nobody_is_dropped(reading: Reading, connection: int) -> None:
    reading.bench.targets[0].answer(reading.request(0, connection), b"stale")
    assert reading.read() == b""
    assert reading.bench.responses.responses_dropped == 1
    assert reading.channel.in_flight == 6


def test_d08_responses_are_read_a_batch_at_a_time(bench: ProcessorBench) -> None:
    reading = Reading(bench, BATCH + 1)
    for sequence in range(BATCH + 1):
        bench.targets[0].answer(reading.request(sequence), b"x")
    assert reading.read() == b"x" * BATCH
    assert bench.responses.pending()
    assert reading.read() == b"x"
    assert not bench.responses.pending()
    reading.close()


def test_d06_no_response_on_the_wire_still_counts_as_one(reading: Reading) -> None:
    target = reading.bench.targets[0]
    target.no_response(reading.request(1))
    target.answer(reading.request(2), b"two")
    assert reading.read() == b""
    target.no_response(reading.request(0))
    assert reading.read() == b"two"
    assert reading.channel.next_response == 3


def test_file_ranges_are_sent_between_inline_bytes(reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"abcdef")
    inodes = [(tmp_path / name).stat().st_ino for name in "ab"]
    ranges = [
        FileRange(4, bytes(tmp_path / "a"), inodes[0], 2, 5),
        FileRange(0, bytes(tmp_path / "b"), inodes[1], 0, 3),
        FileRange(1, bytes(tmp_path / "a"), inodes[0], 9, 1),
    ]
    reading.bench.targets[0].answer_ranges(reading.request(0), b"head.tail", ranges)
    assert reading.read() == b"head23456abc.9tail"
    assert reading.bench.responses.bytes_received == 18


def test_an_early_response_keeps_its_file_after_the_segments_removal(reading: Reading, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"records")
    ranges = [FileRange(0, bytes(path), path.stat().st_ino, 0, 7)]
    reading.bench.targets[0].answer_ranges(reading.request(1), b"", ranges)
    reading.read()
    path.unlink()
    reading.bench.responses.forget_unused(reading.bench.clock.monotonic_ns())
    reading.bench.targets[0].answer(reading.request(0), b"first ")
    assert reading.read() == b"first records"


@pytest.mark.parametrize("sequence", [0, 1])
def test_b33_a_response_too_large_for_a_ring_is_a_file_that_is_removed_when_read(
    reading: Reading, sequence: int
) -> None:
    large = bytes(range(256)) * 2000
    reading.bench.targets[0].answer(reading.request(sequence), large)
    written = reading.read()
    assert list(reading.bench.directory.iterdir()) == []
    reading.bench.targets[0].answer(reading.request(1 - sequence), b"other")
    expected = (large, b"other") if sequence == 0 else (b"other", large)
    assert written + reading.read() == b"".join(expected)


@pytest.mark.parametrize("connection", [CONNECTION, CONNECTION + 1])
def test_b21_the_file_of_a_dropped_response_is_removed(reading: Reading, connection: int) -> None:
    reading.bench.targets[0].answer(reading.request(77, connection), bytes(500_000))
    assert len(list(reading.bench.directory.iterdir())) == 1
    assert reading.read() == b""
    assert list(reading.bench.directory.iterdir()) == []
