"""The storage gate: whether the partitions of this handler take records, by what their disk can hold.

Runs in handler processes. It follows the state that the controller publishes, one load a turn. A write of its own that
found no room closes it for everything, the handler's own records included, so that no log is written to, and restored,
in vain; the slot says so, and the gate asks the file system for room once a second until it gets some. A log that went
offline publishes its error in the partition's row; one whose files have vanished goes offline within seconds, though
the system would take writes to a removed file for ever. What want of room has left to be done to a log is done in
slices, or when somebody asks for its partition: one write may find the disk full for thousands of them.
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
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.shm.storage import StorageState
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.log.partition_log import LogWriteFailed
    from rotunda.broker.partitions.owned_partition import OwnedPartition

logger = logging.getLogger(__name__)

#: How often room is asked for after a write that found none.
RETRY_NS: Final = 1_000_000_000

#: Partitions looked at in one tick: a look is two system calls for each that was appended to since the last one.
PARTITIONS_A_TICK: Final = 500

_HOLDS: Final[Mapping[int, AppendHold]] = {
    StorageState.FULL: AppendHold.CLIENTS,
    StorageState.GONE: AppendHold.EVERYTHING,
}


class StorageGate:
    """One handler's. `write_failures` counts the writes to logs that failed; `hold` says what is refused."""

    def __init__(
        self,
        context: ProcessContext,
        index: int,
        owned: Mapping[int, OwnedPartition],
        clock: Clock,
        catch_up_later: Callable[[int], None],
    ) -> None:
        """``catch_up_later`` lets the log of a row do what want of room has left, in slices."""
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
        self._warnings = RepeatedWarnings(logger, clock.monotonic_ns)
        self._seen_state = int(StorageState.ROOM)
        self._error = 0
        self._is_gone = False
        self._retry_due_ns = 0
        #: The rows that this round of looks has not come to yet, and the ends that the last round saw.
        self._round: list[int] = []
        self._ends: dict[int, int] = {}
        if self._is_handler:
            # What a predecessor published has not been seen by this process.
            context.slots.set_storage_error(Role.HANDLER, index, 0)

    @property
    def _is_handler(self) -> bool:
        return self._index < self._context.handlers

    def turn(self) -> None:
        """Follow the published state. HOT: once a turn, one load."""
        state = self._broker_words.storage_state
        if state != self._seen_state:
            self._seen_state = state
            self._apply()

    def tick(self) -> None:
        """Look whether there is room again, and at some of the partitions."""
        if not self._is_handler:
            return
        is_gone = not self._identity.is_present()
        if is_gone != self._is_gone:
            self._is_gone = is_gone
            self._apply()
        now_ns = self._clock.monotonic_ns()
        if self._error and now_ns >= self._retry_due_ns:
            self._retry_due_ns = now_ns + RETRY_NS
            if has_room(self._data_dir):
                self._set_error(0)
                self._warnings.warning("room", "the data directory can be written to again: records are taken")
        if not is_gone:
            self._look_at_some()

    def write_failed(self, owned: OwnedPartition, failure: LogWriteFailed) -> None:
        """Take note of a write that failed; where it found no room, the next ones are not tried at once."""
        self.write_failures += 1
        if failure.errno in NO_ROOM:
            self._catch_up_later(owned.row)
            self.found_no_room(failure.errno, str(failure))
        else:
            self.publish_fault(owned)

    def found_no_room(self, error: int, what: str) -> None:
        """Refuse records until the file system has room to give."""
        self._warnings.warning("full", "%s; records are refused until there is room", what)
        self._retry_due_ns = self._clock.monotonic_ns() + RETRY_NS
        self._set_error(error)

    def message(self, row: int) -> str:
        """Return why a partition does not take records, in a sentence for whoever sent them."""
        partitions = self._context.partitions
        fault = partitions.fault(row)
        if fault and fault not in NO_ROOM:
            return (
                f"The partition is offline after an error of its disk ({os.strerror(fault)}); what it has can be read. "
                "It is opened again when the broker starts, the broker's log says more."
            )
        if partitions.state(row) != STATE_OPEN:
            return "The log of the partition could not be opened, the broker's log says why."
        return self._context.storage().refusal or "The log could not be written to."

    def _set_error(self, error: int) -> None:
        self._error = error
        self._context.slots.set_storage_error(Role.HANDLER, self._index, error)
        self._apply()

    def _apply(self) -> None:
        """Let every log refuse what it must, or take it again."""
        hold = (
            AppendHold.EVERYTHING if self._error or self._is_gone else _HOLDS.get(self._seen_state, AppendHold.NOTHING)
        )
        if hold is not self.hold:
            self.hold = hold
            for owned in self._owned.values():
                owned.log.hold(hold)

    def _look_at_some(self) -> None:
        """Look at the next partitions of the round: whether they are offline, or their files have vanished."""
        if not self._round:
            self._round = list(self._owned)
        self._round, rows = self._round[PARTITIONS_A_TICK:], self._round[:PARTITIONS_A_TICK]
        for row in rows:
            # Not by `get`, which does what waits to be done to a partition.
            if row not in self._owned:
                self._ends.pop(row, None)
                continue
            owned = self._owned[row]
            log = owned.log
            if log.is_behind and self.hold is not AppendHold.EVERYTHING:
                self._catch_up_later(row)
            if self._ends.get(row) != log.log_end_offset:
                self._ends[row] = log.log_end_offset
                log.check_present()
            if log.fault not in NO_ROOM:
                self.publish_fault(owned)

    def publish_fault(self, owned: OwnedPartition) -> None:
        """Let everybody know whether a partition is offline, and why; not while its log has yet to catch up."""
        if owned.log.fault != self._context.partitions.fault(owned.row):
            self._context.partitions.set_fault(owned.row, owned.log.fault)
