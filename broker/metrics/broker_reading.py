"""One reading of a whole broker, for /metrics and the command line: copies, made without a request to any process.

Facts that only the broker knows, such as the names of topics, are passed to the reader when it is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.metrics.quota_use import clients_use
from rotunda.shm.rings.ring_fill import RingFill, RingGrid, read_fill
from rotunda.shm.tables.partitions import STATE_OPEN, RowCorrupt
from rotunda.shm.tables.snapshot_buffer import SnapshotReader

if TYPE_CHECKING:
    from rotunda.broker.metrics.quota_use import ClientUse
    from rotunda.shm.control import ControlSegment
    from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsReading, MetricsSegment
    from rotunda.shm.rings.recorder_rings import RecorderRings
    from rotunda.shm.storage import StorageReading
    from rotunda.shm.tables.process_slots import ProcessStatus
    from rotunda.shm.tables.quota_tables import QuotaTables
    from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

#: A snapshot that is older is not of the present.
FRESH_NS = 30_000_000_000

#: Time after a reading for which snapshots are updated: longer than Prometheus' scrape interval.
LOOKS_NS = 300_000_000_000

ROW_OUTCOMES = ("pushed", "skipped", "dropped", "lost")

#: (name, internal, its partitions as (number, row, owner)), as the broker's metadata has it now.
Topic = tuple[str, bool, Sequence[tuple[int, int, int]]]


class Ring(NamedTuple):
    """A ring's fill, and the processes at its ends."""

    kind: str
    source: str
    destination: str
    fill: RingFill


class Partition(NamedTuple):
    """A partition's row."""

    number: int
    is_open: bool
    start: int
    end: int
    stable: int
    log_bytes: int
    records_in: int
    bytes_in: int
    bytes_out: int


class Names(NamedTuple):
    """The names of numbers: APIs and error codes by number, listeners by index."""

    apis: Mapping[int, str]
    errors: Mapping[int, str]
    listeners: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReading:
    """All values at one time. `snapshots` by handler has only those that are up to date.

    `per_partition`: whether each partition is wanted in addition to the sums; `per_client`: whether the metrics that
    clients push are.
    """

    version: str
    names: Names
    time_ns: int
    wall_ms: int
    is_draining: bool
    processes: list[ProcessStatus]
    pages: list[MetricsReading]
    rings: list[Ring]
    topics: dict[str, list[Partition]]
    snapshots: dict[int, dict[str, Any]]
    request_log: dict[str, int]
    processors: int
    handlers: int
    per_partition: bool
    per_client: bool
    storage: StorageReading
    quotas: Sequence[ClientUse]

    @property
    def groups_known(self) -> bool:
        """Whether every handler has published its groups."""
        return len(self.snapshots) == self.handlers


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """The parts of shared memory that a reading is made from; `rings` is the segment of that name."""

    control: ControlSegment
    metrics: MetricsSegment
    rings: memoryview
    recorder: RecorderRings
    snapshots: SnapshotSegment
    quotas: QuotaTables


