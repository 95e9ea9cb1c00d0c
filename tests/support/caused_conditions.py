"""Conditions that a test causes in a real broker, each with the load in which it shows: the expected diagnosis.

Each runs for a few seconds and leaves a request log. Conditions that no client can cause are applied to the broker's
processes: the preloaded library slows its disk, a signal stops a handler.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.failing_disk import FailingDisk
from tests.support.record_batches import record_batch
from tests.support.request_log import pid_of
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    fetch_body,
    produce,
    produce_body,
)

TOPIC = "caused"
_SETTINGS = {
    "request.log.roll.ms": 500,
    "request.log.roles.interval.ms": 500,
    "status.page.enable": "false",
    "num.network.threads": 1,
    "num.io.threads": 2,
}


@dataclass(frozen=True, slots=True)
class Caused:
    """A condition: the settings it needs, the partitions of its topic, and the load that causes it."""

    cause: Callable[[Place], None]
    settings: Mapping[str, object] = field(default_factory=dict)
    partitions: int = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a condition is caused: the broker, its disk, and the load generator."""

    broker: BrokerProcess
    disk: FailingDisk
    kload: Path

    @contextmanager
    def load(self, command: str, *arguments: object) -> Iterator[None]:
        """Run the load generator during the block and wait for its end."""
        line = [str(self.kload), command, str(self.broker.port), *map(str, arguments)]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            yield
            _, failure = running.communicate(timeout=deadline_s())
        assert running.returncode == 0, f"{line}: {failure}"


def build_load_generator(directory: Path) -> Path:
    """Compile the load generator into a directory and return its path."""
    kload = directory / "kload"
    subprocess.run(["cc", "-O2", "-o", kload, REPOSITORY / "ops/benchmarks/kload.c"], check=True, timeout=deadline_s())
    return kload


def cause(directory: Path, caused: Caused, kload: Path) -> Path:
    """Cause a condition in a broker of its own and return the request log that it has left."""
    directory.mkdir(parents=True, exist_ok=True)
    disk = FailingDisk(directory)
    broker = disk.broker(directory, {**_SETTINGS, **caused.settings}).start()
    try:
        with WireClient(broker.port) as client:
            create_topic(client, TOPIC, caused.partitions)
        caused.cause(Place(broker, disk, kload))
    finally:
        broker.stop()
    return broker.data_dir / "request-log"


def _nothing(place: Place) -> None:
    """Run an easy load: a few producers, and consumers that wait for their records."""
    with place.load("produce", TOPIC, 1, 4, 1, 3, 10, 100, -1, 300), WireClient(place.broker.port) as consumer:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            consumer.call(FETCH, FETCH_VERSION, fetch_body(TOPIC, 1, 0, max_wait_ms=300))


def _slow_disk(place: Place) -> None:
    place.disk.slow(f"/{TOPIC}-", 20_000)
    with place.load("produce", TOPIC, 2, 8, 1, 3, 10, 100):
        pass
    place.disk.mend()


def _stopped_handler(place: Place) -> None:
    with place.load("produce", TOPIC, 2, 8, 1, 4, 10, 100, 1, 300):
        pid = pid_of(place.broker, "handler")
        os.kill(pid, signal.SIGSTOP)
        resume_at = time.monotonic() + 2
        wait_until(lambda: time.monotonic() > resume_at, "time to go on")
        os.kill(pid, signal.SIGCONT)


def _hot_partition(place: Place) -> None:
    """Send one partition batches that its owner has to recompress with the slowest codec."""
    with place.load("produce", TOPIC, 1, 8, 2, 4, 100, 200):
        pass


def _few_processors(place: Place) -> None:
    """Send small, cheap requests through one processor that runs at low priority."""
    os.setpriority(os.PRIO_PROCESS, pid_of(place.broker, "processor"), 19)
    load = ("produce", TOPIC, 2, 16, 48, 4, 1, 10)
    with place.load(*load), place.load(*load):
        pass


def _slow_reader(place: Place) -> None:
    """Run one client that fetches much and reads it slowly, while another is served normally."""
    with WireClient(place.broker.port) as client:
        batch = record_batch([os.urandom(1 << 19)])
        for _ in range(16):
            produce(client, TOPIC, 0, batch)
    with place.load("produce", TOPIC, 2, 2, 1, 4, 10, 100, 1, 200), WireClient(place.broker.port) as reader:
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        body = fetch_body(TOPIC, 0, 0)
        reader.send(request_frame(FETCH, FETCH_VERSION, 1, body) * 12)
        until = time.monotonic() + 4
        pause = threading.Event()
        while time.monotonic() < until:
            reader.socket.recv(1 << 18)
            pause.wait(0.05)


def _full_ring(place: Place) -> None:
    """Send bursts of many requests through small rings."""
    frame = request_frame(PRODUCE, PRODUCE_VERSION, 1, produce_body([(TOPIC, 0, record_batch([b"x" * 30_000]))]))
    clients = [WireClient(place.broker.port) for _ in range(8)]
    pause = threading.Event()
    for _ in range(12):
        senders = [threading.Thread(target=client.send, args=(frame * 24,)) for client in clients]
        for sender in senders:
            sender.start()
        for client, sender in zip(clients, senders, strict=True):
            client.receive_frames(24)
            sender.join()
        pause.wait(0.25)
    for client in clients:
        client.close()


def _connection_storm(place: Place) -> None:
    until = time.monotonic() + 3
    while time.monotonic() < until:
        with WireClient(place.broker.port) as client:
            client.call(18, 0)


CONDITIONS = {
    "nothing": Caused(_nothing),
    "slow disk": Caused(_slow_disk),
    "stopped handler": Caused(_stopped_handler),
    "hot partition": Caused(
        _hot_partition, {"compression.type": "zstd", "compression.zstd.level": 19, "pipeline.max": 256}
    ),
    "few processors": Caused(_few_processors),
    "slow reader": Caused(_slow_reader),
    "full ring": Caused(_full_ring, {"request.ring.bytes": 262_144}),
    "connection storm": Caused(_connection_storm),
}
