"""A broker's targets in one process, turned by hand: real rings, logs and metadata, no fork.

A handler that is "killed" is abandoned at a chosen line and replaced by another of a higher generation on the same
shared memory. The processor's part is done here in its simplest form: requests in, responses out, and the first
response to a request is the one that counts.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.config.broker_config import load
from rotunda.broker.handler import handler_process
from rotunda.broker.handler.request_handler import ALL_FAST_PATHS, FastPathSettings, RequestHandler
from rotunda.broker.ipc.poison_requests import PoisonRequests
from rotunda.broker.ipc.process_context import BoundListener
from rotunda.broker.ipc.request_channel import (
    CLOSE_CONNECTION,
    FAILED,
    INLINE_REQUEST_BYTES,
    NO_OP,
    RANGE,
    RESPONSE,
    SEND,
    THROTTLED,
    ChannelShape,
)
from rotunda.broker.log.data_dir import prepare_data_dir
from rotunda.broker.log.offset_checkpoints import OffsetCheckpoints
from rotunda.broker.metadata.active_controller import ActiveController
from rotunda.broker.metadata.configs.config_changes import Alteration, ConfigChange, Operation
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
from rotunda.broker.metadata.store.preparation import prepare as prepare_metadata
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.network.processor.request_sender import MemoryPool, RequestSender, spill_area
from rotunda.broker.partitions.partition_manager import PartitionManager
from rotunda.broker.server_log.log_file import LogOutput
from rotunda.broker.supervisor import shared_resources
from rotunda.shm.layout import RESPONSE_ENVELOPE
from tests.support.fakes import FakeClock
from tests.support.record_batches import record_batch
from tests.support.wire_messages import PRODUCE, ReadRecord, produce_body, read_batches, read_produce, string

#: Processors allocate this much of the arena here.
ARENA_BYTES = 4 << 20

#: Handle all requests by the general path.
NO_FAST_PATHS = FastPathSettings(cache_bytes=0, have_fast_paths=False)

#: Where a process may die. Not in `shm.words`: its private lock would outlive the "process" here.
OURS = tuple(f"{os.sep}{name}{os.sep}" for name in ("broker", "shm"))
SERVING = tuple(
    os.path.join("broker", room, "")
    for room in ("handler", "partitions", "coordinator", "apis", "scheduling", "ipc", "metadata")
)
_NOT_THERE = ("site-packages", "words.py")

_RESPONSE_FIELDS = [each.name for each in RESPONSE_ENVELOPE.fields]


class Killed(BaseException):
    """The death of a process: no handler of errors gets to see it, and nothing is tidied up on the way."""


class Answer(NamedTuple):
    """One response as read from a response ring; file ranges have been read."""

    kind: int
    error_code: int
    payload: bytes
    ranges: int
    #: As in REQUEST_ROW: which quota caused a throttle time.
    throttled_by: int = 0


@dataclass
class Sent:
    """One request, and all its responses."""

    target: int
    api_key: int
    version: int
    frame: bytes
    answers: list[Answer] = field(default_factory=list)
    #: The bytes before each of them in its ring, which have the facts for the request log.
    envelopes: list[bytes] = field(default_factory=list)
    received_ns: int = 0

    @property
    def answer(self) -> Answer:
        """The response that counts: the first."""
        assert self.answers, "no answer"
        return self.answers[0]


class Client:
    """One connection to one processor."""

    def __init__(self, broker: SteppedBroker, processor: int, connection: int) -> None:
        self._broker = broker
        self.processor = processor
        self.connection = connection
        self.sent: dict[int, Sent] = {}
        #: The owner of its requests (`session.pack_session`); empty: no session.
        self.session = b""

    def send(self, api_key: int, version: int, body: bytes, target: int | None = None) -> Sent:
        """Put a request with header version 1 (2 if ``body`` starts with its tag section) into its target's ring."""
        sequence = len(self.sent)
        header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + sequence.to_bytes(4, "big")
        return self.send_frame(api_key, version, header + string("test") + body, target)

    def send_frame(self, api_key: int, version: int, frame: bytes, target: int | None = None) -> Sent:
        """Put the bytes of a request, from its api key on, into its target's ring."""
        sequence = len(self.sent)
        sender = self._broker.senders[self.processor]
        if target is None:
            target = sender.target_of(frame, api_key, version, self.connection)
        sent = self.sent[sequence] = Sent(target, api_key, version, frame)
        self._broker.put(self, sequence)
        return sent

    def produce(self, parts: Sequence[tuple[str, int, bytes]], acks: int = 1, version: int = 7) -> Sent:
        """Send a Produce of version 3-8."""
        return self.send(PRODUCE, version, produce_body(parts, acks))


