"""A processor with everything real about it but the clock; the test plays the clients, the acceptor and the targets.

Rings and arena lie over byte arrays, connections are loopback TCP, responses are written by the targets' own
`ResponseWriter`. Each turn of the loop is preceded by a ring of the bell, so that no turn sleeps.
"""

import itertools
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import posix_ipc

from rotunda.broker.config.broker_config import load
from rotunda.broker.ipc import connection_id
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import INLINE, REQUEST, ChannelShape, RequestChannel
from rotunda.broker.ipc.response_writer import FileRange, ResponseFacts, ResponseWriter
from rotunda.broker.network.accounting.client_registry import ClientRegistry
from rotunda.broker.network.accounting.completed_requests import CompletedRequests
from rotunda.broker.network.accounting.network_time import NetworkTime
from rotunda.broker.network.accounting.request_log_sender import RequestLogSender
from rotunda.broker.network.handoff import Closed, HandoffReceiver, HandoffSender
from rotunda.broker.network.processor.kept_requests import KeptRequests
from rotunda.broker.network.processor.processor import Processor
from rotunda.broker.network.processor.processor_metrics import ProcessorMetrics
from rotunda.broker.network.processor.request_reader import RequestReader
from rotunda.broker.network.processor.request_sender import MemoryPool, RequestSender, spill_area
from rotunda.broker.network.processor.response_reader import ResponseReader
from rotunda.broker.network.processor.throttling.retry_storms import RetryStorms
from rotunda.broker.quotas.quota_manager import QuotaManager
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.rings.bell import EventBell, SemaphoreBell
from rotunda.shm.rings.recorder_rings import RecorderFeed, RecorderRings
from rotunda.shm.tables.process_slots import PROCESSOR
from rotunda.shm.tables.quota_tables import QuotaTables
from tests.support.answered_request import answered_request
from tests.support.deadline import deadline_s
from tests.support.fakes import FakeClock
from tests.support.wire_client import request_frame

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
RING_BYTES = 256 * 1024
ARENA_BYTES = 1024 * 1024
SPILL_BYTES = 8 * 1024 * 1024


def frame(correlation_id: int, body: bytes = b"", api_key: int = METADATA) -> bytes:
    """Return a request of version 4."""
    return request_frame(api_key, 4, correlation_id, body)


class Taken(NamedTuple):
    """A request as a target reads it from its ring."""

    connection_id: int
    sequence: int
    received_ns: int
    api_key: int
    api_version: int
    correlation_id: int
    listener: int
    area: int
    address: int
    payload: bytes
    end: int
    session: bytes


class FakeTarget:
    """The other ends of one target's two rings."""

    def __init__(self, bench: "ProcessorBench", index: int) -> None:
        self._bench = bench
        self.consumer = bench.channel.request_consumer(0, index)
        self.responses = ResponseWriter(bench.channel, index, (bench.bell,), bench.directory)

    def take(self, release: bool = True) -> list[Taken]:
        """Return the published, unread requests."""
        taken = []
        for at, _, end in self.consumer.read(10_000):
            fields = REQUEST.unpack_from(self._bench.channel.view, at)
            connection, sequence, received, key, version, correlation, size, session_bytes, address, *rest = fields
            listener, area, _, state = rest
            assert state == 0
            memory, start = self._bench.channel.view, at + REQUEST.size
            session_at = start + size if area == INLINE else start
            session = bytes(memory[session_at : session_at + session_bytes])
            if area != INLINE:
                start, memory = address, self._bench.memory(area)
            payload = bytes(memory[start : start + size])
            taken.append(
                Taken(
                    connection,
                    sequence,
                    received,
                    key,
                    version,
                    correlation,
                    listener,
                    area,
                    address,
                    payload,
                    end,
                    session,
                )
            )
        if release:
            self.consumer.release()
        return taken

    def answer(self, request: Taken, payload: bytes) -> None:
        """Send `payload`, from its size prefix on."""
        now = self._bench.clock.monotonic_ns()
        self.responses.send(self.answered(request, now), now, now, payload)
        self.publish()

    def answer_failed(self, request: Taken, payload: bytes, facts: ResponseFacts) -> None:
        """Send `payload`, which has an error."""
        now = self._bench.clock.monotonic_ns()
        self.responses.send(self.answered(request, now), now, now, payload, facts)
        self.publish()

    def answer_throttled(self, request: Taken, payload: bytes, throttle_ms: int) -> None:
        """Send `payload`, and have the connection muted for that time."""
        now = self._bench.clock.monotonic_ns()
        facts = ResponseFacts(throttle_ms=throttle_ms)
        self.responses.send(self.answered(request, now), now, now, payload, facts)
        self.publish()

    @staticmethod
    def answered(taken: Taken, now_ns: int) -> Request:
        return answered_request(
            taken.connection_id,
            taken.sequence,
            stamps_ns=(taken.received_ns, now_ns),
            api=(taken.api_key, taken.api_version),
            correlation_id=taken.correlation_id,
            size_bytes=len(taken.payload),
        )

    def answer_ranges(self, request: Taken, inline: bytes, ranges: list[FileRange]) -> None:
        """Send inline bytes and ranges of files."""
        now = self._bench.clock.monotonic_ns()
        self.responses.send_ranges(self.answered(request, now), (now, now), inline, ranges)
        self.publish()

    def no_response(self, request: Taken, throttle_ms: int = 0) -> None:
        """Finish a request that has no response on the wire."""
        now = self._bench.clock.monotonic_ns()
        self.responses.no_response(self.answered(request, now), now, now, ResponseFacts(throttle_ms=throttle_ms))
        self.publish()

    def close_connection(self, request: Taken) -> None:
        """Have the connection closed."""
        now = self._bench.clock.monotonic_ns()
        self.responses.close_connection(self.answered(request, now), now)
        self.publish()

    def publish(self) -> None:
        """Publish the responses, as far as there is room."""
        self.responses.retry()
        self.responses.publish()
        self.responses.ring_bells()


