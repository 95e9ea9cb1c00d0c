"""The recorder process from boot to exit: it sleeps on its bell and runs when a source has sent something.

The only module of the recorder that uses the process context. It has no client and no reader waits for it; frames that
arrive during its replacement wait in the rings. Modules for reading rows are imported with the first rows, so that an
unused broker stays small.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.clock import SystemClock
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.release import installed_version
from rotunda.broker.request_log.history.events import EventSources, EventWatch
from rotunda.broker.request_log.history.hour_files import remove_earlier
from rotunda.broker.request_log.history.minutes import History, HistorySources
from rotunda.broker.request_log.loss_accounting import Ledger
from rotunda.broker.request_log.part_files import DIRECTORY, RUNNING, apply_retention, remove_unfinished
from rotunda.broker.request_log.role_rows import RoleRows, RoleSources
from rotunda.broker.runtime.child_process import FaultLimit, Retired, Role
from rotunda.broker.text_table import counted
from rotunda.shm.metrics.process_metrics import MetricsWriter
from rotunda.shm.rings.ring_fill import RingGrid, RingShare
from rotunda.shm.storage import StorageState
from rotunda.shm.tables.process_slots import BEAT_S
from rotunda.shm.tables.recent_requests import RecentWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.request_log.recorder import Recorder
    from rotunda.broker.runtime.signals import StopFlag

logger = logging.getLogger(__name__)

#: The other processes have priority; but the recorder must keep up with them.
NICENESS = 5

#: Interval of retention while nothing arrives.
RETENTION_NS = 600_000_000_000

#: A recorder idle for this long exits, so that its replacement starts without the loaded modules.
RETIRE_AFTER_NS = 30_000_000_000

#: Pause after a fault.
FAULT_PAUSE_S = 1.0


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:  # noqa: ARG001
    """Record requests until asked to stop; then write the buffered rows."""
    os.nice(NICENESS)
    root = context.config.data_dir / DIRECTORY
    if not _make(root, context, stop):
        return
    _remove_rests(root)
    page = context.begin_metrics(Role.RECORDER, 0, generation)
    made = _made(context)
    context.mark_ready(Role.RECORDER, 0, generation)
    clock = SystemClock()
    roles = RoleRows(_role_sources(context), context.recorder_rings, clock.monotonic_ns())
    began_us, was_killed = clock.wall_ms() * 1000, (root / RUNNING).exists()
    history = _history(context, generation, roles, began_us, was_killed=was_killed)
    if not was_killed:
        _await_first(context, root, stop, lambda: _notice(context, history, roles))
        if _made(context) != made and not has_work(context):
            raise Retired
        if stop.is_set() and not has_work(context):
            return
    recorder = build(context, generation, root)
    if generation == 1:
        _add_start(history, context, began_us, was_killed=was_killed)
    recorder.record_roles(roles)
    recorder.record_history(history)
    recorder.is_prepared = False
    threading.Thread(target=_prepare, args=(recorder, context), daemon=True).start()
    _serve(recorder, context, page, stop, made)
    if context.broker_words.draining:
        history.add_event(clock.wall_ms() * 1000, "broker_stop", "stopped")
    recorder.finish()
    (root / RUNNING).unlink(missing_ok=True)
    if not stop.is_set():
        raise Retired


def _notice(context: ProcessContext, history: History, roles: RoleRows) -> bool:
    """Return whether there is something to record. Events of a full disk are kept until there is space again."""
    clock, settings = SystemClock(), context.recorder_rings.settings()
    now_us = clock.wall_ms() * 1000
    # Read before the state of the disk, which is published before recording stops.
    enabled = settings.enabled
    if context.storage().state >= StorageState.NO_REQUEST_LOG:
        history.discard(now_us, keeps_events=True)
        return False
    if not (enabled and settings.retention.history_age_ms):
        history.discard(now_us)
        return enabled and roles.notice(clock.monotonic_ns())
    return roles.notice(clock.monotonic_ns()) or history.notice(now_us)


def _remove_rests(root: Path) -> None:
    """Remove the files that a killed recorder has left."""
    remove_unfinished(root)
    if (root / RUNNING).exists():
        remove_earlier(root)


def _role_sources(context: ProcessContext) -> RoleSources:
    """Return the sources of each process's row: its slot, its page and the rings that it reads."""
    made, handlers, recorder = context.broker_words.processors_made, range(context.handlers), context.recorder_rings
    processors = range(made)
    grid = RingGrid(context.rings.view, context.most_processors, context.most_handlers)
    targets = {**{t: (Role.HANDLER.label, t) for t in handlers}, context.controller: (Role.CONTROLLER.label, 0)}
    rings = {place: [grid.share_of_requests(p, t) for p in processors] for t, place in targets.items()}
    for p in processors:
        rings[Role.PROCESSOR.label, p] = [grid.share_of_responses(p, t) for t in targets]
    rings[Role.RECORDER.label, 0] = [RingShare(recorder.view, base) for base in recorder.ring_bases().values()]
    return RoleSources(context.slots, context.metrics_pages.readers_by_process(made, context.handlers), rings)


