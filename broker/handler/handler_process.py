"""A handler or controller process from boot to exit: opens partitions, recovers a predecessor's state, runs the loop.

The target after the last possible handler is the controller. It runs the same loop and is also the only writer of the
metadata.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rotunda.broker.clock import SystemClock
from rotunda.broker.config.control_plane import control_processors, processors_of
from rotunda.broker.coordinator.group_lags import GroupLags
from rotunda.broker.coordinator.group_status_publisher import GroupStatusPublisher
from rotunda.broker.errors import ApiError
from rotunda.broker.handler.request_handler import ALL_FAST_PATHS, FastPathSettings, RequestHandler
from rotunda.broker.handler.screening import Screening
from rotunda.broker.ipc.missing_memory import missing_bytes
from rotunda.broker.ipc.poison_requests import PoisonRequests
from rotunda.broker.ipc.request import MemoryAreas
from rotunda.broker.ipc.response_writer import ResponseWriter
from rotunda.broker.log.log_manager import orphan_directories
from rotunda.broker.metadata.active_controller import ActiveController
from rotunda.broker.metadata.configs.request_log_settings import store_settings
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.thread_counts import Room
from rotunda.broker.partitions.lag_age import LagAges
from rotunda.broker.partitions.note_rollback import clear_uncommitted_notes
from rotunda.broker.partitions.partition_manager import PartitionManager
from rotunda.broker.partitions.storage.storage_reserve import StorageReserve
from rotunda.broker.partitions.storage.storage_watch import StorageWatch
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.runtime.child_process import FaultLimit, Role
from rotunda.broker.runtime.garbage import GarbageSearch, paused_search
from rotunda.broker.server_log.log_setup import report_held_back
from rotunda.broker.telemetry.status import describe_instances
from rotunda.broker.text_table import counted
from rotunda.shm.storage import StorageState
from rotunda.shm.tables.snapshot_buffer import SnapshotWriter

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.runtime.signals import StopFlag
    from rotunda.shm.metrics.process_metrics import MetricsWriter
    from rotunda.shm.rings.bell import EventBell, SemaphoreBell

logger = logging.getLogger(__name__)


#: Maximum age of the metrics page while the target is awake.
INTERVAL_NS = 500_000_000


class HandlerMetrics:
    """Copies the loop's counters to the metrics page. The counters of a predecessor continue."""

    def __init__(
        self, page: MetricsWriter, handler: RequestHandler, now_ns: int, also: Sequence[Callable[[int], None]] = ()
    ) -> None:
        """Accept further publishers, called at the same interval with the monotonic time."""
        self._page = page
        self._handler = handler
        self._also = also
        self._started_ns = now_ns
        self._published_ns = now_ns
        self._idle_ns = 0
        self._stored: dict[str, int] = {}

    def slept(self, ns: int) -> None:
        """Record time asleep on the bell (``E01``)."""
        self._idle_ns += ns

    def due(self, now_ns: int) -> bool:
        """Return whether the page is old enough to be written again."""
        return now_ns - self._published_ns >= INTERVAL_NS

    def publish(self, now_ns: int) -> None:
        """Store all counters and gauges on the page, and run the further publishers."""
        self._published_ns = now_ns
        times = {"idle_ns": self._idle_ns, "busy_ns": max(0, now_ns - self._started_ns - self._idle_ns)}
        for name, value in {**self._handler.counters(), **times}.items():
            # A counter never decreases, even if the clock does.
            growth = value - self._stored.get(name, 0)
            if growth > 0:
                self._page.add(self._page.index(name), growth)
                self._stored[name] = value
        for name, value in self._handler.gauges().items():
            self._page.set(self._page.index(name), value)
        for publish in self._also:
            publish(now_ns)


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    """Serve requests until stopped; then commit, flush and close every log."""
    role, place = (Role.HANDLER, index) if index < context.handlers else (Role.CONTROLLER, 0)
    clock = SystemClock()
    poison = PoisonRequests(context, index, generation)
    handler = boot(context, index, generation, clock, poison)
    page = context.begin_metrics(role, place, generation)
    metrics = HandlerMetrics(page, handler, clock.monotonic_ns(), _group_publishers(context, handler))
    context.mark_ready(role, place, generation)
    controller = handler.broker.controller
    if controller is not None:
        stop.obey(signal.SIGHUP, controller.reload_request.ask)
    _serve(handler, context, (role, place), metrics, stop)
    handler.finish()
    # Partitions that move to another owner are reopened immediately and need no flush to disk.
    moves = bool(context.broker_words.hold & 1)
    handler.broker.partitions.log_manager.close(clean=not moves, moves=moves)
    if controller is not None:
        controller.controller.close()


