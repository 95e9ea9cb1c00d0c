"""The bystanders: plain clients in a process of their own that only send requests and time the responses.

Each has one connection, and sends on it in turn ApiVersions, Produce, Fetch and Metadata. No attack targets them, so a
pause or a closed connection is noted with the process that served them: the kernel shows the process that has the
descriptor of the connection's other end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ops.broker import NICENESS, pids_of
from ops.reliability import batches
from ops.reliability.wire import CLIENT_ID, Wire
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

BYSTANDERS = 6
TOPIC = "campaign-bystanders"
REST_SECONDS = 0.02
#: Shorter pauses are not worth a word.
PAUSE_SECONDS = 0.1
#: Timeout of a response; a later one is treated as lost.
ANSWER_SECONDS = 60.0
_ESTABLISHED = "01"


class Pause(NamedTuple):
    """A time without a response, in monotonic seconds; `pid` is the processor of that bystander, 0 if unknown."""

    begin: float
    end: float
    pid: int
    what: str
    was_closed: bool

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Sightings(NamedTuple):
    """All that the bystanders have seen."""

    answers: int
    errors: dict[str, int]
    pauses: list[Pause]


class Bystanders:
    """The campaign's side of the process."""

    def __init__(self, port: int, supervisor: Callable[[], int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._supervisor = context.Value("i", 0)
        self._now = supervisor
        self._process = context.Process(target=run, args=(port, self._supervisor, theirs), daemon=True)

    def start(self) -> None:
        self.broker_has_changed()
        self._process.start()

    def broker_has_changed(self) -> None:
        """Pass on that the broker is another one."""
        self._supervisor.value = self._now()

    def finish(self) -> Sightings:
        """End it and return its observations."""
        self._ours.send(None)
        sightings = self._ours.recv() if self._ours.poll(2 * ANSWER_SECONDS) else Sightings(0, {"no end": 1}, [])
        self.kill()
        return sightings

    def kill(self) -> None:
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()


class Bystander:
    """One of them: its connection, and its questions. Runs in a thread."""

    def __init__(self, port: int, number: int, supervisor: Any) -> None:
        self._port, self._number, self._supervisor = port, number, supervisor
        self.pauses: list[Pause] = []
        self.answers = 0
        self.errors: dict[str, int] = {}
        self._offset = 0
        self._pid = 0

    def run(self, ended: threading.Event) -> None:
        """Send requests until told to stop."""
        lost_at, lost_pid = 0.0, 0
        while not ended.is_set():
            try:
                with Wire(self._port, ANSWER_SECONDS) as wire:
                    self._ask(wire, ApiKey.API_VERSIONS, 3, {"client_software_name": "bystander"})
                    self._pid = processor_of(wire, self._supervisor.value)
                    if lost_at:
                        self.pauses.append(Pause(lost_at, time.monotonic(), lost_pid, "closed", was_closed=True))
                        lost_at = 0.0
                    while not ended.is_set():
                        self._round(wire)
            except (OSError, struct.error) as failure:
                if not lost_at:
                    lost_at, lost_pid = self._asked, self._pid
                    self._count(f"{type(failure).__name__}: {failure}")
                self._pid = 0
                time.sleep(REST_SECONDS)

    def _round(self, wire: Wire) -> None:
        now_ms = int(time.time() * 1000)
        kept = batches.batch(batches.records([b"%d" % self.answers]), 1, now_ms)
        produced = self._ask(
            wire,
            ApiKey.PRODUCE,
            9,
            {
                "acks": 1,
                "timeout_ms": 10_000,
                "topic_data": [{"name": TOPIC, "partition_data": [{"index": self._number, "records": kept}]}],
            },
        )
        part = produced.responses[0].partition_responses[0]
        if part.error_code:
            self._count(f"Produce was refused: {ErrorCode(part.error_code).name}")
        else:
            self._offset = part.base_offset
        place = {"partition": self._number, "fetch_offset": self._offset, "partition_max_bytes": 10_000}
        fetched = self._ask(
            wire,
            ApiKey.FETCH,
            11,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "max_bytes": 10_000,
                "topics": [{"topic": TOPIC, "partitions": [place]}],
            },
        )
        if fetched.responses and fetched.responses[0].partitions[0].error_code:
            self._count(f"Fetch was refused: {ErrorCode(fetched.responses[0].partitions[0].error_code).name}")
        self._ask(wire, ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False})
        self._ask(wire, ApiKey.API_VERSIONS, 3, {"client_software_name": "bystander"})
        time.sleep(REST_SECONDS)

    def _ask(self, wire: Wire, api_key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        frame = codec.encode_request(api_key, version, 1, f"{CLIENT_ID}-bystander", fields)
        self._asked = time.monotonic()
        wire.send(frame)
        answer = wire.receive()
        now = time.monotonic()
        if now - self._asked > PAUSE_SECONDS:
            self.pauses.append(Pause(self._asked, now, self._pid, api_key.name, was_closed=False))
        self.answers += 1
        return codec.decode_response(api_key, version, answer, 0, len(answer))

    def _count(self, error: str) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1


def run(port: int, supervisor: Any, pipe: Connection) -> None:
    """Run all of them until the campaign ends; runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.geteuid() == 0:
        os.nice(NICENESS)
    with Wire(port) as wire:
        topics = [{"name": TOPIC, "num_partitions": BYSTANDERS, "replication_factor": 1}]
        wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000})
    ended = threading.Event()
    bystanders = [Bystander(port, number, supervisor) for number in range(BYSTANDERS)]
    threads = [threading.Thread(target=each.run, args=(ended,), daemon=True) for each in bystanders]
    for thread in threads:
        thread.start()
    pipe.recv()
    ended.set()
    for thread in threads:
        thread.join(ANSWER_SECONDS)
    errors: dict[str, int] = {}
    for each in bystanders:
        for error, count in each.errors.items():
            errors[error] = errors.get(error, 0) + count
    pauses = [pause for each in bystanders for pause in each.pauses]
    pipe.send(Sightings(sum(each.answers for each in bystanders), errors, pauses))


def processor_of(wire: Wire, supervisor: int) -> int:
    """Return the process id of the processor that has the other end of a connection; 0 when none has it any more."""
    inode = inode_of(wire.socket.getpeername()[1], wire.socket.getsockname()[1])
    wanted = f"socket:[{inode}]"
    for pid in pids_of(supervisor, "processor"):
        try:
            if any(str(entry.readlink()) == wanted for entry in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
        except OSError:
            continue
    return 0


def inode_of(local_port: int, remote_port: int) -> int:
    """Return the inode of the socket that has these two ports, as its own and its peer's."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = fields[1].rpartition(":")[2], fields[2].rpartition(":")[2]
        if fields[3] == _ESTABLISHED and ports == (f"{local_port:04X}", f"{remote_port:04X}"):
            return int(fields[9])
    return 0
