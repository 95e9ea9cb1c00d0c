"""Creates and frees the shared resources inherited by children: segments, rings, bells, socket pairs, spill files.

Runs in the supervisor only, before the first fork and after the last child. Every resource has a name on the machine or
a descriptor, both removed by `release`; those left by a killed broker are removed by the next one.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import posix_ipc

from rotunda.broker.config.arena import arena_bytes, free_shared_memory_bytes
from rotunda.broker.config.control_plane import processors_of
from rotunda.broker.ipc.listener_table import publish_listeners
from rotunda.broker.ipc.process_context import BoundListener, ProcessContext, close_all
from rotunda.broker.ipc.request_channel import ChannelShape, RequestChannel
from rotunda.broker.metadata.configs.request_log_settings import store_settings
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import partition_counts
from rotunda.broker.metadata.thread_counts import configured_at_start, most_handlers, most_processors
from rotunda.broker.protocol.routing import INTERNAL_TOPICS, CoordinatorPartitions
from rotunda.broker.supervisor.process_limits import check_address_space
from rotunda.broker.supervisor.process_memory import ProcessMemory
from rotunda.shm.control import ControlSegment
from rotunda.shm.faults import FaultWords
from rotunda.shm.metrics.process_metrics import MetricsSegment
from rotunda.shm.rings.arena import BLOCK_BYTES
from rotunda.shm.rings.bell import EventBell, SemaphoreBell
from rotunda.shm.rings.recorder_rings import RecorderRings
from rotunda.shm.segment import Segment, SharedMemoryTooSmall, create, remove_stale
from rotunda.shm.tables import client_hosts
from rotunda.shm.tables.process_slots import PROCESSOR
from rotunda.shm.tables.quota_tables import QuotaTables
from rotunda.shm.tables.recent_requests import BYTES_NEEDED as RECENT_BYTES
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.server_log.log_file import LogOutput

#: Room in a hand-off pair for waiting reports; the system's limit caps it.
_PAIR_BUFFER_BYTES = 1 << 20


def make(
    config: BrokerConfig,
    instance: str,
    run_dir: Path,
    cluster_id: str,
    log_output: LogOutput,
    listeners: list[BoundListener],
    status_socket: socket.socket | None = None,
) -> ProcessContext:
    """Return a complete context. Raises SharedMemoryTooSmall or BootFailed, after freeing all resources."""
    remove_stale()
    in_force = configured_at_start(config)
    started = processors_of(in_force), in_force.num_io_threads
    processors = most_processors(started[0])
    handlers = most_handlers(started[1])
    shape = ChannelShape.fitting(started[0], started[1] + 1, config.request_ring_bytes, (processors, handlers + 1))
    memory = ProcessMemory(shape, started)
    with ExitStack() as undo:
        segments = _segments(config, instance, memory, undo)
        context = ProcessContext(
            config=config,
            instance=instance,
            supervisor_pid=os.getpid(),
            run_dir=run_dir,
            cluster_id=cluster_id,
            log_output=log_output,
            control=segments["control"],
            rings=segments["rings"],
            channel_shape=shape,
            started_processors=started[0],
            started_handlers=started[1],
            arena=segments["arena"],
            metrics=segments["metrics"],
            recorder=segments["recorder"],
            listeners=listeners,
            listener_orders=_handoff_pair(),
            handoff=tuple(_handoff_pair() for _ in range(processors)),
            processor_bells=tuple(EventBell() for _ in range(processors)),
            target_bells=tuple(_semaphore_bell(instance, str(target)) for target in range(shape.peers)),
            spill_fds=tuple(_spill_fd(number, config.socket_request_max_bytes) for number in range(processors)),
            supervisor_bell=EventBell(),
            recorder_bell=_semaphore_bell(instance, "recorder"),
            coordinators=_coordinator_partitions(config),
            recent=segments["recent"],
            snapshots=segments["snapshots"],
            quotas=segments["quotas"],
            status_socket=status_socket,
            faults=segments.get("faults"),
        )
        undo.pop_all()
    for processor in range(started[0]):
        context.slots.set_arena_bytes(PROCESSOR, processor, context.arena_share)
    publish_listeners(context.snapshot_segment.of_listeners(), [each.entry for each in listeners], 0)
    return context


def _coordinator_partitions(config: BrokerConfig) -> CoordinatorPartitions:
    """Return the partition counts of the internal topics, existing or to be created."""
    found = partition_counts(metadata_path(config.data_dir), INTERNAL_TOPICS)
    new = (
        config.offsets_topic_num_partitions,
        config.transaction_state_log_num_partitions,
        config.share_coordinator_state_topic_num_partitions,
    )
    return CoordinatorPartitions(*map(found.get, INTERNAL_TOPICS, new))


def release(context: ProcessContext) -> None:
    """Unlink every name and close every descriptor. Children must have ended; call it once only."""
    made = (context.control, context.rings, context.arena, context.metrics)
    faults = () if context.faults is None else (context.faults,)
    for segment in (*made, context.recorder, context.recent, context.snapshots, context.quotas, *faults):
        segment.unlink()
    close_all((*(listener.socket for listener in context.listeners), *context.listener_orders))
    if context.status_socket is not None:
        context.status_socket.close()
    close_all(end for pair in context.handoff for end in pair)
    for event_bell in (*context.processor_bells, context.supervisor_bell):
        event_bell.close()
    for target_bell in (*context.target_bells, context.recorder_bell):
        target_bell.close()
    close_all((), context.spill_fds)


def _segments(config: BrokerConfig, instance: str, memory: ProcessMemory, undo: ExitStack) -> dict[str, Segment]:
    """Create the segments; `undo` gets the callbacks that remove them."""
    shape, (started, started_handlers) = memory.shape, memory.started
    processors, handlers = shape.processors, shape.targets - 1

    def initialise_control(view: memoryview) -> None:
        control = ControlSegment(view, processors, handlers, config.max_partitions)
        control.slots.initialise()
        control.broker_words.set_processors_made(started)
        control.broker_words.set_processors(started)
        control.broker_words.set_handlers_made(started_handlers)
        control.broker_words.set_handlers(started_handlers)

    def initialise_rings(view: memoryview) -> None:
        RequestChannel(view, shape, made=(lambda: started, lambda: started_handlers)).initialise()

    def initialise_recorder(view: memoryview) -> None:
        rings = RecorderRings(view, processors, shape.targets, started, lambda: started)
        rings.initialise()
        # Stored here, so that the first request is recorded however late the recorder starts.
        store_settings(rings, config, started)

    wanted = {
        "control": (
            ControlSegment.bytes_needed(processors, handlers, config.max_partitions),
            initialise_control,
        ),
        "rings": (shape.bytes_needed, initialise_rings),
        "metrics": (
            MetricsSegment.bytes_needed(processors, handlers),
            lambda view: MetricsSegment(view, processors, handlers).initialise(started),
        ),
        "recent": (RECENT_BYTES, None),
        "snapshots": (SnapshotSegment.bytes_needed(processors, handlers) + client_hosts.bytes_needed(processors), None),
        "quotas": (
            QuotaTables.bytes_needed(config.quota_window_num, processors + shape.targets),
            lambda view: QuotaTables.initialise(view, config.quota_window_num, config.quota_window_size_seconds * 1000),
        ),
        "recorder": (RecorderRings.bytes_needed(processors, shape.targets, started), initialise_recorder),
    }
    if config.injects_faults:
        wanted["faults"] = FaultWords.bytes_needed(shape.targets), None
    share_bytes = _arena_share(
        config.queued_max_request_bytes, memory, [size_bytes for size_bytes, _ in wanted.values()]
    )
    wanted["arena"] = (processors * share_bytes, None)
    check_address_space(sum(size_bytes for size_bytes, _ in wanted.values()))
    segments = {}
    for purpose, (size_bytes, initialise) in wanted.items():
        holes = [(started * share_bytes, (processors - started) * share_bytes)]
        if purpose != "arena":
            holes = memory.later(purpose)
        segments[purpose] = create(f"/rotunda-{instance}-{purpose}", size_bytes, initialise, holes)
        undo.callback(segments[purpose].unlink)
    return segments


def _arena_share(wanted_bytes: int, memory: ProcessMemory, others: list[int]) -> int:
    """Return each processor's share of the arena, in addition to segments of these sizes.

    Raises SharedMemoryTooSmall if all of it together does not fit.
    """
    page, (started, _) = resource.getpagesize(), memory.started
    # Each segment, the arena too, has a header and occupies whole pages, and so do the bells of peers and recorder.
    pages = 2 * len(others) + 2 + memory.shape.peers + 1
    others_bytes = sum(others) + pages * page - memory.later_bytes
    share_bytes = max(1, arena_bytes(wanted_bytes, others_bytes) // started // BLOCK_BYTES) * BLOCK_BYTES
    needed_bytes, free_bytes = others_bytes + started * share_bytes, free_shared_memory_bytes()
    if needed_bytes > free_bytes:
        raise SharedMemoryTooSmall("of this broker", needed_bytes, free_bytes)
    return share_bytes


def _handoff_pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PAIR_BUFFER_BYTES)
    return pair


def _semaphore_bell(instance: str, owner: str) -> SemaphoreBell:
    """Return a bell with an unlinked name: processes inherit it, and nothing can be left over."""
    name = f"/rotunda-{instance}-bell{owner}"
    try:
        semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600)
    except OSError as failure:
        if failure.errno != errno.ENOSPC:
            raise
        raise SharedMemoryTooSmall(name, resource.getpagesize(), free_shared_memory_bytes()) from None
    semaphore.unlink()
    return SemaphoreBell(semaphore)


def _spill_fd(processor: int, size_bytes: int) -> int:
    """Return a memory file as large as the largest request; it uses no memory until it is written to."""
    fd = os.memfd_create(f"rotunda-spill{processor}", os.MFD_CLOEXEC)
    os.ftruncate(fd, size_bytes)
    return fd
