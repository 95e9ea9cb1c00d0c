"""Hanging transactions: open in a partition, but unknown to every coordinator, so that they never end (KIP-664).

Runs in handler processes, for the partitions that they own. A power loss causes them: the records of a transaction may
be durable, and those of its coordinator not. The last stable offset then does not advance. So a transaction open for
longer than the limit is looked up with all coordinators, and aborted if it is unknown to all. That is safe for a live
producer: its records are accepted only after its coordinator has recorded the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.coordinator.transaction.admin import ListFilter
from rotunda.broker.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    TransactionState,
)
from rotunda.broker.partitions.transaction_messages import Marker
from rotunda.broker.protocol.routing import TRANSACTION_TOPIC
from rotunda.broker.scheduling.slices import SlicedWork, TooManyWaitError, Work
from rotunda.broker.steps import ELEMENTS_AT_ONCE
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinators import Coordinators
    from rotunda.broker.log.partition_log import PartitionLog
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.scheduling.slices import Slices

logger = logging.getLogger(__name__)

#: Search interval, unless transactions time out sooner.
LOOK_MS: Final = 10_000

_OPEN_STATES: Final = frozenset(TransactionState) - {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD}


class OpenTransaction(NamedTuple):
    """An open transaction in the state of a partition."""

    row: int
    producer_id: int
    first_offset: int


class HangingTransactions:
    """The open transactions of one handler's partitions, and the time when each was first seen."""

    def __init__(self, partitions: PartitionManager, coordinators: Coordinators, slices: Slices) -> None:
        self._partitions = partitions
        self._coordinators = coordinators
        self._slices = slices
        self._first_seen_ms: dict[OpenTransaction, int] = {}
        self._look_later()

    def _look_later(self) -> None:
        self._coordinators.timers.after_ms(min(LOOK_MS, self._most_ms), self._begin)

    @property
    def _most_ms(self) -> int:
        return self._partitions.metadata.broker_config.transaction_max_timeout_ms

    def _begin(self) -> None:
        doing = ("hanging transactions", "")
        try:
            self._slices.add(SlicedWork(self._look(), doing, self._looked, self._look_later, doing))
        except TooManyWaitError:
            self._look_later()

    def _looked(self, _: object) -> None:
        self._look_later()

    def _look(self) -> Work:
        now_ms = self._partitions.clock.monotonic_ns() // 1_000_000
        seen: dict[OpenTransaction, int] = {}
        rows = list(self._partitions.owned)
        for first in range(0, len(rows), ELEMENTS_AT_ONCE):
            for row in rows[first : first + ELEMENTS_AT_ONCE]:
                for found in self._open_in(row):
                    seen[found] = self._first_seen_ms.get(found, now_ms)
            yield None
        self._first_seen_ms = seen
        late = [found for found, since_ms in seen.items() if now_ms - since_ms > self._most_ms]
        if not late or not self._are_coordinators_open():
            return
        wanted = ListFilter(_OPEN_STATES, frozenset(found.producer_id for found in late), -1, "")
        error, listed = yield from self._coordinators.transaction_admin.ask_list(wanted)
        if error:
            return
        known = {each.producer_id for each in listed}
        for found in late:
            if found.producer_id not in known and found in self._open_in(found.row):
                self._abort(found)

    def _open_in(self, row: int) -> Iterator[OpenTransaction]:
        log = self._log(row)
        if log is not None:
            for producer_id, first_offset in log.open_transactions():
                yield OpenTransaction(row, producer_id, first_offset)

    def _log(self, row: int) -> PartitionLog | None:
        # Not by `get`, which runs a partition's pending changes.
        owned = self._partitions.owned
        return owned[row].log if row in owned else None

    def _are_coordinators_open(self) -> bool:
        """Whether every partition of `__transaction_state` is served."""
        topic = self._partitions.metadata.topic(TRANSACTION_TOPIC)
        table = self._partitions.table
        return topic is None or all(table.state(each.row) == STATE_OPEN for each in topic.partitions)

    def _abort(self, found: OpenTransaction) -> None:
        log = self._log(found.row)
        entry = None if log is None else log.producer(found.producer_id)
        if log is None or entry is None:
            return
        logger.warning(
            "%s: aborting the transaction of producer %d (epoch %d) from offset %d: unknown to all coordinators, it "
            "has blocked read_committed consumers for at least %d ms",
            log.name.directory_name,
            found.producer_id,
            entry.epoch,
            found.first_offset,
            self._most_ms,
        )
        epoch, coordinator_epoch = entry.epoch, max(entry.coordinator_epoch, 0)
        place = log.name.topic, log.name.partition
        marker = Marker(*place, found.producer_id, epoch, coordinator_epoch, commit=False, transaction_version=0)
        self._coordinators.write_own_marker(marker)
