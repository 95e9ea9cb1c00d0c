"""Strangers at the listeners of a secured broker, up to millions of mutated frames, while a client works.

`python -m ops.reliability.siege --frames 1000000` prints a table at the end. Exit status 1 when a process of the broker
died, a connection got neither response nor close, the broker logged an internal error, or the client was not served.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import secrets
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ops.free_ports import free_ports
from ops.reliability import chance
from ops.reliability.broker import REPOSITORY, Broker, BrokerError
from ops.reliability.fuzzer import Counts, templates_of
from ops.reliability.strangers import PASSWORD, SCRAM, USER, Ports, Scripts, Stranger
from ops.reliability.wire import RECEIVE_BYTES
from rotunda.broker.errors import RotundaError

AT_ONCE = 64
LOOK_SECONDS = 0.05
#: A mutated frame without response for this long is incomplete: its sender shuts down its side, and must be closed.
PATIENCE_SECONDS = 0.5
#: A connection without response or close for this long is stuck.
STUCK_SECONDS = 60.0
#: The broker and its client have priority.
NICENESS = 10
PROGRESS_SECONDS = 10.0
RECORD_SECONDS = 0.5
TOPIC = "siege"
DEADLINE_SECONDS = 120.0
#: The broker's log lines for an internal exception.
FAULTS = ("error on connection", "Traceback")


@dataclass
class Found:
    """The findings of a run."""

    seed: int
    seconds: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    records: int = 0
    memory: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)
    failures: list[str] = field(default_factory=list)


class Crowd:
    """The connections of the strangers' process."""

    def __init__(self, ports: Ports, scripts: Scripts, counts: Counts) -> None:
        self._ports, self._scripts, self._counts = ports, scripts, counts
        self._poll = select.epoll()
        self._by_fd: dict[int, tuple[socket.socket, Stranger]] = {}
        self._since: dict[int, float] = {}
        self._ended: set[int] = set()

    def turn(self) -> None:
        """Open new connections, handle available data, and check timeouts."""
        while len(self._by_fd) < AT_ONCE and self._come():
            pass
        for fd, _ in self._poll.poll(LOOK_SECONDS):
            self._take(fd)
        now = time.monotonic()
        for fd, since in list(self._since.items()):
            sock, stranger = self._by_fd[fd]
            if now - since > STUCK_SECONDS:
                self._counts.given_up += 1
                self._leave(fd)
            elif stranger.is_mutated and fd not in self._ended and now - since > PATIENCE_SECONDS:
                self._ended.add(fd)
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    def _come(self) -> bool:
        stranger = self._scripts.draw(self._ports)
        try:
            sock = socket.create_connection(("127.0.0.1", stranger.port), STUCK_SECONDS)
        except OSError:
            return False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._by_fd[sock.fileno()] = sock, stranger
        self._poll.register(sock, select.EPOLLIN)
        self._counts.connections += 1
        self._go_on(sock.fileno(), None)
        return True

    def _take(self, fd: int) -> None:
        sock, stranger = self._by_fd[fd]
        try:
            data = sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._go_on(fd, data)
        else:
            self._closed(fd, stranger)

    def _go_on(self, fd: int, data: bytes | None) -> None:
        sock, stranger = self._by_fd[fd]
        self._since[fd] = time.monotonic()
        try:
            sent = next(stranger.steps) if data is None else stranger.steps.send(data)
        except StopIteration:
            self._leave(fd)
        except (OSError, RotundaError):
            # Inside TLS the end of the connection is part of the received data.
            self._closed(fd, stranger)
        else:
            with contextlib.suppress(OSError):
                sock.send(sent)

    def _closed(self, fd: int, stranger: Stranger) -> None:
        """Count the frame over which the broker has closed a connection."""
        if stranger.is_mutated:
            self._counts.closed += 1
            self._counts.frames += 1
        else:
            self._counts.unprovoked += 1
        self._leave(fd)

    def _leave(self, fd: int) -> None:
        sock, _ = self._by_fd.pop(fd)
        del self._since[fd]
        self._ended.discard(fd)
        self._poll.unregister(fd)
        # With a reset, so that no port stays in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


def run(ports: Ports, trusted: str, seed: int, wanted: int, counts: Counts) -> None:
    """Send mutated frames until `wanted` of them were answered or closed; runs in the process."""
    os.nice(NICENESS)
    source = chance.source(seed, "strangers")
    scripts = Scripts(source, templates_of(ports.plaintext, source, counts), trusting(trusted), counts)
    crowd = Crowd(ports, scripts, counts)
    while counts.frames < wanted:
        crowd.turn()


