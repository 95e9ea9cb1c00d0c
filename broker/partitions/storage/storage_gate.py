"""The storage gate: whether this handler's partitions accept records, depending on free disk space.

Runs in handler processes. It follows the state published by the controller, one load per loop pass. A failed write of
this handler (disk full) closes it for all records, the handler's own included, so that no log is written and rolled
back in vain; the process slot publishes the error, and the gate probes the file system once a second until space is
free. An offline log publishes its error in the partition's row. A log whose files have vanished goes offline within
seconds, although the system would accept writes to a removed file indefinitely. Recovery from failed writes runs in
slices, or at the next access to the partition: one full disk can affect thousands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rotunda.broker.log.data_dir import DirectoryIdentity
from rotunda.broker.log.disk_room import NO_ROOM, has_room
from rotunda.broker.log.partition_log import AppendHold
from rotunda.broker.runtime.child_process import Role
from rotunda.shm.storage import StorageState
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.log.partition_log import LogWriteFailed
    from rotunda.broker.partitions.owned_partition import OwnedPartition

logger = logging.getLogger(__name__)

#: Probe interval after a write that failed on a full disk.
RETRY_NS: Final = 1_000_000_000

#: Partitions checked per tick: a check is two system calls for each one appended to since its last check.
PARTITIONS_A_TICK: Final = 500

_HOLDS: Final[Mapping[int, AppendHold]] = {
    StorageState.FULL: AppendHold.CLIENTS,
    StorageState.GONE: AppendHold.EVERYTHING,
}


class StorageGate:
    """The gate of one handler. `write_failures` counts failed writes to logs; `hold` names the rejected appends."""

    def __init__(
        self,
        context: ProcessContext,
        index: int,
        owned: Mapping[int, OwnedPartition],
        clock: Clock,
        catch_up_later: Callable[[int], None],
    ) -> None:
        """``catch_up_later`` schedules the recovery of a row's log from a failed write, in slices."""
        self.write_failures = 0
        self.hold = AppendHold.NOTHING
        self._context = context
        self._broker_words = context.broker_words
        self._index = index
        self._data_dir = context.config.data_dir
        self._identity = DirectoryIdentity(self._data_dir)
        self._owned = owned
        self._catch_up_later = catch_up_later
        self._clock = clock
        self._seen_state = int(StorageState.ROOM)
        self._error = 0
        self._is_missing = False
        self._retry_due_ns = 0
        #: The rows left in this round of checks, and the log ends seen in the last round.
        self._round: list[int] = []
        self._ends: dict[int, int] = {}
        if self._is_handler:
            # A predecessor published an error that this process has not seen itself.
            context.slots.set_storage_error(Role.HANDLER, index, 0)

    @property
    def _is_handler(self) -> bool:
        return self._index < self._context.handlers

    def run_once(self) -> None:
        """Follow the published state. HOT: once per loop pass, one load."""
        state = self._broker_words.storage_state
        if state != self._seen_state:
            self._seen_state = state
            self._apply()

    def tick(self) -> None:
        """Probe for free space, and check some partitions."""
        if not self._is_handler:
            return
        is_missing = not self._identity.is_present()
        if is_missing != self._is_missing:
            self._is_missing = is_missing
            self._apply()
        now_ns = self._clock.monotonic_ns()
        if self._error and now_ns >= self._retry_due_ns:
            self._retry_due_ns = now_ns + RETRY_NS
            if has_room(self._data_dir):
                self._set_error(0)
                logger.debug("the data directory is writable again: accepting records")
        if not is_missing:
            self._look_at_some()

    def write_failed(self, owned: OwnedPartition, failure: LogWriteFailed) -> None:
        """Handle a failed write; after a full disk, further writes are not attempted at once."""
        self.write_failures += 1
        if failure.errno in NO_ROOM:
            self._catch_up_later(owned.row)
            self.found_no_room(failure.errno, str(failure))
        else:
            self.publish_fault(owned)

    def found_no_room(self, error: int, reason: str) -> None:
        """Reject records until the file system has free space."""
        # The controller reports it, once for all handlers.
        logger.debug("%s; rejecting records until there is space", reason)
        self._retry_due_ns = self._clock.monotonic_ns() + RETRY_NS
        self._set_error(error)

    def message(self, row: int) -> str:
        """Return the reason why a partition rejects records, as a sentence for its producers."""
        partitions = self._context.partitions
        fault = partitions.fault(row)
        if fault and fault not in NO_ROOM:
            return (
                f"The partition is offline after a disk error ({os.strerror(fault)}); its records can be read. The "
                "next start of the broker opens it again; see the broker's log."
            )
        if partitions.state(row) != STATE_OPEN:
            return "The log of the partition could not be opened, see the broker's log."
        return self._context.storage().rejection or "The log cannot be written."

    def _set_error(self, error: int) -> None:
        self._error = error
        self._context.slots.set_storage_error(Role.HANDLER, self._index, error)
        self._apply()

    def _apply(self) -> None:
        """Apply the current hold to every log."""
        hold = (
            AppendHold.EVERYTHING
            if self._error or self._is_missing
            else _HOLDS.get(self._seen_state, AppendHold.NOTHING)
        )
        if hold is not self.hold:
            self.hold = hold
            for owned in self._owned.values():
                owned.log.hold(hold)

    def _look_at_some(self) -> None:
        """Check the next partitions of the round: whether they are offline, or their files have vanished."""
        if not self._round:
            self._round = list(self._owned)
        self._round, rows = self._round[PARTITIONS_A_TICK:], self._round[:PARTITIONS_A_TICK]
        for row in rows:
            # Not by `get`, which runs a partition's pending changes.
            if row not in self._owned:
                self._ends.pop(row, None)
                continue
            owned = self._owned[row]
            log = owned.log
            if log.needs_catch_up and self.hold is not AppendHold.EVERYTHING:
                self._catch_up_later(row)
            if self._ends.get(row) != log.log_end_offset:
                self._ends[row] = log.log_end_offset
                log.check_present()
            if log.fault not in NO_ROOM:
                self.publish_fault(owned)

    def publish_fault(self, owned: OwnedPartition) -> None:
        """Publish whether a partition is offline, and its error; not while its log still has to catch up."""
        if owned.log.fault != self._context.partitions.fault(owned.row):
            self._context.partitions.set_fault(owned.row, owned.log.fault)
