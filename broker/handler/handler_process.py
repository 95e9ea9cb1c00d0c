"""A handler process, or the controller, from boot to exit: opens what it owns, takes over, turns the request loop.

The only module of the server side that builds things from the heritage. With index M it is the controller: the same
loop with the one writer of the metadata in its state.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.apis.table import advertised
from broker.clock import SystemClock
from broker.coordinator.group_lags import GroupLags
from broker.coordinator.group_snapshot import GroupSnapshot
from broker.errors import ApiError
from broker.handler.broker_state import BrokerState
from broker.handler.handler_metrics import HandlerMetrics
from broker.handler.request_handler import RequestHandler
from broker.ipc.memory_areas import MemoryAreas
from broker.ipc.poison_requests import PoisonRequests
from broker.log.log_manager import orphan_directories
from broker.metadata.controller import Controller
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_file import metadata_path
from broker.partitions.failover import take_back_uncommitted_notes
from broker.partitions.lag_age import UnreadTimes
from broker.partitions.storage.storage_reserve import StorageReserve
from broker.partitions.storage.storage_watch import StorageWatch
from broker.protocol.error_codes import ErrorCode
from broker.runtime.child_process import FaultLimit, Role
from broker.runtime.garbage import GarbageSearch
from broker.server_log.log_setup import report_held_back
from shm.metrics import MetricsSegment, MetricsWriter
from shm.snapshot_buffer import SnapshotWriter
from shm.storage import StorageState

if TYPE_CHECKING:
    from broker.ipc.process_context import Heritage
    from broker.runtime.signals import StopFlag

logger = logging.getLogger(__name__)


def run(heritage: Heritage, index: int, generation: int, stop: StopFlag) -> None:
    """Answer requests until told to stop; then commit, flush and close every log."""
    role, place = (Role.HANDLER, index) if index < heritage.handlers else (Role.CONTROLLER, 0)
    clock = SystemClock()
    poison = PoisonRequests(heritage, index, generation)
    state = _boot(heritage, index, clock)
    areas = MemoryAreas(heritage)
    taken_back = take_back_uncommitted_notes(state, heritage.channel, areas, poison)
    if taken_back:
        logger.info("took back the notes of %d uncommitted batches", taken_back)
    handler = RequestHandler(state, generation, heritage.channel, areas, poison, clock.monotonic_ns)
    pages = MetricsSegment(heritage.metrics.view, heritage.processors, heritage.handlers)
    page = MetricsWriter(pages.page(role, place))
    page.start(generation, clock.monotonic_ns())
    metrics = HandlerMetrics(page, handler, clock.monotonic_ns(), _told_of_groups(heritage, handler, state))
    heritage.mark_ready(role, place, generation)
    if role is Role.CONTROLLER:
        stop.obey(signal.SIGHUP, state.reload_request.ask)
    _serve(handler, heritage, (role, place), metrics, stop)
    handler.finish()
    state.log_manager.close(clean=True)
    if state.controller is not None:
        state.controller.close()


def _told_of_groups(heritage: Heritage, handler: RequestHandler, state: BrokerState) -> list[Callable[[int], None]]:
    """Return what tells readers, and the request log, of this handler's groups; the controller has none."""
    index = state.index
    if index == heritage.handlers:
        return []
    # Each forgets what it had no use for, so each has its own.
    snapshot_times, lag_times = (
        UnreadTimes(heritage.config.data_dir, heritage.partitions, state.clock.wall_ms) for _ in range(2)
    )
    snapshots, now_ns = heritage.snapshot_segment, state.clock.monotonic_ns
    writer = SnapshotWriter(snapshots.of_handler(index))
    snapshot = GroupSnapshot(state, writer, snapshots.wants, snapshot_times, handler.begin, now_ns)
    lags = GroupLags(state, state.coordinators.group_feed, lag_times, now_ns)
    return [snapshot.turn, lags.turn]


def _boot(heritage: Heritage, index: int, clock: SystemClock) -> BrokerState:
    metadata = MetadataCache(metadata_path(heritage.config.data_dir), heritage.handlers, heritage.config)
    state = BrokerState(heritage, index, metadata, clock)
    state.apis = advertised()
    if index == heritage.handlers:
        _open_controller(state, heritage, clock)
        state.announce_metadata()
        known = {
            f"{topic.name}-{partition.index}": topic.topic_id
            for topic in metadata.topics()
            for partition in topic.partitions
        }
        for directory in orphan_directories(heritage.config.data_dir, known):
            logger.warning(
                "%s belongs to no topic that is known; it is left alone. Move it away if its records are not needed",
                directory,
            )
    else:
        # Before it looks: what a predecessor has taken over says nothing of this process.
        heritage.slots.set_metadata_version(Role.HANDLER, index, 0)
        state.load_metadata()
        state.publish_taken_over()
        for row in state.rows():
            # A predecessor's flags speak of fetches that died with it.
            heritage.partitions.set_waiting(row, index, False)
    return state


def _open_controller(state: BrokerState, heritage: Heritage, clock: SystemClock) -> None:
    """Make this process the controller, and have it look after the disk from the start."""
    reserve = StorageReserve(heritage.config.data_dir)

    def before_change() -> None:
        if watch.state == StorageState.GONE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, heritage.storage().refusal)
        reserve.make_room()

    metadata = state.metadata
    watch = StorageWatch(heritage, lambda: metadata.broker_config, reserve, clock, state.store_request_log_settings)
    state.storage_watch = watch
    partitions, coordinators = heritage.partitions, heritage.coordinators
    state.controller = Controller.open(
        metadata, partitions, heritage.config, heritage.taken_over, coordinators, before_change
    )
    watch.look()


def _serve(
    handler: RequestHandler,
    heritage: Heritage,
    place: tuple[Role, int],
    metrics: HandlerMetrics,
    stop: StopFlag,
) -> None:
    clock_ns = SystemClock().monotonic_ns
    bell = heritage.target_bells[place[1] if place[0] is Role.HANDLER else heritage.handlers]
    slots = heritage.slots
    # Faults of one request are contained where they arise; these have no request to blame.
    faults = FaultLimit(logger, "the request loop")
    turns = handler.turns
    garbage = GarbageSearch(clock_ns)
    now_ns = clock_ns()
    while not stop.is_set():
        # A turn that meets a fault has left something undone that no bell rings for.
        worked = True
        turns.begin(now_ns)
        with faults:
            worked = handler.turn()
        garbage.turn()
        now_ns = clock_ns()
        turns.end(now_ns)
        if not worked or faults.pause_s:
            bell.wait(faults.pause_s or handler.wait_ms() / 1000)
            woken_ns = clock_ns()
            metrics.slept(woken_ns - now_ns)
            now_ns = woken_ns
        if metrics.due(now_ns):
            metrics.publish(now_ns)
            slots.beat(*place, now_ns)
            report_held_back()