def close_nameless(directory: Path) -> None:
    """Close unnamed files of a directory, which a target that died while it probed the disk has left open."""
    begins = f"{directory}/#"
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - very many
            if path.startswith(begins) and path.endswith(" (deleted)"):
                os.close(int(descriptor))


class SteppedBroker:
    """Targets 0..handlers-1 and the controller after them; none of them moves by itself."""

    def __init__(  # noqa: PLR0913 - one keyword per property that a test may want to choose
        self,
        directory: Path,
        handlers: int = 2,
        processors: int = 1,
        ring_bytes: int | None = None,
        settings: Mapping[str, str] | None = None,
        most_deaths: int = 1 << 30,
        clock: type[FakeClock] = FakeClock,
        fast_paths: FastPathSettings = ALL_FAST_PATHS,
    ) -> None:
        """Deaths here are chosen by a test, and no request's fault: one that they strike is dropped after many."""
        self._most_deaths, self._fast_paths = most_deaths, fast_paths
        self.clock = clock(monotonic_ns=1_000_000_000)
        self.config = load(
            None,
            {
                "log.dirs": str(directory / "data"),
                "num.io.threads": str(handlers),
                "num.network.threads": str(processors),
                "offsets.topic.num.partitions": "4",  # so that ids of several partitions meet in one handler
                "queued.max.request.bytes": str(processors * ARENA_BYTES),
                "request.ring.bytes": str(256 * 1024),
                "max.partitions": "64",
                "ephemeral": "true",
                **(settings or {}),
            },
            {},
        )
        run_dir = directory / "run"
        run_dir.mkdir(parents=True)
        self.config.data_dir.mkdir(parents=True)
        cluster_id = prepare_data_dir(self.config.data_dir, self.config.node_id)
        prepare_metadata(self.config.data_dir, self.config.max_partitions, ephemeral=True)
        listener = BoundListener("PLAINTEXT", "127.0.0.1", 9092, socket.socket(), "127.0.0.1", 9092, "PLAINTEXT", 0)
        with mock.patch.object(shared_resources, "most_handlers", lambda started: started):
            self.context = shared_resources.make(
                self.config, f"test{uuid.uuid4().hex}", run_dir, cluster_id, LogOutput(), [listener]
            )
        if ring_bytes is not None:
            shape = ChannelShape(self.context.most_processors, handlers + 1, ring_bytes)
            self.context = replace(self.context, channel_shape=shape)
        channel = self.context.channel
        channel.initialise()
        self._largest_inline = channel.shape.ring_capacity_bytes // 2 - 256
        self.senders = [self._sender(p) for p in range(processors)]
        self._responses = [
            [channel.response_consumer(p, target) for target in range(handlers + 1)] for p in range(processors)
        ]
        self._clients: dict[int, Client] = {}
        self._connections = count()
        #: Requests that found their ring or the arena full, by processor and target.
        self._backlog: defaultdict[tuple[int, int], deque[tuple[Client, int]]] = defaultdict(deque)
        self._generations = [0] * (handlers + 1)
        #: By target: the object that has files open.
        self._managers: list[PartitionManager | None] = [None] * (handlers + 1)
        self._active: ActiveController | None = None
        self.handlers: list[RequestHandler | None] = [None] * (handlers + 1)
        for index in (handlers, *range(handlers)):
            self.boot(index)

    # ---- life and death --------------------------------------------------------------------------------------------

    def boot(self, index: int) -> None:
        """Boot a handler, as its process does before the first turn."""
        self._generations[index] += 1
        context = self.context
        poison = PoisonRequests(context, index, self._generations[index], self._most_deaths)

        # Set first, so that `kill` finds the files of a target that dies while it boots.
        def manager(*args: Any) -> PartitionManager:
            made = self._managers[index] = PartitionManager(*args)
            return made

        def active(*args: Any) -> ActiveController:
            self._active = ActiveController(*args)
            return self._active

        with (
            mock.patch.object(handler_process, "PartitionManager", manager),
            mock.patch.object(handler_process, "ActiveController", active),
        ):
            self.handlers[index] = handler_process.boot(
                context, index, self._generations[index], self.clock, poison, self._fast_paths
            )
        for sender in self.senders:
            sender.generations[index] = self._generations[index]

    def kill(self, index: int) -> None:
        """Abandon a target in its present state; only its descriptors are closed, as the kernel would."""
        manager = self._managers[index]
        if manager is not None:
            for log in manager.log_manager.logs.values():
                for segment, _ in log._pending_rolls:
                    segment.close()
                log._segment.close()
            manager.metadata.close()
        close_nameless(self.config.data_dir)
        if index == self.context.handlers and self._active is not None:
            self._active.controller.close()
            self._active = None
        self._managers[index] = self.handlers[index] = None

    def replace(self, index: int) -> None:
        """Kill a target and start another in its place; processors repeat their unanswered requests."""
        self.kill(index)
        self.boot(index)
        # A processor reads its responses before it sends the rest again.
        self.drain()
        for client in self._clients.values():
            for sequence, sent in client.sent.items():
                if sent.target == index and not sent.answers and sent.api_key != PRODUCE:
                    self.put(client, sequence)
        for sender in self.senders:
            sender.follow(index, self._generations[index])
        self._confirm()

    def replace_processor(self, processor: int) -> None:
        """Attach another processor to the rings: connections of the dead one are closed, its requests remain."""
        self.senders[processor] = self._sender(processor)
        for target, generation in enumerate(self._generations):
            self.senders[processor].follow(target, generation)
        channel = self.context.channel
        self._responses[processor] = [
            channel.response_consumer(processor, target) for target in range(len(self.handlers))
        ]
        for place in [each for each in self._backlog if each[0] == processor]:
            del self._backlog[place]
        self._clients = {number: each for number, each in self._clients.items() if each.processor != processor}

    def close(self) -> None:
        """Kill all targets and remove what they share."""
        for index in range(len(self.handlers)):
            self.kill(index)
        shared_resources.release(self.context)
        for listener in self.context.listeners:
            listener.socket.close()

    def parts(self, index: int) -> BrokerContext:
        """Return the arguments of a living target's API functions."""
        return self.handler(index).broker

    @property
    def controller(self) -> Controller:
        """The living controller."""
        active = self.parts(self.context.handlers).controller
        assert active is not None
        return active.controller

    def announce_metadata(self) -> None:
        """Make the controller notify every target that the metadata has changed."""
        active = self.parts(self.context.handlers).controller
        assert active is not None
        active.announce()

    def handler(self, index: int) -> RequestHandler:
        """Return a living target."""
        handler = self.handlers[index]
        assert handler is not None
        return handler

    def run_once(self, index: int) -> bool:
        """Turn one target's loop once."""
        return self.handler(index).run_once()

    def turn_until_line(self, index: int, line: int) -> bool:
        """Turn a target and kill it before its ``line``-th line; True if it died."""
        return died_at_line(line, self.handler(index).run_once, OURS)

    def replaced_at_line(self, index: int, line: int) -> bool:
        """Turn a target, kill it before its ``line``-th line, and replace it; False if it survived."""
        died = self.turn_until_line(index, line)
        if died:
            self.replace(index)
        return died

    def boot_until_line(self, index: int, line: int) -> bool:
        """Boot a target and kill it before its ``line``-th line of server code; True if it died."""
        return died_at_line(line, lambda: self.boot(index), SERVING)

    def settle(self, rounds: int = 60) -> None:
        """Turn everything until every request has its response and nothing moves, and read the responses."""
        for _ in range(rounds):
            worked = [handler.run_once() for handler in self.handlers if handler is not None]
            self.drain()
            self.clock.advance_ns(100_000)
            if not any(worked) and all(sent.answers for c in self._clients.values() for sent in c.sent.values()):
                return

    # ---- the processors' side --------------------------------------------------------------------------------------

    def client(self, processor: int = 0) -> Client:
        """Return a new connection."""
        connection = processor << 48 | 1 << 32 | next(self._connections)
        client = self._clients[connection] = Client(self, processor, connection)
        return client

    def forget_clients(self) -> None:
        """Forget connections whose requests have been inspected."""
        for client in self._clients.values():
            client.sent = {}

    def put(self, client: Client, sequence: int) -> None:
        """Put a request into its target's ring, or queue it until there is room."""
        waiting = self._backlog[client.processor, client.sent[sequence].target]
        if waiting or not self._try_put(client, sequence):
            waiting.append((client, sequence))

    def drain(self, processor: int | None = None) -> None:
        """Read the responses from the response rings."""
        for number, rings in enumerate(self._responses):
            if processor is None or processor == number:
                for ring in rings:
                    for at, _, _ in ring.read(1 << 20):
                        self._take_answer(at)
                    ring.release()
                self.senders[number].reclaim()
        for waiting in self._backlog.values():
            while waiting and self._try_put(*waiting[0]):
                waiting.popleft()
        self._confirm()

    def _confirm(self) -> None:
        for number, sender in enumerate(self.senders):
            if not any(waiting for (processor, _), waiting in self._backlog.items() if processor == number):
                sender.confirm()

    def released(self, processor: int, target: int) -> bool:
        """Return whether the target has released every request of a processor."""
        ring = self.context.channel.request_consumer(processor, target)
        return not ring.pending()

    def _take_answer(self, at: int) -> None:
        view = self.context.rings.view
        packed = bytes(view[at : at + RESPONSE.size])
        envelope = dict(zip(_RESPONSE_FIELDS, RESPONSE.unpack(packed), strict=True))
        connection, sequence = envelope["connection_id"], envelope["sequence"]
        kind = envelope["kind"] & ~(THROTTLED | FAILED)
        ranges, size = envelope["range_count"], envelope["size"]
        assert kind in (SEND, NO_OP, CLOSE_CONNECTION)
        at += RESPONSE.size
        rows = [RANGE.unpack_from(view, at + i * RANGE.size) for i in range(ranges)]
        path_at = at + ranges * RANGE.size
        inline_at = path_at + sum(row[4] for row in rows)
        end = inline_at + size
        pieces: list[bytes] = []
        for before, inode, position, length, path_bytes in rows:
            pieces.append(bytes(view[inline_at : inline_at + before]))
            inline_at += before
            path = Path(bytes(view[path_at : path_at + path_bytes]).decode())
            path_at += path_bytes
            data = path.read_bytes()[position : position + length]
            assert len(data) == length
            assert inode in (-1, path.stat().st_ino)
            pieces.append(data)
            if inode == -1:
                path.unlink()
        pieces.append(bytes(view[inline_at:end]))
        client = self._clients.get(connection)
        if client is not None and sequence in client.sent:
            client.sent[sequence].envelopes.append(packed)
            client.sent[sequence].answers.append(
                Answer(kind, envelope["error_code"], b"".join(pieces), ranges, envelope["throttled_by"])
            )

    def _try_put(self, client: Client, sequence: int) -> bool:
        sent, sender = client.sent[sequence], self.senders[client.processor]
        size = len(sent.frame)
        sent.received_ns = sent.received_ns or self.clock.monotonic_ns()
        correlation_id = int.from_bytes(sent.frame[4:8], "big", signed=True)
        envelope = (client.connection, sequence, sent.received_ns, sent.api_key, sent.version, correlation_id, size)
        if size <= min(INLINE_REQUEST_BYTES, self._largest_inline):
            done = sender.try_send(sent.target, envelope, 0, sent.frame, client.session)
        else:
            block = sender.allocate(size)
            if block is None:
                return False
            block.view[:] = sent.frame
            done = sender.try_send_block(sent.target, envelope, 0, (block.area, block.address), client.session)
            if not done:
                sender.pool.free(block.area, block.address)
        sender.publish()
        return done

    def _sender(self, processor: int) -> RequestSender:
        pool = MemoryPool(
            self.context.arena.view,
            processor * ARENA_BYTES,
            ARENA_BYTES,
            self.context.spill_fds[processor],
            spill_area(processor),
        )
        return RequestSender(
            self.context.channel,
            processor,
            self.context.target_bells,
            pool,
            self.context.coordinators,
        )

    # ---- topics and records ----------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until its owners have opened it."""
        [outcome] = self.controller.create_topics([NewTopic(name, partitions, configs=dict(configs or {}))])
        assert outcome.error_code == 0, outcome
        self.announce()

    def set_config(self, resource_type: int, resource: str, name: str, value: str | None) -> None:
        """Set a config, or delete it with None; each target applies it in its next turn."""
        operation = Operation.DELETE if value is None else Operation.SET
        change = ConfigChange(name, operation, value)
        self.controller.alter_configs(resource_type, resource, Alteration((change,)), validate_only=False)
        self.announce_metadata()

    def delete(self, name: str) -> None:
        """Delete a topic; owners hear of it in their next turn."""
        self.controller.delete_topics([self.topic(name)])
        self.announce_metadata()

    def announce(self) -> None:
        """Notify every target that the metadata has changed, and apply it in each."""
        self.announce_metadata()
        for handler in self.handlers:
            if handler is not None:
                handler.run_once()

    def topic(self, name: str) -> TopicInfo:
        """Return a topic that exists."""
        found = self.parts(self.context.handlers).metadata.topic(name)
        assert found is not None
        return found

    def partition(self, topic: str, index: int) -> PartitionInfo:
        """Return the address of a partition."""
        found = self.parts(self.context.handlers).metadata.partition(topic, index)
        assert found is not None
        return found

    def owned_by(self, topic: str, owner: int) -> list[int]:
        """Return the partitions of a topic that a handler owns."""
        return [partition.index for partition in self.topic(topic).partitions if partition.owner == owner]

    def end(self, topic: str, index: int) -> int:
        """Return the published end of a partition."""
        return self.context.partitions.read_end(self.partition(topic, index).row)

    def records(self, topic: str, index: int) -> list[ReadRecord]:
        """Return the committed records of a partition, read from its files below the published end."""
        row = self.partition(topic, index).row
        end, base, position = self.context.partitions.read_position(row)
        directory = self.config.data_dir / f"{topic}-{index}"
        found: list[ReadRecord] = []
        for path in sorted(directory.glob("*.log")):
            segment = int(path.stem)
            if segment <= base:
                data = path.read_bytes()
                found += read_batches(data[:position] if segment == base else data)
        assert [record.offset for record in found] == list(range(end))
        return found

    def values(self, topic: str, index: int) -> list[bytes]:
        """Return the values committed in a partition."""
        return [record.value for record in self.records(topic, index)]