class Client:
    """The client's end of one connection; only `receive` runs a turn of the loop."""

    def __init__(self, bench: "ProcessorBench", sock: socket.socket, serial: int) -> None:
        self._bench = bench
        self.sock = sock
        self.serial = serial
        self.received = bytearray()
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send all of it, turning the loop while the sockets are full."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self._bench.run_once()

    def read(self) -> bytes:
        """Read the bytes that have arrived, without a turn; note the end."""
        try:
            while data := self.sock.recv(1 << 20):
                self.received += data
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        return bytes(self.received)

    def receive(self, count: int) -> bytes:
        """Turn the loop until `count` bytes are there and remove them from the buffer."""
        self._bench.turn_until(lambda: len(self.read()) >= count, f"{count} bytes")
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    def is_served(self) -> bool:
        """Return whether a request gets its response, from target 0."""
        self.send(frame(4711))
        (request,) = self._bench.requests(1)
        self._bench.targets[0].answer(request, b"served")
        return self.receive(6) == b"served"

    def wait_ended(self) -> bytes:
        """Turn the loop until the connection ends; return the remaining bytes of the buffer."""

        def ended() -> bool:
            self.read()
            return self.ended

        self._bench.turn_until(ended, "the client sees the end")
        return bytes(self.received)

    def reset(self) -> None:
        """End the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()


class ProcessorBench:
    """One processor (index 0), its targets (the last one is the controller), and the observations of a test."""

    def __init__(self, handlers: int = 1, ring_bytes: int = RING_BYTES, **settings: object) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.directory = Path(self._scratch.name)
        sets = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = load(None, {"log.dirs": str(self.directory), **sets}, {})
        shape = ChannelShape(1, handlers + 1, ring_bytes)
        self.channel = RequestChannel(memoryview(bytearray(shape.bytes_needed)), shape)
        self.channel.initialise()
        self.arena = memoryview(bytearray(ARENA_BYTES))
        self.spill_fd = os.memfd_create("bench-spill")
        os.ftruncate(self.spill_fd, SPILL_BYTES)
        self.bell = EventBell()
        self.target_bells = tuple(_semaphore_bell() for _ in range(handlers + 1))
        self.pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in self.pair:
            end.setblocking(False)
        self.acceptor = HandoffSender(self.pair[0])
        pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, handlers))), 1, handlers)
        pages.initialise()
        self.page = pages.page(PROCESSOR, 0)
        size = RecorderRings.bytes_needed(1, handlers + 1)
        self.recorder = RecorderRings(memoryview(bytearray(size)), 1, handlers + 1)
        self.recorder.initialise()
        self.recorder_bell = _semaphore_bell()
        self.clock = FakeClock(monotonic_ns=1_000_000_000_000)
        self.targets = [FakeTarget(self, index) for index in range(handlers + 1)]
        self.clients: list[Client] = []
        self.closed_serials: list[int] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.replace_processor(generation=1)

    def replace_processor(self, generation: int) -> None:
        """Attach a new processor to the rings; the old one is not stopped."""
        now_ns = self.clock.monotonic_ns
        pool = MemoryPool(self.arena, 0, ARENA_BYTES, self.spill_fd, spill_area(0))
        self.sender = RequestSender(self.channel, 0, self.target_bells, pool)
        kept = KeptRequests(self.config.pipeline_max_bytes, self.config.pipeline_max_total_bytes)
        self.reader = RequestReader(self.config, self.sender, kept, now_ns)
        self.reader.authentication.listeners = [*self.reader.authentication.listeners, ("ADMIN", "PLAINTEXT")]
        memory = memoryview(bytearray(QuotaTables.bytes_needed(self.config.quota_window_num, 1)))
        tables = QuotaTables(memory, self.config.quota_window_num, 1)
        self.quotas = QuotaManager(tables, 0, self.config, ("PLAINTEXT", "ADMIN"))
        storms = RetryStorms(self.quotas, now_ns)
        self.responses = ResponseReader(self.channel, 0, kept, self.config.output_max_bytes, now_ns, storms)
        handoff = HandoffReceiver(self.pair[1])
        counter = itertools.count()

        def new_id() -> int:
            return connection_id.make(0, generation, next(counter))

        clients = ClientRegistry(new_id, (("PLAINTEXT", "PLAINTEXT"), ("ADMIN", "PLAINTEXT")))
        self.reader.clients = clients
        sender = RequestLogSender(RecorderFeed(self.recorder, 0), clients.texts, self.recorder_bell)
        network_time = NetworkTime(self.quotas, now_ns)
        counts = ProcessorMetrics(MetricsWriter(self.page), now_ns()), CompletedRequests(clients, sender), network_time

        ends = (self.reader, self.responses, handoff, self.bell)
        self.processor = Processor(self.config, ends, new_id, counts, now_ns)

    def __enter__(self) -> "ProcessorBench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.processor.close_all()
        for client in self.clients:
            client.sock.close()
        self._listening.close()
        for end in self.pair:
            end.close()
        self.bell.close()
        for bell in (*self.target_bells, self.recorder_bell):
            bell.close()
        os.close(self.spill_fd)
        self._scratch.cleanup()

    def run_once(self, count: int = 1) -> None:
        """Turn the loop once, without sleep; before that the targets retry the responses that found no room."""
        for _ in range(count):
            for target in self.targets:
                target.publish()
            self.bell.ring()
            self.processor.step()

    def turn_until(self, condition: Callable[[], object], what: str) -> None:
        """Turn until the condition holds; AssertionError naming `what` if it never does."""
        end = time.monotonic() + deadline_s()
        while not condition():
            assert time.monotonic() < end, f"not in time: {what}"
            self.run_once()

    def connect(self, send_buffer: int = 0, receive_buffer: int = 0, listener: int = 0) -> Client:
        """Return a client whose connection the processor has accepted; buffers in bytes, 0 for the kernel's own."""
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(self._listening.getsockname())
        sock.setblocking(False)
        accepted, _ = self._listening.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        serial = len(self.clients)
        client = Client(self, sock, serial)
        self.clients.append(client)
        opened = self.value("connections_opened")
        assert self.acceptor.try_send(accepted, serial, listener, ("127.0.0.1", 1))
        accepted.close()
        self.turn_until(lambda: self.value("connections_opened") > opened, "the connection is taken over")
        return client

    def requests(self, count: int, target: int = 0, release: bool = True) -> list[Taken]:
        """Turn until a target has got `count` requests."""
        taken: list[Taken] = []

        def enough() -> bool:
            taken.extend(self.targets[target].take(release))
            return len(taken) >= count

        self.turn_until(enough, f"{count} requests at target {target}")
        assert len(taken) == count, f"{len(taken)} requests instead of {count}"
        return taken

    def nothing_more(self, target: int = 0) -> bool:
        """Turn a few times; return whether a target has got no request."""
        self.run_once(5)
        return not self.targets[target].take(release=False)

    def closed(self) -> list[int]:
        """Return the serials that were reported closed so far."""
        for report in self.acceptor.reports():
            if isinstance(report, Closed):
                self.closed_serials += report.serials
        return self.closed_serials

    def wait_closed(self, client: Client) -> None:
        """Turn until the client's connection is reported closed."""
        self.turn_until(lambda: client.serial in self.closed(), "the connection is reported closed")

    def value(self, name: str, label: str = "") -> int:
        """Return the present value of a counter or gauge of the page."""
        return MetricsReader(self.page).read().values[name, label]

    def published_value(self, name: str, label: str = "") -> int:
        """Return a counter or gauge after the page has been brought up to date."""
        self.clock.advance_ms(600)
        self.run_once()
        return self.value(name, label)

    def memory(self, area: int) -> memoryview:
        """Return the memory that an area number names."""
        if area < spill_area(0):
            return self.arena
        return memoryview(os.pread(self.spill_fd, SPILL_BYTES, 0))

    def spill_bytes_in_memory(self) -> int:
        """Return how much memory the spill file uses."""
        return os.fstat(self.spill_fd).st_blocks * 512

    def restless(self) -> bool:
        """Return whether something would keep waking the loop although there is nothing to do."""
        self.run_once(3)
        return bool(self.processor._selector.poll(0))


def _semaphore_bell() -> SemaphoreBell:
    semaphore = posix_ipc.Semaphore(f"/rotundatest-{uuid.uuid4().hex}", posix_ipc.O_CREX, mode=0o600)
    semaphore.unlink()
    return SemaphoreBell(semaphore)