def trusting(trusted: str) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts these certificates."""
    return ssl.create_default_context(cafile=trusted)


class Siege:
    """One run in a directory of its own."""

    def __init__(self, directory: Path, seed: int, wanted: int, say: Callable[[str], None]) -> None:
        self._directory, self._seed, self._wanted, self._say = directory, seed, wanted, say
        self._context = multiprocessing.get_context("spawn")
        self.counts = self._context.Value(Counts, lock=False)
        self._trusted = str(directory / "tls" / "ca.pem")

    def run(self) -> Found:
        """Run it to its end, and stop the broker. Raises BrokerError when it does not start."""
        made = [sys.executable, "-m", "rotunda", "tls", "init", "--dir", str(self._directory / "tls")]
        subprocess.run(made, cwd=REPOSITORY, capture_output=True, check=True)
        ports = Ports(*free_ports(len(Ports._fields)))
        broker = Broker(self._directory, self._directory / "data", settings(self._directory, ports))
        try:
            broker.start()
            self._make_user(ports)
            return self._besiege(broker, ports)
        finally:
            broker.terminate()

    def _make_user(self, ports: Ports) -> None:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports.plaintext}"})
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(DEADLINE_SECONDS)

    def _besiege(self, broker: Broker, ports: Ports) -> Found:
        found, begun = Found(self._seed), time.monotonic()
        client = {
            "bootstrap.servers": f"127.0.0.1:{ports.sasl_ssl}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._trusted,
            "sasl.mechanism": SCRAM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        producer = Producer(client)
        processes = all_processes(broker)
        arguments = (ports, self._trusted, self._seed, self._wanted, self.counts)
        strangers = self._context.Process(target=run, args=arguments, daemon=True)
        strangers.start()
        before: tuple[int, int] | None = None
        told = begun
        try:
            while strangers.is_alive():
                producer.produce(TOPIC, str(found.records).encode())
                found.records += 1
                producer.poll(0)
                strangers.join(RECORD_SECONDS)
                if before is None and self.counts.frames >= self._wanted / 10:
                    before = used(broker)
                if time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    self._say(f"{told - begun:.0f} s: {self.numbers()}")
        finally:
            strangers.kill()
        found.seconds = time.monotonic() - begun
        found.numbers = self.numbers()
        (found.memory, found.descriptors) = zip(before or used(broker), used(broker), strict=True)
        found.failures = list(self._failures(broker, processes, producer, client, found))
        return found

    def numbers(self) -> dict[str, int]:
        """Return the strangers' counts so far."""
        return {name: getattr(self.counts, name) for name, _ in Counts._fields_}

    def _failures(
        self,
        broker: Broker,
        processes: dict[str, list[int]],
        producer: Producer,
        client: dict[str, str],
        found: Found,
    ) -> Iterator[str]:
        if broker.processes() != processes:
            yield f"processes have died: {processes} were there, {broker.processes()} are"
        if found.numbers["frames"] < self._wanted:
            yield "the strangers' process has ended early"
        if found.numbers["given_up"]:
            yield f"{found.numbers['given_up']} connections were neither answered nor closed"
        if found.numbers["unprovoked"]:
            yield f"{found.numbers['unprovoked']} connections were closed over a frame that was right"
        yield from (f"the broker's log: {line}" for line in broker.log_lines() if any(f in line for f in FAULTS))
        if producer.flush(DEADLINE_SECONDS):
            yield "records were not acknowledged"
        values = [int(value) for value in read(client, found.records)]
        if values != list(range(found.records)):
            yield f"{found.records} records were sent, {len(values)} read"


def all_processes(broker: Broker) -> dict[str, list[int]]:
    """Return the process ids by role, once each has its name: some are still beginning when others are served."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not all((found := broker.processes()).values()):
        if time.monotonic() > end:
            raise BrokerError(f"not every role has a process: {found}")
        time.sleep(LOOK_SECONDS)
    return found


def used(broker: Broker) -> tuple[int, int]:
    """Return the broker's memory in bytes, and its descriptors."""
    return sum(broker.memory().values()), broker.descriptors()


def read(client: dict[str, str], count: int) -> list[bytes]:
    """Return the values of all records, as many as there should be."""
    consumer = Consumer({**client, "group.id": TOPIC, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    end = time.monotonic() + DEADLINE_SECONDS
    while len(values) < count and time.monotonic() < end:
        values += [message.value() for message in consumer.consume(1000, 0.5) if message.error() is None]
    consumer.close()
    return values


def settings(directory: Path, ports: Ports) -> dict[str, str]:
    """Return the broker's settings."""
    protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
    pairs = zip(protocols, ports, strict=True)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in pairs),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "tls" / "server.pem"),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        # Failed authentications are not delayed for long, so that more fit into the time.
        "connection.failed.authentication.delay.ms": "10",
    }


def text(found: Found) -> str:
    """Return the findings as a table."""
    numbers = found.numbers
    before, after = found.memory
    rows = [
        ("mutated frames and records that were dealt with", f"{numbers['frames']:,}"),
        ("of them answered; over the others a connection was closed", f"{numbers['answered']:,}"),
        ("connections", f"{numbers['connections']:,}"),
        ("neither answered nor closed", f"{numbers['given_up']:,}"),
        ("records of the client, all of them acknowledged and read", f"{found.records:,}"),
        ("memory at a tenth, and at the end", f"{before >> 20} MB, {after >> 20} MB"),
        ("descriptors at a tenth, and at the end", "{:,}, {:,}".format(*found.descriptors)),
    ]
    table = "\n".join(["| what | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])
    head = f"Seed {found.seed}, {found.seconds / 60:.1f} minutes."
    return "\n\n".join([head, table, *(f"**Failed:** {failure}" for failure in found.failures)])


def main() -> int:
    """Run the siege of the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="ops.reliability.siege", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=100_000, help="how many mutated frames (default 100,000)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="repeat the chance of another run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rotunda-siege-") as name:
        print(f"seed {options.seed}, directory {name}", flush=True)
        try:
            found = Siege(Path(name), options.seed, options.frames, lambda line: print(line, flush=True)).run()
        except BrokerError as failure:
            print(f"siege: {failure}", file=sys.stderr)
            return 2
    print(text(found))
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
