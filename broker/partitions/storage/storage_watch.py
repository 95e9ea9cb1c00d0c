"""The watch over the disk of the data directory: one look a second, published for every process.

Runs in the controller, the one writer of the storage state. It compares what is free with the settings, takes account
of handlers whose writes find no room (a quota shows in no figure of the file system), and notices when the data
directory is no longer the one that the broker was started with. It keeps the reserve: a file that is given up so that
topics can still be deleted on a full disk, and made again when there is room. What is refused in which state is the
business of `storage_gate`.
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

#: A state is left only when this much more is free than what it was entered at: else it would come and go.
LEAVING: Final = 1.05

#: With fewer files left than this a file system is as full as without bytes.
LEAST_FILES: Final = 64


class StorageWatch:
    """Looks, publishes, and logs each change."""

    def __init__(
        self,
        context: ProcessContext,
        config: Callable[[], BrokerConfig],
        reserve: StorageReserve,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        """``config`` returns the settings now in force; ``changed`` is called after each change of the state."""
        self._context = context
        self._config = config
        self._reserve = reserve
        self._clock = clock
        self._changed = changed
        self._identity = DirectoryIdentity(context.config.data_dir)
        self._due_ns = 0

    @property
    def state(self) -> StorageState:
        """What was published last, by this process or the one before it."""
        return StorageState(self._context.broker_words.storage_state)

    def tick(self) -> None:
        """Look, if it is time to."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + INTERVAL_NS
            self.look()

    def look(self) -> None:
        """Publish how the disk is, and what has changed with it."""
        before = self.state
        state, free_bytes = self._find(before)
        self._context.broker_words.set_storage(state, free_bytes)
        if state < StorageState.FULL:
            self._reserve.keep()
        if state == before:
            return
        storage = self._context.storage()
        if state == StorageState.ROOM:
            logger.info("there is room on the disk of the data directory again: %s free", described(free_bytes))
        elif storage.refusal:
            logger.error("%s", storage.refusal)
        else:
            logger.warning("%s", storage.warning)
        self._changed()

    def _find(self, before: StorageState) -> tuple[StorageState, int]:
        """Return the state and what is free."""
        if not self._identity.is_present():
            return StorageState.GONE, 0
        try:
            found = os.statvfs(self._context.config.data_dir)
        except OSError as error:
            logger.warning("cannot ask the file system of the data directory what is free: %s", error)
            return before, self._context.broker_words.storage_free_bytes
        free_bytes, all_bytes = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        is_out_of_files = found.f_files > 0 and found.f_favail < min(LEAST_FILES, found.f_files)
        if is_out_of_files or self._context.storage().errors:
            return StorageState.FULL, free_bytes
        # What the reserve takes will be free when it is needed.
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
