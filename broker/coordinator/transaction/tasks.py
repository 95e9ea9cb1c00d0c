"""A handler's tasks for the transactions of others: it writes markers, and answers for the ids that it coordinates.

Runs in handler processes. Every task is answered in the turn in which it is asked, and changes nothing when it is asked
again. Their form in bytes stands in `rpc`, which asks for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.transaction.rpc import INT32, MARKER, PRODUCER
from broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM
from broker.partitions.transaction_messages import Marker, Membership, Producer
from broker.protocol.coordinator_routing import GROUP_TOPIC
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import read_string

if TYPE_CHECKING:
    from broker.coordinator.group_coordinator import GroupCoordinator, OpenNow
    from broker.coordinator.transaction.coordinator import TransactionCoordinator
    from broker.partitions.produce.partition_appender import PartitionAppender
    from broker.scheduling.peer_tasks import TargetTasks, TaskDone


class TransactionTasks:
    """Does what others ask of one handler for transactions."""

    def __init__(
        self,
        tasks: TargetTasks,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        open_now: OpenNow,
        appends: PartitionAppender,
        flush: Callable[[], object],
    ) -> None:
        """``flush`` stages what coordinators have written since the last commit."""
        self._groups = groups
        self._transactions = transactions
        self._open_now = open_now
        self._appends = appends
        self._flush = flush
        tasks.register("write_marker", self._write_marker)
        tasks.register("add_partition_to_transaction", self._add_partitions)

    def _write_marker(self, payload: bytes, reply: TaskDone) -> None:
        topic, _ = read_string(payload, MARKER.size, len(payload))
        self.write_own_marker(Marker(topic, *MARKER.unpack_from(payload)), lambda error: reply(error, b""))

    def write_own_marker(self, marker: Marker, done: Callable[[int], None]) -> None:
        """Write a marker into a partition of this process."""
        owned = self._open_now(marker.topic, marker.partition)
        if owned is None:
            done(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return

        if marker.topic == GROUP_TOPIC:
            # Offsets that were taken earlier in this turn stand in front of the marker.
            self._flush()

        def answer(error: int, base_offset: int, time_ms: int) -> None:
            del base_offset, time_ms
            if not error and marker.topic == GROUP_TOPIC:
                self._groups.transaction_ended(marker.partition, marker.producer_id, commit=marker.commit)
            done(error)

        self._appends.append_marker(owned, marker, answer)

    def _add_partitions(self, payload: bytes, reply: TaskDone) -> None:
        membership = _read_membership(payload)
        transactional_id, producer, verify_only, partitions = membership
        errors = [-1] * len(partitions)
        left = len(partitions)

        def noted(index: int, error: int) -> None:
            nonlocal left
            errors[index] = error
            left -= 1
            if not left:
                reply(0, struct.pack(f">{len(errors)}h", *errors))

        if verify_only:
            for index, place in enumerate(partitions):
                self._transactions.verify_partition(transactional_id, producer, place, partial(noted, index))
        else:

            def added(error: int) -> None:
                reply(0, struct.pack(f">{len(errors)}h", *[error] * len(errors)))

            self._transactions.add_partitions(transactional_id, producer, frozenset(partitions), EPOCH_BUMP_FROM, added)


def _read_membership(payload: bytes) -> Membership:
    transactional_id, offset = read_string(payload, 0, len(payload))
    verify_only, producer_id, epoch, count = PRODUCER.unpack_from(payload, offset)
    offset += PRODUCER.size
    partitions = []
    for _ in range(count):
        topic, offset = read_string(payload, offset, len(payload))
        partitions.append((topic, INT32.unpack_from(payload, offset)[0]))
        offset += INT32.size
    return Membership(transactional_id, Producer(producer_id, epoch), verify_only, partitions)
