"""The snapshot of a processor's connections: its contents and times, and the counts by client software."""

import socket
from collections.abc import Iterator
from itertools import count

import pytest

from rotunda.broker.ipc.listener_table import ListenerEntry
from rotunda.broker.network.accounting import connection_status_publisher
from rotunda.broker.network.accounting.client_registry import MOST_CHARACTERS, MOST_CLIENT_ID_BYTES, ClientRegistry
from rotunda.broker.network.accounting.connection_status_publisher import INTERVAL_NS, ConnectionStatusPublisher
from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.protocol import codec
from rotunda.shm.tables.snapshot_buffer import SnapshotReader, SnapshotSegment, SnapshotWriter

LISTENERS = [ListenerEntry(name, "PLAINTEXT", "127.0.0.1", 1) for name in ("PLAINTEXT", "OTHER")]


class Bench:
    """Connections, the registry of their clients, and the snapshot."""

    def __init__(self) -> None:
        numbers = count(100)
        self.clients = ClientRegistry(lambda: next(numbers), (("PLAINTEXT", "PLAINTEXT"), ("OTHER", "PLAINTEXT")))
        self.channels: list[Channel] = []
        snapshots = SnapshotSegment(memoryview(bytearray(SnapshotSegment.bytes_needed(1, 1))), 1, 1)
        self.wants, self.reader = snapshots.wants, SnapshotReader(snapshots.of_processor(0))
        writer = SnapshotWriter(snapshots.of_processor(0))
        self.snapshot = ConnectionStatusPublisher(writer, snapshots.wants, LISTENERS, lambda: 0)

    def connect(self, listener: int = 0) -> Channel:
        channel = Channel(socket.socket(), len(self.channels), 1, listener, f"peer{len(self.channels)}")
        self.clients.connected(channel)
        self.channels.append(channel)
        return channel

    def introduce(self, channel: Channel, client_id: str, software: str, version: str) -> None:
        values = {"client_software_name": software, "client_software_version": version}
        frame = codec.encode_request(18, 3, 1, client_id, values)[4:]
        self.clients.named(channel, frame)
        self.clients.introduced(channel, frame, 3)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for channel in made.channels:
        channel.sock.close()


def test_connections_are_counted_by_software_until_they_end(bench: Bench) -> None:
    first, second, third = bench.connect(), bench.connect(1), bench.connect()
    assert bench.clients.software == {(0, "", ""): 2, (1, "", ""): 1}
    bench.introduce(first, "id", "librdkafka", "2.8")
    bench.introduce(first, "another id", "librdkafka", "2.8")
    bench.introduce(second, "id", "librdkafka", "2.8")
    assert bench.clients.software == {(0, "", ""): 1, (0, "librdkafka", "2.8"): 1, (1, "librdkafka", "2.8"): 1}
    for channel in (first, second, third):
        bench.clients.retire(channel)
    assert bench.clients.software == {}


def test_software_that_is_rejected_is_not_noted(bench: Bench) -> None:
    channel = bench.connect()
    for software, version in (("<script>", "1"), ("lib", "1 2"), ("", "1"), ("lib", "")):
        bench.introduce(channel, "id", software, version)
    assert channel.names == ("id", "", "")
    assert bench.clients.software == {(0, "", ""): 1}


def test_long_names_are_cut_at_once(bench: Bench) -> None:
    """Each of ten thousand connections may send 32 KB of client id; the fields after it are found nevertheless."""
    channel = bench.connect()
    bench.introduce(channel, "ü" * 16_000, "x" * 10_000, "1")
    assert channel.names == ("ü" * MOST_CHARACTERS, "x" * MOST_CHARACTERS, "1")
    assert len(channel.client_prefix) == 2 + MOST_CLIENT_ID_BYTES


def test_connections_are_published_with_their_counts(bench: Bench) -> None:
    channel = bench.connect(1)
    bench.introduce(channel, "loader", "librdkafka", "2.8")
    assert channel.client is not None
    channel.client.totals[:] = [5, 1000, 2000, 1]
    channel.opened_ns, channel.last_active_ns = 10, 20
    channel.muted = MuteCause.PIPELINE | MuteCause.ARENA
    bench.wants.command_looks(1)
    bench.snapshot.run_once(0, bench.channels)
    reported = bench.reader.read()
    assert reported is not None
    (connection,) = reported["connections"]
    assert connection.pop("id")
    assert connection == {
        "client_id": "loader", "software": "librdkafka", "version": "2.8", "peer": "peer0", "listener": "OTHER",
        "opened_ns": 10, "active_ns": 20, "requests": 5, "request_bytes": 1000, "response_bytes": 2000, "errors": 1,
        "in_flight": 0, "muted": ["pipeline", "arena"],
    }  # fmt: skip


def test_connections_are_published_once_a_second_for_readers_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_status_publisher, "MOST_CONNECTIONS", 2)
    for _ in range(3):
        bench.connect()
    bench.snapshot.run_once(5, bench.channels)
    assert bench.reader.read() is None
    bench.wants.web_looks(10**12)
    for now_ns in (6, 6 + INTERVAL_NS - 1):
        bench.snapshot.run_once(now_ns, bench.channels)
        assert bench.reader.checked_ns == 6
    reported = bench.reader.read()
    assert reported is not None
    assert len(reported["connections"]) == 2
    assert reported["left_out"] == {"connections": 1}
    bench.snapshot.run_once(6 + INTERVAL_NS, bench.channels)
    assert bench.reader.checked_ns == 6 + INTERVAL_NS