@cache
def may_die_in(code: CodeType, where: Sequence[str]) -> bool:
    """Return whether a death can be simulated in a function of files in ``where``.

    The kernel releases the file lock of a process that dies; here no process dies, so `_locked` itself must release it.
    """
    path = code.co_filename
    ours = any(part in path for part in where) and not any(part in path for part in _NOT_THERE)
    return ours and code.co_name != OffsetCheckpoints._locked.__name__


def died_at_line(line: int, do: Callable[[], object], where: Sequence[str]) -> bool:
    """Call ``do`` and raise Killed before the ``line``-th line of files in ``where``; True if it was raised."""
    left = line

    def local(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001
        nonlocal left
        if event == "line":
            left -= 1
            if left <= 0:
                raise Killed
        return local

    def enter(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001
        return local if may_die_in(frame.f_code, where) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        do()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


def produced(sent: Sent) -> list[tuple[int, int]]:
    """Return (error code, base offset) for each part of a Produce response of version 5-7."""
    answer = sent.answer
    assert answer.kind == SEND, answer
    return [(part.error_code, part.base_offset) for part in read_produce(answer.payload[8:])]


def batch_for(partition: int, *values: bytes) -> tuple[str, int, bytes]:
    """Return a part of a Produce: a batch with these values for a partition of "topic"."""
    return "topic", partition, record_batch(list(values))
