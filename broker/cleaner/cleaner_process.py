"""The cleaner process from boot to exit: its schedule, and its metrics page.

The only module of the cleaner that uses the process context. It serves no request and has no state that must survive
it: a killed cleaner is replaced, and its replacement continues from the checkpoint. It runs at low priority.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from rotunda.broker.cleaner.log_cleaner import LogCleaner
from rotunda.broker.cleaner.owner_client import OwnerClient, Stopped
from rotunda.broker.cleaner.throttler import Throttler
from rotunda.broker.clock import SystemClock
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.runtime.child_process import FaultLimit, Role
from rotunda.shm.metrics.process_metrics import MetricsWriter
from rotunda.shm.storage import StorageState

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.runtime.signals import StopFlag

logger = logging.getLogger(__name__)

#: The other processes have priority.
NICENESS = 10

#: Pause after a fault.
FAULT_PAUSE_S = 1.0

#: Interval of the checks whether a removed data directory is back.
GONE_PAUSE_S = 1.0

#: The first retention check waits until the broker has started and clients have reconnected.
FIRST_RETENTION_MS = 30_000

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    """Run the cleaner's loop until the process is stopped."""
    os.nice(NICENESS)
    clock = SystemClock()

    settings = context.live_settings()

    def beat() -> None:
        settings.refresh()
        context.slots.beat(Role.CLEANER, 0, clock.monotonic_ns())

    owners = OwnerClient(context.channel, index, generation, context.target_bells, stop.is_set, beat)
    metadata = MetadataCache(metadata_path(context.config.data_dir), context.handlers, context.config)
    page = context.begin_metrics(Role.CLEANER, 0, generation)
    cleaner = Cleaner(context, metadata, owners, page)
    context.mark_ready(Role.CLEANER, 0, generation)
    try:
        owners.await_predecessor()
        _serve(cleaner, owners)
    except Stopped:
        metadata.close()


def _serve(cleaner: Cleaner, owners: OwnerClient) -> None:
    # Errors of one partition are handled in `LogCleaner`.
    faults = FaultLimit(logger, "the cleaner's loop", passing=(Stopped,))
    while True:
        wait_s = FAULT_PAUSE_S
        with faults:
            wait_s = cleaner.run_once()
        owners.wait(wait_s)


class Cleaner:
    """The three tasks of the cleaner, each with its due time."""

    def __init__(
        self, context: ProcessContext, metadata: MetadataCache, owners: OwnerClient, page: MetricsWriter
    ) -> None:
        self._broker_words = context.broker_words
        self._metadata = metadata
        self._clock = SystemClock()
        self._pace = Throttler(owners, self._clock)
        self._log_cleaner = LogCleaner(metadata, context.partitions, self._clock, owners.ask, self._pause)
        self._page = page
        self._stored: dict[str, int] = {}
        now_ns = self._clock.monotonic_ns()
        first_ms = min(FIRST_RETENTION_MS, context.config.log_retention_check_interval_ms)
        self._retention_due_ns = now_ns + first_ms * _NS_PER_MS
        self._compaction_due_ns = now_ns + context.config.log_cleaner_backoff_ms * _NS_PER_MS
        # Files of an earlier run.
        self._doomed_due_ns: int | None = now_ns

    def run_once(self) -> float:
        """Run the due tasks; return the seconds until the next one is due. Raises Stopped."""
        if self._broker_words.storage_state == StorageState.GONE:
            return GONE_PAUSE_S
        self._refresh()
        config = self._metadata.broker_config
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._retention_due_ns:
            self._log_cleaner.apply_retention()
            now_ns = self._clock.monotonic_ns()
            self._retention_due_ns = now_ns + config.log_retention_check_interval_ms * _NS_PER_MS
            self._doomed_due_ns = now_ns
        if now_ns >= self._compaction_due_ns:
            worked = config.log_cleaner_enable and self._log_cleaner.compact_dirtiest()
            now_ns = self._clock.monotonic_ns()
            # Compaction continues as long as a partition is due.
            self._compaction_due_ns = now_ns + (0 if worked else config.log_cleaner_backoff_ms * _NS_PER_MS)
            self._doomed_due_ns = now_ns if worked else self._doomed_due_ns
        if self._doomed_due_ns is not None and now_ns >= self._doomed_due_ns:
            wait_ms = self._log_cleaner.remove_doomed_files()
            self._doomed_due_ns = None if wait_ms is None else now_ns + wait_ms * _NS_PER_MS
        self._publish()
        dues = (self._retention_due_ns, self._compaction_due_ns, self._doomed_due_ns)
        return max(0, min(due for due in dues if due is not None) - now_ns) / _NS_PER_S

    def _pause(self, size_bytes: int) -> None:
        """Account for bytes read or written, and apply metadata changes. Raises Stopped."""
        self._pace.use(size_bytes)
        self._refresh()

    def _refresh(self) -> None:
        if self._broker_words.metadata_version > self._metadata.version:
            self._log_cleaner.refresh()
        self._pace.bytes_per_second = self._metadata.broker_config.log_cleaner_io_max_bytes_per_second

    def _publish(self) -> None:
        """Update the metrics page; counters continue from a predecessor's values."""
        counters = self._log_cleaner.counters
        for name, value in counters.values.items():
            self._page.add(self._page.index(name), value - self._stored.get(name, 0))
            self._stored[name] = value
        self._page.set(self._page.index("max_dirty_percent"), counters.max_dirty_percent)
        self._page.set(self._page.index("uncleanable_partitions"), len(self._log_cleaner.uncleanable))
        self._page.set(self._page.index("last_look_ms"), counters.last_look_ms)
