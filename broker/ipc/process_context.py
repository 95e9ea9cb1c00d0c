"""Everything that crosses the fork from the supervisor to its children, in one frozen value.

The supervisor creates it; a child gets it as an argument and inherits nothing else. Holding an object here does not
declare a right to write to it: single writers are named in `shm.layout`. `broker.runtime.child_process` closes the
descriptors that a role does not use, so that a descriptor which must be closed for good is not kept open by an
unrelated process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from socket import gethostname, socket
from typing import TYPE_CHECKING

from rotunda.broker.clock import SystemClock
from rotunda.broker.ipc.listener_table import ListenerEntry, ListenerNames, ListenerTable
from rotunda.broker.ipc.request_channel import RequestChannel
from rotunda.broker.metadata.configs.live_settings import LiveSettings
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.server_log.log_file import FullLogBell
from rotunda.shm.control import ControlSegment
from rotunda.shm.faults import FaultWords
from rotunda.shm.metrics.process_metrics import MetricsSegment, MetricsWriter
from rotunda.shm.rings.recorder_rings import RecorderRings
from rotunda.shm.tables.client_hosts import ClientHosts, ClientHostWriter
from rotunda.shm.tables.process_slots import HANDLER
from rotunda.shm.tables.quota_tables import QuotaTables
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.ipc.request_channel import ChannelShape
    from rotunda.broker.protocol.routing import CoordinatorPartitions
    from rotunda.broker.server_log.log_file import LogOutput
    from rotunda.shm.control import BrokerWords
    from rotunda.shm.rings.bell import EventBell, SemaphoreBell
    from rotunda.shm.segment import Segment
    from rotunda.shm.storage import StorageReading
    from rotunda.shm.tables.current_request import CurrentRequest
    from rotunda.shm.tables.partitions import PartitionTable
    from rotunda.shm.tables.process_slots import ProcessSlots


#: By the host of a listener on all interfaces, the address by which this machine reaches it.
_HERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


@dataclass(frozen=True, slots=True)
class BoundListener:
    """One listening address: its name, where it is bound (the real port), and the address advertised to clients.

    Without an advertised host, clients get the address, or with TLS the name, by which they reached it.
    """

    name: str
    host: str
    port: int
    socket: socket
    advertised_host: str
    advertised_port: int
    protocol: str
    #: Its index in the table of listeners.
    index: int

    @property
    def entry(self) -> ListenerEntry:
        """The listener as it is published."""
        here, _ = self.here
        entry = ListenerEntry(self.name, self.protocol, here, self.advertised_port)
        return entry.advertised_at(self.advertised_host, self.advertised_port)

    @property
    def here(self) -> tuple[str, int]:
        """The host and port by which this machine reaches it: with TLS by name, as certificates contain names."""
        if self.protocol.endswith("SSL") and self.host in _HERE:
            return gethostname(), self.port
        return self.local

    @property
    def local(self) -> tuple[str, int]:
        """The bound address, on this machine, and the port."""
        return _HERE.get(self.host, self.host), self.port


@dataclass(frozen=True)
class ProcessContext:
    """The context of every child. Tuples are by processor, or by peer: handlers, the controller, the cleaner."""

    config: BrokerConfig
    instance: str
    supervisor_pid: int
    run_dir: Path
    cluster_id: str
    log_output: LogOutput
    control: Segment
    rings: Segment
    channel_shape: ChannelShape
    arena: Segment
    metrics: Segment
    recorder: Segment
    #: The open listeners. The supervisor's list changes, so later children get the new list.
    listeners: list[BoundListener]
    #: (the supervisor's end, the acceptor's end) of a SOCK_SEQPACKET pair: listeners that are added and removed.
    listener_orders: tuple[socket, socket]
    #: Per processor: (the acceptor's end, the processor's end) of a SOCK_SEQPACKET pair.
    handoff: tuple[tuple[socket, socket], ...]
    processor_bells: tuple[EventBell, ...]
    target_bells: tuple[SemaphoreBell, ...]
    #: Per processor: a sparse memory file for requests that the arena cannot hold.
    spill_fds: tuple[int, ...]
    supervisor_bell: EventBell
    recorder_bell: SemaphoreBell
    coordinators: CoordinatorPartitions
    #: The recorder's published statistics of recent requests.
    recent: Segment
    #: The published snapshots of processors and handlers, and the addresses of clients.
    snapshots: Segment
    #: Quota usage of clients.
    quotas: Segment
    #: Numbers of processors and handlers at the start of the broker.
    started_processors: int
    started_handlers: int
    #: Socket of the status page; None without one.
    status_socket: socket | None = None
    #: Fault injection of tests; None in a broker that was not started for tests.
    faults: Segment | None = None
    #: Whether the last broker on this data directory shut down cleanly.
    is_clean_start: bool = False

    @property
    def after_log_line(self) -> Callable[[], None] | None:
        """The function that a process calls after each log line: it rings the supervisor when the file is full."""
        log_file = self.log_output.file
        return None if log_file is None else FullLogBell(log_file, self.supervisor_bell.ring)

    @property
    def most_processors(self) -> int:
        """Maximum number of processors in this run: shared memory has a place for each."""
        return self.channel_shape.processors

    @property
    def processors(self) -> int:
        """Number of processors that get connections now."""
        return self.broker_words.processors

    @property
    def arena_share(self) -> int:
        """Distance between the processors' parts of the arena, in bytes."""
        return self.arena.size // self.most_processors

    @property
    def handlers(self) -> int:
        """Number of handlers that own partitions; it changes only while no target is running."""
        return self.broker_words.handlers

    @property
    def most_handlers(self) -> int:
        """Maximum number of handlers in this run: shared memory has a place for each."""
        return self.channel_shape.targets - 1

    @property
    def controller(self) -> int:
        """The controller's index among the targets, after the last possible handler."""
        return self.channel_shape.targets - 1

    @property
    def cleaner(self) -> int:
        """The cleaner's index among the peers: it receives no requests, so it is not a target."""
        return self.channel_shape.targets

    @property
    def slots(self) -> ProcessSlots:
        """The process slots."""
        return self._parts.slots

    @property
    def partitions(self) -> PartitionTable:
        """The partition table."""
        return self._parts.partitions

    @property
    def current(self) -> tuple[CurrentRequest, ...]:
        """By target, the words of its current request."""
        return self._parts.current

    @property
    def broker_words(self) -> BrokerWords:
        """The broker words. While `draining` is set, a child that is stopped first finishes its requests."""
        return self._parts.broker_words

    def storage(self) -> StorageReading:
        """Return the published state of the data directory's disk."""
        return self._parts.storage()

    @cached_property
    def channel(self) -> RequestChannel:
        """The grid of rings."""
        words = self.broker_words
        made = (lambda: words.processors_made), (lambda: words.handlers_made)
        return RequestChannel(self.rings.view, self.channel_shape, made=made)

    @cached_property
    def recorder_rings(self) -> RecorderRings:
        """The rings to the recorder, and its requests to the processes."""
        targets, started = self.channel_shape.targets, self.started_processors
        return RecorderRings(self.recorder.view, self.most_processors, targets, started, self._processors_made)

    @cached_property
    def snapshot_segment(self) -> SnapshotSegment:
        """The snapshots of processors and handlers, and the flags of their readers."""
        return SnapshotSegment(self.snapshots.view, self.most_processors, self.most_handlers)

    @cached_property
    def listener_table(self) -> ListenerTable:
        """The current listeners of this run, by index."""
        return ListenerTable(self.snapshot_segment.of_listeners())

    @property
    def fault_words(self) -> FaultWords | None:
        """The words by which tests inject faults; None in a broker that was not started for tests."""
        return None if self.faults is None else FaultWords(self.faults.view, self.channel_shape.targets)

    @property
    def control_listener(self) -> int:
        """Index of the control plane's listener, or -1 if there is none; it stays the same for the whole run."""
        name = self.config.control_plane_listener_name
        return -1 if name is None else list(ListenerNames(self.listener_table)).index(name.upper())

    @cached_property
    def quota_tables(self) -> QuotaTables:
        """Quota usage of clients: the tables of the targets, then those of the processors."""
        owners = self.channel_shape.targets + self.most_processors
        return QuotaTables(self.quotas.view, self.config.quota_window_num, owners)

    @cached_property
    def metrics_pages(self) -> MetricsSegment:
        """The metrics pages, one for each process."""
        return MetricsSegment(self.metrics.view, self.most_processors, self.most_handlers)

    def begin_metrics(self, role: int, index: int, generation: int) -> MetricsWriter:
        """Return the writer of a process's page, reset for the new process."""
        writer = MetricsWriter(self.metrics_pages.page(role, index))
        writer.start(generation, SystemClock.monotonic_ns())
        return writer

    @cached_property
    def client_hosts(self) -> ClientHosts:
        """The addresses of clients, for reading."""
        return ClientHosts(self._client_hosts_view, self.most_processors)

    def client_host_writer(self, processor: int) -> ClientHostWriter:
        """Return the writer of the addresses of a processor's clients."""
        return ClientHostWriter(self._client_hosts_view, processor)

    def live_settings(self) -> LiveSettings:
        """Return a process's own view of the current settings and quotas, for processes without topic metadata."""
        path = metadata_path(self.config.data_dir)
        return LiveSettings(path, self.config, lambda: self.broker_words.metadata_version, SystemClock.monotonic_ns)

    def applied_metadata_version(self) -> int:
        """Return the metadata version that every handler has loaded."""
        return min(self.slots.metadata_version(HANDLER, index) for index in range(self.handlers))

    def mark_ready(self, role: int, index: int, generation: int) -> None:
        """Mark this child as ready, and wake the supervisor. From then on its loop must send heartbeats."""
        self.slots.beat(role, index, SystemClock.monotonic_ns())
        self.slots.mark_ready(role, index, generation)
        self.supervisor_bell.ring()

    def ring_everyone(self) -> None:
        """Ring every bell, so that each process checks the published state of its peers again."""
        for processor_bell in self.processor_bells:
            processor_bell.ring()
        for target_bell in (*self.target_bells, self.recorder_bell):
            target_bell.ring()

    @property
    def _client_hosts_view(self) -> memoryview:
        return self.snapshots.view[SnapshotSegment.bytes_needed(self.most_processors, self.most_handlers) :]

    @cached_property
    def _parts(self) -> ControlSegment:
        most = self.most_processors
        return ControlSegment(self.control.view, most, self.most_handlers, self.config.max_partitions)

    def _processors_made(self) -> int:
        return self.broker_words.processors_made


def close_all(sockets: Iterable[socket], fds: Iterable[int] = ()) -> None:
    """Close this process's copies; closing twice is harmless for sockets and an error for descriptors."""
    for each in sockets:
        each.close()
    for fd in fds:
        os.close(fd)
