"""Writing to one connection: completely, partially, from memory and from files, in the order of attachment."""

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.ipc.segment_file_cache import OpenFile
from rotunda.broker.network.processor.channel import Channel, FileSend, LargeReceive, Piece
from tests.support.feeds import random_seed

SMALL_BUFFER_BYTES = 4096

#: Position in TCP_INFO of the number of sent segments with data.
DATA_SEGMENTS_OUT = struct.Struct("@156xI")


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, client = socket.socketpair()
    for sock in (ours, client):
        sock.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
    yield Channel(ours, 1, 1, 0, "peer"), client
    ours.close()
    client.close()


def receive(client: socket.socket, most: int = 1 << 20) -> bytes:
    try:
        return client.recv(most)
    except BlockingIOError:
        return b""


def drain(channel: Channel, client: socket.socket, generator: random.Random) -> bytes:
    """Alternate reads of random sizes with flushes until all is written."""
    received = bytearray()
    done = not channel.unsent
    while not done:
        received += receive(client, generator.randint(1, 20_000))
        done = channel.flush()
    while data := receive(client):
        received += data
    return bytes(received)


@pytest.fixture
def segment(tmp_path: Path) -> tuple[Path, bytes]:
    content = random.Random(5).randbytes(300_000)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    return path, content


def test_records_and_the_fields_around_them_are_sent_in_one_segment(segment: tuple[Path, bytes]) -> None:
    path, content = segment
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        ours, _ = listening.accept()
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(ours, 1, 1, 0, "peer")
        channel.out += [memoryview(b"head"), FileSend(OpenFile(str(path)), 10, 1000), memoryview(b"tags")]
        assert channel.send_out()
        assert client.recv(1008, socket.MSG_WAITALL) == b"head" + content[10:1010] + b"tags"
        info = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_OUT.size)
        assert DATA_SEGMENTS_OUT.unpack(info) == (2,), "the records behind their head, then the tags"
        ours.close()


@pytest.mark.parametrize("pieces", [1, 3])
def test_b09_a_partial_write_continues_and_does_not_need_the_ring(
    pair: tuple[Channel, socket.socket], pieces: int
) -> None:
    """Unwritten bytes are copied: the ring's memory may be reused immediately."""
    seed = random_seed()
    generator = random.Random(seed)
    channel, client = pair
    ring = bytearray(generator.randbytes(200_000))
    expected = bytes(ring)
    step = -(-len(ring) // pieces)
    channel.out += [memoryview(ring)[at : at + step] for at in range(0, len(ring), step)]
    assert not channel.send_out()
    assert channel.out_bytes > 0
    ring[:] = bytes(len(ring))
    assert drain(channel, client, generator) == expected, f"seed {seed}"
    assert channel.out_bytes == 0


def test_b08_responses_queue_until_an_unfinished_send_ends(pair: tuple[Channel, socket.socket]) -> None:
    seed = random_seed()
    channel, client = pair
    expected = b""
    for number in range(5):
        part = bytes([number]) * 50_000
        expected += part
        channel.out.append(memoryview(part))
        channel.send_out()
    assert channel.out_bytes == sum(len(item) for item in channel.unsent if isinstance(item, bytes))
    assert drain(channel, client, random.Random(seed)) == expected, f"seed {seed}"


def test_files_and_bytes_leave_in_their_order(pair: tuple[Channel, socket.socket], segment: tuple[Path, bytes]) -> None:
    seed = random_seed()
    channel, client = pair
    path, content = segment
    file = OpenFile(str(path))
    pieces: list[Piece] = [b"head", FileSend(file, 100, 150_000), memoryview(b"middle"), FileSend(file, 7, 1), b"end"]
    channel.out += pieces
    assert not channel.send_out()
    expected = b"head" + content[100:150_100] + b"middle" + content[7:8] + b"end"
    assert channel.out_bytes + len(receive(client, 0)) <= len(expected)
    assert drain(channel, client, random.Random(seed)) == expected, f"seed {seed}"
    assert channel.out_bytes == 0


def test_a_file_that_ends_before_its_range_does_ends_the_connection(
    pair: tuple[Channel, socket.socket], tmp_path: Path
) -> None:
    channel, _ = pair
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    channel.out.append(FileSend(OpenFile(str(path)), 0, 10))
    assert not channel.send_out()
    with pytest.raises(ConnectionAbortedError, match="5 bytes before"):
        channel.flush()


def test_writing_to_a_client_that_has_left_raises(pair: tuple[Channel, socket.socket]) -> None:
    channel, client = pair
    client.close()
    channel.out.append(memoryview(b"answer"))
    with pytest.raises(OSError, match=r"\[Errno"):
        channel.send_out()


def test_a_large_request_includes_the_bytes_read_before_its_block() -> None:
    memory = bytearray(10)
    large = LargeReceive(1, 0, 6, memoryview(memory)[:6])
    large.take(b"abc")
    large.take(memoryview(b"def"))
    assert large.filled == large.size == 6
    assert memory == b"abcdef" + bytes(4)