def _group_publishers(context: ProcessContext, handler: RequestHandler) -> list[Callable[[int], None]]:
    """Return the publishers of this handler's groups, for readers and the request log; none for the controller."""
    broker = handler.broker
    index, clock, table = broker.partitions.index, broker.clock, broker.partitions.table
    if index == context.controller:
        return []
    # Each instance discards ages that its own caller no longer uses, so the two cannot share one.
    snapshot_times, lag_times = (LagAges(context.config.data_dir, table, clock.wall_ms) for _ in range(2))
    snapshots, coordinators = context.snapshot_segment, broker.coordinators
    writer = SnapshotWriter(snapshots.of_handler(index)), snapshots.wants
    begin, now_ns = handler.slices.begin_own, clock.monotonic_ns
    ends = writer, snapshot_times, begin, now_ns
    telemetry = broker.telemetry
    if telemetry is None:
        snapshot = GroupStatusPublisher(coordinators, broker.partitions, *ends)
    else:
        clients = partial(describe_instances, telemetry.instances)
        snapshot = GroupStatusPublisher(coordinators, broker.partitions, *ends, clients)
    lags = GroupLags(
        coordinators.groups,
        broker.metadata,
        table,
        coordinators.group_feed,
        lag_times,
        clock,
        coordinators.share_states,
    )
    return [snapshot.run_once, lags.run_once, *([] if telemetry is None else [telemetry.drop_ended])]


def boot(
    context: ProcessContext,
    index: int,
    generation: int,
    clock: Clock,
    poison: PoisonRequests,
    fast_paths: FastPathSettings = ALL_FAST_PATHS,
) -> RequestHandler:
    """Return the request loop of a target, its partitions open and a predecessor's uncommitted notes undone."""
    metadata = MetadataCache(metadata_path(context.config.data_dir), context.handlers, context.config)
    partitions = PartitionManager(context, index, metadata, clock)
    controller = None
    if index == context.controller:
        controller = _open_controller(context, metadata, clock)
        controller.announce()
        _warn_of_orphans(context, metadata)
    else:
        # Reset before the first load: the stored version is the predecessor's, not this process's.
        context.slots.set_metadata_version(Role.HANDLER, index, 0)
        # Later generations open logs that a predecessor was serving, or new ones, so only the first can trust a clean
        # start.
        partitions.log_manager.is_clean_start = context.is_clean_start and generation == 1
        with paused_search():
            partitions.load_metadata()
        partitions.log_manager.is_clean_start = False
        partitions.publish_taken_over()
        # Clear the flags of the predecessor's parked fetches, and of handlers that no longer exist.
        removed = range(context.handlers, context.broker_words.handlers_made) if index == 0 else ()
        for row in partitions.rows():
            for waiter in (index, *removed):
                context.partitions.set_waiting(row, waiter, False)
    areas = MemoryAreas(context)
    cleared = clear_uncommitted_notes(partitions, context.channel, areas, poison)
    if cleared:
        logger.info("removed the notes of %s", counted(cleared, "uncommitted batch"))
    responses = _response_writer(context, index)
    handler = RequestHandler(context, partitions, controller, responses, areas, poison, fast_paths)
    if context.fault_words is not None:
        from rotunda.broker.faults.fault_table import FaultTable  # noqa: PLC0415 - only a broker for tests has faults
        from rotunda.broker.handler.fault_injection import FaultInjection  # noqa: PLC0415

        FaultInjection(handler, FaultTable(context.fault_words, index, context.run_dir), responses, partitions)
    Screening(handler, poison, responses, context, index)
    return handler


