"""The watch over the disk of the data directory: checks once a second and publishes the state to every process.

Runs in the controller, the only writer of the storage state. It compares the free space with the settings, includes
handlers whose writes fail on a full disk (a file system quota is not visible in the free space), and detects that the
data directory is no longer the one the broker was started with. It maintains the reserve: a file that is deleted so
that topics can still be deleted on a full disk, and recreated when there is space. `storage_gate` decides which records
are rejected in which state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rotunda.broker.log.data_dir import DirectoryIdentity
from rotunda.shm.storage import StorageState, described

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.partitions.storage.storage_reserve import StorageReserve

logger = logging.getLogger(__name__)

INTERVAL_NS: Final = 1_000_000_000

#: Free space must exceed the limit of a state by this factor before the state is left; avoids flapping.
LEAVING: Final = 1.05

#: A file system with fewer free inodes than this counts as full.
LEAST_FILES: Final = 64


class StorageWatch:
    """Checks the disk, publishes the state, and logs each change."""

    def __init__(
        self,
        context: ProcessContext,
        config: Callable[[], BrokerConfig],
        reserve: StorageReserve,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        """``config`` returns the current settings; ``changed`` is called after each change of the state."""
        self._context = context
        self._config = config
        self._reserve = reserve
        self._clock = clock
        self._changed = changed
        self._identity = DirectoryIdentity(context.config.data_dir)
        self._due_ns = 0

    @property
    def state(self) -> StorageState:
        """The state published last, by this process or its predecessor."""
        return StorageState(self._context.broker_words.storage_state)

    def tick(self) -> None:
        """Check the disk, if the interval is over."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + INTERVAL_NS
            self.look()

    def look(self) -> None:
        """Publish the state of the disk, and log a change."""
        before = self.state
        state, free_bytes = self._find(before)
        self._context.broker_words.set_storage(state, free_bytes)
        if state < StorageState.FULL:
            self._reserve.keep()
        if state == before:
            return
        storage = self._context.storage()
        if state == StorageState.ROOM:
            logger.info("the disk of the data directory has space again: %s free", described(free_bytes))
        elif storage.rejection:
            logger.error("%s", storage.rejection)
        else:
            logger.warning("%s", storage.warning)
        self._changed()

    def _find(self, before: StorageState) -> tuple[StorageState, int]:
        """Return the state and the free bytes."""
        if not self._identity.is_present():
            return StorageState.GONE, 0
        try:
            found = os.statvfs(self._context.config.data_dir)
        except OSError as error:
            logger.warning("cannot read the free space of the data directory: %s", error)
            return before, self._context.broker_words.storage_free_bytes
        free_bytes, all_bytes = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        is_out_of_files = found.f_files > 0 and found.f_favail < min(LEAST_FILES, found.f_files)
        if is_out_of_files or self._context.storage().errors:
            return StorageState.FULL, free_bytes
        # Counts without the reserve, which is freed when needed.
        return self._by_bytes(before, free_bytes, all_bytes), free_bytes

    def _by_bytes(self, before: StorageState, free_bytes: int, all_bytes: int) -> StorageState:
        config = self._config()
        warn = min(config.storage_free_warn_bytes, int(config.storage_free_warn_ratio * all_bytes))
        least = min(config.storage_free_min_bytes, int(config.storage_free_min_ratio * all_bytes))
        limits = (
            (StorageState.FULL, least),
            (StorageState.NO_REQUEST_LOG, 2 * least),
            (StorageState.LOW, max(warn, 2 * least)),
        )
        for state, limit in limits:
            if free_bytes < limit * (LEAVING if before >= state else 1):
                return state
        return StorageState.ROOM