class BrokerReader:
    """Makes readings; calls `topics` and the two clocks each time."""

    def __init__(
        self,
        segments: Segments,
        version: str,
        names: Names,
        topics: Callable[[], Iterable[Topic]],
        clocks: tuple[Callable[[], int], Callable[[], int]],
        *,
        per_partition: bool = False,
        per_client: bool = False,
    ) -> None:
        """Set up with `clocks`, functions that return the monotonic time in ns and the wall-clock time in ms."""
        self._segments = segments
        self._version = version
        self.names = names
        self.topics = topics
        self._monotonic_ns, self._wall_ms = clocks
        self._per_partition = per_partition
        self._per_client = per_client
        snapshots = segments.snapshots
        #: Where a caller publishes that it is reading.
        self.wants = snapshots.wants
        self._pages: list[MetricsReader] = []
        self._made = (0, 0)
        self._grid = RingGrid(segments.rings, snapshots.processors, snapshots.handlers)
        self._snapshots = [SnapshotReader(snapshots.of_handler(index)) for index in range(snapshots.handlers)]
        self._connections = [SnapshotReader(snapshots.of_processor(index)) for index in range(snapshots.processors)]

    def read(self) -> BrokerReading:
        """Return all present values. The caller publishes whether it wants snapshots."""
        now_ns = self._monotonic_ns()
        control = self._segments.control
        made = control.broker_words.processors_made, control.broker_words.handlers_made
        if made != self._made:
            self._made = made
            self._pages = self._segments.metrics.readers(*made)
        return BrokerReading(
            version=self._version,
            names=self.names,
            time_ns=now_ns,
            wall_ms=self._wall_ms(),
            is_draining=control.broker_words.draining,
            processes=control.statuses(),
            pages=[page.read() for page in self._pages],
            rings=list(self._rings()),
            topics={name: self._partitions(partitions) for name, _, partitions in self.topics()},
            snapshots=_fresh(self._snapshots[: control.broker_words.handlers], now_ns),
            request_log=self._request_log(),
            processors=control.broker_words.processors,
            handlers=control.broker_words.handlers,
            per_partition=self._per_partition,
            per_client=self._per_client,
            storage=control.storage(),
            quotas=clients_use(self._segments.quotas, now_ns // 1_000_000),
        )

    def connections(self) -> dict[int, dict[str, Any]]:
        """Return the snapshots of processors that are true of the present, by processor, each with its time."""
        in_use = self._segments.control.broker_words.processors
        found = _fresh(self._connections[:in_use], self._monotonic_ns())
        return {index: {**each, "time_ns": self._connections[index].checked_ns} for index, each in found.items()}

    def _rings(self) -> Iterable[Ring]:
        in_use, handlers = self._segments.control.broker_words.processors, self._segments.control.broker_words.handlers
        controller = self._segments.snapshots.handlers
        targets = {**{target: str(target) for target in range(handlers)}, controller: "controller"}
        for processor in range(in_use):
            for target, name in targets.items():
                yield Ring("request", str(processor), name, self._grid.request(processor, target))
                yield Ring("response", name, str(processor), self._grid.response(processor, target))
        peers = {**targets, controller + 1: "cleaner"}
        for source, source_name in peers.items():
            for destination, destination_name in peers.items():
                if source != destination:
                    yield Ring("peer", source_name, destination_name, self._grid.peer(source, destination))
        recorder = self._segments.recorder
        for number, base in recorder.ring_bases().items():
            kind, index = recorder.describe(number)
            if (kind == "processor" and index >= in_use) or (kind == "target" and handlers <= index < controller):
                continue
            if kind == "processor":
                name = f"processor {index}"
            else:
                name = f"handler {index}" if index < handlers else "controller"
            yield Ring("recorder", name, "recorder", read_fill(recorder.view, base))

    def _partitions(self, partitions: Iterable[tuple[int, int, int]]) -> list[Partition]:
        table = self._segments.control.partitions
        found = []
        for number, row, _ in partitions:
            with suppress(RowCorrupt):
                # In this order the stable offset is never beyond the end.
                stable, end = table.read_stable(row), table.read_end(row)
                offsets = (min(table.read_start(row), end), end, min(stable, end))
                traffic = (table.records_in(row), table.bytes_in(row), table.bytes_out(row))
                is_open = table.state(row) == STATE_OPEN and not table.fault(row)
                found.append(Partition(number, is_open, *offsets, table.log_bytes(row), *traffic))
        return found

    def _request_log(self) -> dict[str, int]:
        """Return the totals of all sources, by name of the field in layout.RECORDER_SOURCE."""
        recorder = self._segments.recorder
        accounts = [recorder.account(source) for source in range(recorder.sources)]
        names = [*(f"rows_{outcome}" for outcome in ROW_OUTCOMES), "events_dropped"]
        return {name: sum(account.get(name) for account in accounts) for name in names}


def _fresh(snapshots: Sequence[SnapshotReader], now_ns: int) -> dict[int, dict[str, Any]]:
    found = {}
    for index, snapshot in enumerate(snapshots):
        document = snapshot.read()
        if document is not None and now_ns - snapshot.checked_ns <= FRESH_NS:
            found[index] = document
    return found