def _response_writer(context: ProcessContext, index: int) -> ResponseWriter:
    ends = context.channel, index, context.processor_bells, context.run_dir, context.slots.processor_has_ended
    if context.fault_words is None:
        return ResponseWriter(*ends)
    from rotunda.broker.faults.faulty_responses import FaultyResponses  # noqa: PLC0415 - only a broker for tests has faults

    return FaultyResponses(*ends)


def _warn_of_orphans(context: ProcessContext, metadata: MetadataCache) -> None:
    known = {
        f"{topic.name}-{partition.index}": topic.topic_id
        for topic in metadata.topics()
        for partition in topic.partitions
    }
    for directory in orphan_directories(context.config.data_dir, known):
        logger.warning(
            "%s belongs to no known topic and is ignored. Move it away if its records are not needed",
            directory,
        )


def _open_controller(context: ProcessContext, metadata: MetadataCache, clock: Clock) -> ActiveController:
    """Make this process the controller, and start watching the storage."""
    config, broker_words = context.config, context.broker_words
    reserve = StorageReserve(config.data_dir)

    def before_change() -> None:
        if watch.state == StorageState.GONE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, context.storage().rejection)
        reserve.make_room()

    def store_settings_in_force() -> None:
        has_room = broker_words.storage_state < StorageState.NO_REQUEST_LOG
        wanted = processors_of(metadata.broker_config)
        store_settings(context.recorder_rings, metadata.broker_config, wanted, has_room=has_room)
        handlers = metadata.broker_config.num_io_threads
        if (broker_words.wanted_processors, broker_words.wanted_handlers) != (wanted, handlers):
            broker_words.set_wanted_processors(wanted)
            broker_words.set_wanted_handlers(handlers)
            context.supervisor_bell.ring()

    watch = StorageWatch(context, lambda: metadata.broker_config, reserve, clock, store_settings_in_force)
    controller = Controller.open(
        metadata,
        context.partitions,
        config,
        context.applied_metadata_version,
        context.coordinators,
        before_change,
        Room(
            context.most_processors - control_processors(config), context.most_handlers, partial(missing_bytes, context)
        ),
    )
    bells: list[EventBell | SemaphoreBell] = [*context.target_bells, context.recorder_bell, context.supervisor_bell]
    active = ActiveController(controller, metadata, config, broker_words, bells, store_settings_in_force, watch.tick)
    watch.look()
    return active


def _serve(
    handler: RequestHandler,
    context: ProcessContext,
    place: tuple[Role, int],
    metrics: HandlerMetrics,
    stop: StopFlag,
) -> None:
    clock_ns = SystemClock().monotonic_ns
    bell = context.target_bells[place[1] if place[0] is Role.HANDLER else context.controller]
    slots = context.slots
    # Faults of one request are contained where they occur; these faults cannot be attributed to a request.
    faults = FaultLimit(logger, "the request loop")
    turns = handler.turns
    garbage = GarbageSearch(clock_ns)
    now_ns = clock_ns()
    while not stop.is_set():
        turns.begin(now_ns)
        with faults:
            handler.run_once()
        garbage.run_once()
        now_ns = clock_ns()
        turns.end(now_ns)
        # Before sleeping, check once more for anything rung since the last `bell.take`.
        pause_s = faults.pause_s
        if pause_s or not (handler.has_more or bell.take()):
            bell.wait(pause_s or handler.wait_ms() / 1000)
            woken_ns = clock_ns()
            metrics.slept(woken_ns - now_ns)
            now_ns = woken_ns
        if metrics.due(now_ns):
            metrics.publish(now_ns)
            slots.beat(*place, now_ns)
            report_held_back()
