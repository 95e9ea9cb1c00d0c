"""A recorder over byte arrays and a directory, with a fixed clock; the test plays the processors."""

import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import posix_ipc
import pyarrow.parquet as pq

from rotunda.broker.config.broker_config import load
from rotunda.broker.metadata.configs.request_log_settings import store_settings
from rotunda.broker.metadata.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from rotunda.broker.network.accounting.client_registry import ClientRegistry
from rotunda.broker.network.accounting.request_log_sender import RequestLogSender
from rotunda.broker.request_log.part_files import dataset_path, finished
from rotunda.broker.request_log.recorder import Recorder
from rotunda.shm.recorder_layout import NOT_REPORTED, REQUEST_ROW
from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.rings.recorder_rings import RecorderFeed, RecorderRings, pack_text
from tests.support.fakes import FakeClock

#: Half an hour into an hour.
WALL_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000 + 1_800_000
CLIENT = 5


class RecorderBench:
    """One processor, one handler and a controller as sources; topics a to c at rows 0 to 2 of the partition table."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.clock = FakeClock(monotonic_ns=1_000_000_000_000, wall_ms=WALL_MS)
        self.rings = RecorderRings(memoryview(bytearray(RecorderRings.bytes_needed(1, 2))), 1, 2)
        self.rings.initialise()
        settings = {"request_log_rows_per_second": 0, **settings}
        self.config = load(
            None, {"log.dirs": str(root), **{k.replace("_", "."): str(v) for k, v in settings.items()}}, {}
        )
        store_settings(self.rings, self.config, 1)
        self.topics = {name: row for row, name in enumerate("abc")}
        self.texts = {CLIENT: client_text(CLIENT, "someone")}
        self._bell = SemaphoreBell(_semaphore())
        self._names = itertools.count(1)
        self.recorder = self.start_recorder(replaces=False)
        self.sender = self.start_sender()
        self.taken = 0

    def start_recorder(self, *, replaces: bool) -> Recorder:
        """Attach a recorder to the rings; an earlier one is not stopped."""
        metadata = SimpleNamespace(refresh=lambda: None, topics=self._topics, broker_config=self.config)
        # As of a broker: its instance, and the generation of the recorder.
        name = f"4711.2345-{next(self._names)}"
        cache = cast("MetadataCache", metadata)
        self.recorder = Recorder(self.rings, self.root, name, cache, self.clock, replaces=replaces)
        return self.recorder

    def start_sender(self) -> RequestLogSender:
        """Attach a processor's sender to its ring; an earlier one is not stopped."""
        self.sender = RequestLogSender(RecorderFeed(self.rings, 0), self.texts, self._bell)
        return self.sender

    def push(self, rows: np.ndarray) -> None:
        """Build rows from responses and push them, as a processor does."""
        self.take(len(rows))
        self.sender.push(rows, [])

    def take(self, count: int) -> None:
        """Record responses whose rows are still in the processor's memory."""
        self.taken += count
        self.sender.note_received(self.taken)

    def run_once(self, after_ms: int = 0) -> None:
        """Advance the clock and turn the recorder."""
        self.clock.advance_ms(after_ms)
        self.recorder.run_once(0)

    def read(self, dataset: str) -> list[dict[str, Any]]:
        """Return the rows of all finished files of a dataset, without the columns of the path."""
        paths = sorted(part.path for part in finished(dataset_path(self.root, dataset)))
        return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]

    def _topics(self) -> list[TopicInfo]:
        return [TopicInfo(name, bytes(16), (PartitionInfo(0, row, 0),), {}, False) for name, row in self.topics.items()]


def rows_of(
    clock: FakeClock, count: int, spans_us: Sequence[int] = (10, 20, 30, 40, 50), **fields: object
) -> np.ndarray:
    """Return requests that have just ended, with the phases given, numbered by correlation id."""
    rows = np.zeros(count, REQUEST_ROW.dtype)
    stamps = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "taken_ns", "end_ns")
    ends = np.cumsum([0, *spans_us]) * 1000
    for name, end in zip(stamps, ends, strict=True):
        rows[name] = clock.monotonic_ns() - ends[-1] + end
    rows["correlation_id"] = np.arange(count)
    defaults = {
        "client": CLIENT, "partition_row": -1, "min_bytes": -1, "acks": NOT_REPORTED, "isolation_level": NOT_REPORTED,
        "record_count": -1, "record_bytes": -1, "codec": -1, "max_wait_ms": -1, **fields,
    }  # fmt: skip
    for name, value in defaults.items():
        rows[name] = value
    return rows


def client_text(number: int, client_id: str) -> bytes:
    """Return the client information of a frame."""
    clients = ClientRegistry(lambda: number, (("PLAINTEXT", "PLAINTEXT"),))
    names = client_id, "lib", "1.0"
    channel = SimpleNamespace(
        connection_id=number, names=names, peer="127.0.0.1", listener=0, client=None, user="ANONYMOUS"
    )
    clients._give(cast("Any", channel), number, [0, 0, 0, 0])
    assert clients.texts[number] == pack_text(number, clients.texts[number][16:].rstrip(b"\0"))
    return clients.texts[number]


def _semaphore() -> posix_ipc.Semaphore:
    name = f"/rotundatest-{uuid.uuid4().hex}"
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600)
    semaphore.unlink()
    return semaphore