def _history(context: ProcessContext, generation: int, roles: RoleRows, began_us: int, *, was_killed: bool) -> History:
    """Return the history, which begins with the start of the broker if this is its first recorder."""
    pages = context.metrics_pages.readers_by_process(*_made(context))
    watch = EventWatch(
        EventSources(
            context.slots,
            pages[Role.PROCESSOR.label, 0],
            context.storage,
            context.listener_table,
            metadata_path(context.config.data_dir),
            lambda: context.broker_words.metadata_version,
        ),
        replaces_killed=generation > 1 and was_killed,
    )
    sources = HistorySources(pages, context.slots, context.partitions, roles.peaks, context.config.data_dir)
    return History(sources, watch, began_us, is_first=generation == 1)


def _add_start(history: History, context: ProcessContext, began_us: int, *, was_killed: bool) -> None:
    before = "the broker before was killed" if was_killed else "clean start"
    processes = f"{counted(context.processors, 'processor')}, {counted(context.handlers, 'handler')}"
    text = f"Rotunda {installed_version()}, {processes}; {before}"
    history.add_event(began_us, "broker_start", text, is_quiet=not was_killed)


def _made(context: ProcessContext) -> tuple[int, int]:
    """Return the facts that a recorder reads once: the number of processors, and of handlers."""
    return context.broker_words.processors_made, context.handlers


def _make(root: Path, context: ProcessContext, stop: StopFlag) -> bool:
    """Make the directory, retrying until it succeeds; return False if asked to stop before.

    The disk may be full, and a removed data directory is not made again.
    """
    warned = False
    while not stop.is_set():
        try:
            root.mkdir(exist_ok=True)
        except OSError as error:
            if not warned:
                logger.warning("recording nothing: cannot create the directory of the request log: %s", error)
                context.mark_ready(Role.RECORDER, 0, context.slots.generation(Role.RECORDER, 0))
            warned = True
            context.slots.beat(Role.RECORDER, 0, SystemClock.monotonic_ns())
            context.recorder_bell.wait(FAULT_PAUSE_S)
        else:
            return True
    return False


def _prepare(recorder: Recorder, context: ProcessContext) -> None:
    """Import the modules for writing files, while rows are already being read."""
    importlib.import_module("rotunda.broker.request_log.tables")
    recorder.is_prepared = True
    context.recorder_bell.ring()


def has_work(context: ProcessContext) -> bool:
    """Return whether a ring has frames, or a source has lost rows before they reached one."""
    rings = context.recorder_rings
    return any(rings.consumer(source).pending() for source in rings.ring_sources()) or bool(Ledger(rings).losses())


def _await_first(context: ProcessContext, root: Path, stop: StopFlag, notice: Callable[[], bool]) -> None:
    """Sleep until a source has sent something, `notice` is true or a stop is requested; apply retention meanwhile."""
    settings, clock, made = context.recorder_rings.settings(), SystemClock(), _made(context)
    due_ns = 0
    while not (stop.is_set() or has_work(context) or notice()):
        if _made(context) != made:
            return
        now_ns = clock.monotonic_ns()
        context.slots.beat(Role.RECORDER, 0, now_ns)
        if now_ns >= due_ns:
            due_ns = now_ns + RETENTION_NS
            apply_retention(root, clock.wall_ms() / 1000, settings.retention)
        context.recorder_bell.wait(BEAT_S)


def build(context: ProcessContext, generation: int, root: Path) -> Recorder:
    """Return the recorder; its predecessors' losses are queued to be recorded."""
    # numpy starts threads for itself unless the environment forbids it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rotunda.broker.metadata.metadata_cache import MetadataCache  # noqa: PLC0415
    from rotunda.broker.request_log.recorder import Recorder  # noqa: PLC0415

    metadata = MetadataCache(metadata_path(context.config.data_dir), context.handlers, context.config)
    name = f"{context.instance}-{generation}"
    recorder = Recorder(context.recorder_rings, root, name, metadata, SystemClock(), replaces=generation > 1)
    recorder.publish_recent(RecentWriter(context.recent.view))
    if generation == 1 and (root / RUNNING).exists():
        recorder.broker_was_killed()
    (root / RUNNING).touch()
    return recorder


def _serve(
    recorder: Recorder, context: ProcessContext, page: MetricsWriter, stop: StopFlag, made: tuple[int, int]
) -> None:
    """Record until asked to stop, or to be replaced: when idle for long, or because there are more processors."""
    faults = FaultLimit(logger, "the recorder's loop")
    stored = recorder.counts()
    idle_since_ns = SystemClock.monotonic_ns()
    while not stop.is_set() and _made(context) == made:
        now_ns = SystemClock.monotonic_ns()
        if recorder.is_busy:
            idle_since_ns = now_ns
        elif now_ns - idle_since_ns >= RETIRE_AFTER_NS:
            return
        wait_s = FAULT_PAUSE_S
        with faults:
            wait_s = recorder.run_once(context.broker_words.metadata_version)
        counts = recorder.counts()
        for name, value, before in zip(counts._fields, counts, stored, strict=True):
            page.add(page.index(name), value - before)
        stored = counts
        context.slots.beat(Role.RECORDER, 0, SystemClock.monotonic_ns())
        context.recorder_bell.wait(min(wait_s, BEAT_S))
