"""The processor process from boot to exit: builds the processor from the inherited resources and runs its loop.

The only module of the processor that sees the process context.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.clock import SystemClock
from rotunda.broker.ipc import connection_id
from rotunda.broker.ipc.listener_table import ListenerNames
from rotunda.broker.network.accounting.client_registry import ClientRegistry
from rotunda.broker.network.accounting.completed_requests import CompletedRequests
from rotunda.broker.network.accounting.connection_status_publisher import ConnectionStatusPublisher
from rotunda.broker.network.accounting.network_time import NetworkTime
from rotunda.broker.network.accounting.request_log_sender import RequestLogSender
from rotunda.broker.network.handoff import HandoffReceiver
from rotunda.broker.network.processor.kept_requests import KeptRequests
from rotunda.broker.network.processor.processor import Processor
from rotunda.broker.network.processor.processor_metrics import ProcessorMetrics
from rotunda.broker.network.processor.removed_listeners import RemovedListeners
from rotunda.broker.network.processor.request_reader import RequestReader
from rotunda.broker.network.processor.request_sender import MemoryPool, RequestSender, spill_area
from rotunda.broker.network.processor.response_reader import ResponseReader
from rotunda.broker.network.processor.targets import Targets
from rotunda.broker.network.processor.throttling.retry_storms import RetryStorms
from rotunda.broker.network.processor.tls.certificate_expiry import CertificateExpiry
from rotunda.broker.quotas.quota_manager import QuotaManager
from rotunda.broker.runtime.child_process import FaultLimit, Role
from rotunda.broker.runtime.garbage import GarbageSearch
from rotunda.broker.server_log.log_setup import REPORT_INTERVAL_NS, report_held_back
from rotunda.shm.rings.recorder_rings import RecorderFeed
from rotunda.shm.tables.process_slots import BUSY_BEAT_NS
from rotunda.shm.tables.snapshot_buffer import SnapshotWriter

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.runtime.signals import StopFlag

logger = logging.getLogger(__name__)

#: The first requests get the whole machine; the histograms are first written later than this anyway.
LOAD_NUMPY_AFTER_S = 1.0

#: Share of the whole shutdown time for sending responses in flight.
DRAIN_SHARE = 0.5

#: How long responses to requests other than Produce are awaited. Longer requests run in slices, and change nothing or
#: are safe to repeat.
OTHERS_NS = 400_000_000


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    """Serve connections until the stop signal; then send responses in flight, and close.

    Raises the loop's failure once every iteration fails.
    """
    clock = SystemClock()
    names = ListenerNames(context.listener_table)
    quotas = QuotaManager(context.quota_tables, context.channel_shape.targets + index, context.config, names)
    processor = build(context, index, generation, quotas, clock.monotonic_ns)
    processor.watch(stop.fileno())
    targets = Targets(context, index, processor)
    targets.follow()
    context.mark_ready(Role.PROCESSOR, index, generation)
    # The histograms need numpy but none of the threads that it would start by default.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    processor.finished.is_prepared = False
    loader = threading.Timer(LOAD_NUMPY_AFTER_S, _prepare, [processor.finished])
    loader.daemon = True
    loader.start()
    slots = context.slots
    # Faults of one connection are contained where they occur; these belong to no connection.
    faults = FaultLimit(logger, "the processor loop")
    garbage = GarbageSearch(clock.monotonic_ns)
    beat_ns, report_ns, expiry = 0, 0, CertificateExpiry()
    settings = context.live_settings()
    followers = (
        lambda: quotas.follow(settings.client_quotas, settings.broker_config),
        lambda: processor.tls.follow(settings),
        lambda: processor.authentication.follow(settings),
    )
    settings.apply(*followers)
    removed = RemovedListeners(context.listener_table)
    while not stop.is_set():
        if settings.refresh():
            settings.apply(*followers)
        targets.follow()
        with faults:
            removed.end_connections(processor)
            processor.step()
        garbage.run_once()
        now_ns = clock.monotonic_ns()
        if now_ns < beat_ns:
            continue
        beat_ns = now_ns + BUSY_BEAT_NS
        slots.beat(Role.PROCESSOR, index, now_ns)
        if now_ns >= report_ns:
            report_ns = now_ns + REPORT_INTERVAL_NS
            report_held_back()
            if index == 0:
                expiry.run_once(clock.wall_ms() / 1000, processor.tls.ends_s)
    loader.cancel()
    drain_ns = int(context.config.shutdown_timeout_ms * DRAIN_SHARE) * 1_000_000
    if context.broker_words.draining:
        _drain(processor, clock.monotonic_ns, drain_ns)
    elif index >= context.processors:
        end_ns = clock.monotonic_ns() + drain_ns
        while not _has_left(processor) and (now_ns := clock.monotonic_ns()) < end_ns:
            targets.follow()
            slots.beat(Role.PROCESSOR, index, now_ns)
    processor.close_all()


def _has_left(processor: Processor) -> bool:
    """Drain one step before the exit: each client gets its responses, and notices only its closed connection."""
    processor.drain()
    return processor.close_drained()


def _drain(processor: Processor, now_ns: Callable[[], int], most_ns: int) -> None:
    """Send responses in flight: those to Produce until the deadline, others for `OTHERS_NS`."""
    begin_ns = now_ns()
    waited_ns = 0
    while waited_ns < most_ns and not processor.drain(produce_only=waited_ns >= OTHERS_NS):
        waited_ns = now_ns() - begin_ns


def _prepare(finished: CompletedRequests) -> None:
    """Load numpy for the aggregation of completed requests."""
    importlib.import_module("numpy")
    finished.is_prepared = True


def build(
    context: ProcessContext, index: int, generation: int, quotas: QuotaManager, now_ns: Callable[[], int]
) -> Processor:
    """Return the processor with its ends of the rings, its share of the arena and its metrics page."""
    channel = context.channel
    share, size = context.arena_share, context.slots.arena_bytes(Role.PROCESSOR, index)
    pool = MemoryPool(context.arena.view, index * share, size, context.spill_fds[index], spill_area(index))
    sender = RequestSender(channel, index, context.target_bells, pool, context.coordinators, context.handlers)
    handoff = HandoffReceiver(context.handoff[index][1])
    handoff.hello(generation)
    config = context.config
    kept = KeptRequests(config.pipeline_max_bytes, config.pipeline_max_total_bytes, lambda: context.processors)
    reader = RequestReader(config, sender, kept, now_ns)
    storms = RetryStorms(quotas, now_ns)
    responses = ResponseReader(channel, index, kept, config.output_max_bytes, now_ns, storms)
    responses.delayed.follow(context.fault_words)
    page = context.begin_metrics(Role.PROCESSOR, index, generation)
    ends = (reader, responses, handoff, context.processor_bells[index])

    hosts = context.client_host_writer(index)
    new_id = connection_id.id_allocator(index, generation, hosts.is_used)
    listeners = reader.authentication.listeners = context.listener_table
    clients = ClientRegistry(new_id, listeners, hosts)
    reader.clients = reader.authentication.clients = clients
    rows = RequestLogSender(RecorderFeed(context.recorder_rings, index), clients.texts, context.recorder_bell)
    snapshots = context.snapshot_segment
    writer = SnapshotWriter(snapshots.of_processor(index))
    snapshot = ConnectionStatusPublisher(writer, snapshots.wants, listeners, now_ns)
    metrics, network_time = ProcessorMetrics(page, now_ns(), snapshot), NetworkTime(quotas, now_ns)
    counts = metrics, CompletedRequests(clients, rows), network_time
    processor = Processor(config, ends, new_id, counts, now_ns)
    processor.tls.clients, processor.tls.listeners = clients, listeners
    processor.sessions.listeners = listeners
    return processor
