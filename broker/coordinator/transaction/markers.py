"""Sends the decision about a transaction to its partitions: a marker in each, written by the partition's owner.

Runs in the handler that coordinates the transaction, once the decision is committed in its log. Until every marker is
written, no transaction can start under that transactional id. Each marker is a write to a log, so only a few are
requested at a time, and the next ones in a later loop pass after their responses. A marker may be written twice, if the
handler dies in between; the second has no effect. Deleted partitions need none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata
from rotunda.broker.partitions.transaction_messages import Marker, TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

#: Retry interval of a marker that could not be written.
RETRY_MS = 50

#: Most pending markers of one transaction.
AT_ONCE = 32

#: The partition has a later epoch or coordinator: no transaction of this epoch is open there.
_NOTHING_TO_END = (int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.TRANSACTION_COORDINATOR_FENCED))


class TransactionPeers(Protocol):
    """The connection of a coordinator to the other processes."""

    def owner_of(self, place: TopicPartition) -> int | None:
        """Return the handler that owns a partition; None if the partition does not exist."""

    def write_marker(self, owner: int, marker: Marker, done: Callable[[int], None]) -> None:
        """Have the owner write a marker; ``done(error)`` is called once it is committed or has failed."""

    def coordinator_epoch(self, partition: int) -> int:
        """Return the epoch in which this process coordinates a partition of `__transaction_state`."""

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get a producer id that was never assigned: ``done(error, producer id)``, now or in a later loop pass."""


class TransactionEnd:
    """The markers of one ending transaction."""

    __slots__ = (
        "_asked",
        "_coordinator_epoch",
        "_done",
        "_is_scheduled",
        "_left",
        "_metadata",
        "_peers",
        "_timers",
        "_to_ask",
        "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        metadata: TransactionMetadata,
        coordinator_epoch: int,
        peers: TransactionPeers,
        timers: Timers,
        wanted: Callable[[], bool],
    ) -> None:
        """``wanted()`` turns false when another coordinator continues the transaction."""
        self._metadata = metadata
        self._coordinator_epoch = coordinator_epoch
        self._peers = peers
        self._timers = timers
        self._wanted = wanted
        self._left = set(metadata.partitions)
        #: Partitions without a marker request so far, and the number of pending markers.
        self._to_ask = deque(sorted(self._left))
        self._asked = 0
        #: Whether a timer for the next markers is running.
        self._is_scheduled = False
        self._done: Callable[[], None] = _nobody

    def start(self, done: Callable[[], None]) -> None:
        """Write all markers, then call ``done``, perhaps at once."""
        self._done = done
        if not self._left:
            done()
            return
        self._ask_some()

    def _ask_some(self) -> None:
        self._is_scheduled = False
        for _ in range(min(AT_ONCE, len(self._to_ask))):
            self._try(self._to_ask.popleft())
        self._schedule()

    def _schedule(self) -> None:
        """Send the next markers in a later loop pass, once none is pending."""
        if self._to_ask and not self._asked and not self._is_scheduled and self._wanted():
            self._is_scheduled = True
            self._timers.after_ms(1, self._ask_some)

    def _try(self, place: TopicPartition) -> None:
        if not self._wanted() or place not in self._left:
            return
        owner = self._peers.owner_of(place)
        if owner is None:
            logger.info("%s-%d was deleted: no transaction marker needed", *place)
            self._written(place)
            return
        metadata = self._metadata
        marker = Marker(
            *place,
            metadata.producer_id,
            metadata.epoch,
            self._coordinator_epoch,
            metadata.is_commit,
            metadata.client_version,
        )
        self._asked += 1
        self._peers.write_marker(owner, marker, lambda error: self._completed(place, error))

    def _completed(self, place: TopicPartition, error: int) -> None:
        self._asked -= 1
        self._schedule()
        if not self._wanted():
            return
        if error and error not in _NOTHING_TO_END:
            self._timers.after_ms(RETRY_MS, lambda: self._try(place))
            return
        if error:
            logger.warning("%s-%d has no open transaction of this epoch: error %d", *place, error)
        self._written(place)

    def _written(self, place: TopicPartition) -> None:
        if place in self._left:
            self._left.remove(place)
            if not self._left:
                self._done()


def _nobody() -> None:
    """Do nothing until the end has started."""
