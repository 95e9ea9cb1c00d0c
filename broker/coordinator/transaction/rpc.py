"""The transaction tasks that targets send to each other: their senders, encoding and execution.

Runs in handler processes and the controller. A coordinator requests markers from the owners of partitions and producer
ids from the controller; a handler with transactional records verifies them with the coordinator. Every task completes
in the loop pass in which it arrives, and is idempotent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM
from rotunda.broker.partitions.transaction_messages import Marker, Membership, Producer, TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import read_string, string_bytes
from rotunda.broker.protocol.routing import GROUP_TOPIC, TRANSACTION_TOPIC
from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_coordinator import GroupCoordinator, OpenNow
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender

_MARKER: Final = struct.Struct(
    ">i"  # partition
    "q"  # producer id
    "h"  # producer epoch
    "i"  # coordinator epoch
    "?"  # commit
    "h"  # transaction version
)
_PRODUCER: Final = struct.Struct(
    ">?"  # verify only
    "q"  # producer id
    "h"  # producer epoch
    "i"  # partitions
)
_INT32: Final = struct.Struct(">i")
PRODUCER_ID: Final = struct.Struct(">q")

#: Longest text in a task, as in the coordinator's records.
_LONGEST_BYTES: Final = 2**15 - 1


class TransactionRpc:
    """Sends one target's tasks about transactions."""

    def __init__(self, tasks: TargetTasks, locator: CoordinatorLocator, partitions: PartitionManager) -> None:
        self._tasks = tasks
        self._locator = locator
        self._partitions = partitions

    def owner_of(self, place: TopicPartition) -> int | None:
        """Return the handler that owns a partition; None if the partition does not exist."""
        info = self._partitions.metadata.partition(*place)
        return None if info is None else info.owner

    def write_marker(self, owner: int, marker: Marker, done: Callable[[int], None]) -> None:
        """Have the owner write a marker; ``done(error)`` is called once it is committed or has failed."""
        payload = _MARKER.pack(*marker[1:]) + string_bytes(marker.topic)
        self._tasks.ask(owner, "write_marker", payload, lambda error, _: done(error))

    def coordinator_epoch(self, partition: int) -> int:
        """Return the epoch in which this process coordinates a partition of `__transaction_state`."""
        owned = self._partitions.own(TRANSACTION_TOPIC, partition)
        return 0 if owned is None else owned.log.leader_epoch

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get a producer id that was never assigned: ``done(error, producer id)``, now or in a later loop pass."""

        def completed(error: int, payload: bytes) -> None:
            done(error, -1 if error else PRODUCER_ID.unpack(payload)[0])

        self._tasks.ask(self._locator.controller, "next_producer_id", b"", completed)

    def verify_membership(self, membership: Membership, done: Callable[[list[int]], None]) -> None:
        """Verify partitions with the coordinator of a transactional id; ``done`` gets an error code for each."""
        transactional_id, producer, verify_only, partitions = membership
        if len(transactional_id.encode()) > _LONGEST_BYTES:
            done([int(ErrorCode.INVALID_REQUEST)] * len(partitions))
            return
        payload = string_bytes(transactional_id) + _PRODUCER.pack(verify_only, *producer, len(partitions))
        payload += b"".join(string_bytes(topic) + _INT32.pack(partition) for topic, partition in partitions)

        def completed(error: int, errors: bytes) -> None:
            if error:
                done([error] * len(partitions))
            else:
                done(list(struct.unpack(f">{len(partitions)}h", errors)))

        target = self._locator.owner_of(TRANSACTION_TOPIC, transactional_id)
        self._tasks.ask(target, "add_partition_to_transaction", payload, completed)


class TransactionTasks:
    """Runs the transaction tasks sent to one handler."""

    def __init__(
        self,
        tasks: TargetTasks,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        open_now: OpenNow,
        appends: PartitionAppender,
        flush: Callable[[], object],
    ) -> None:
        """Use ``flush`` to stage the coordinators' records since the last commit."""
        self._groups = groups
        self._transactions = transactions
        self._open_now = open_now
        self._appends = appends
        self._flush = flush
        tasks.register("write_marker", self._write_marker)
        tasks.register("add_partition_to_transaction", self._add_partitions)

    def _write_marker(self, payload: bytes, reply: TaskDone) -> None:
        topic, _ = read_string(payload, _MARKER.size, len(payload))
        self.write_own_marker(Marker(topic, *_MARKER.unpack_from(payload)), lambda error: reply(error, b""))

    def write_own_marker(self, marker: Marker, done: Callable[[int], None]) -> None:
        owned = self._open_now(marker.topic, marker.partition)
        if owned is None:
            done(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return

        if marker.topic == GROUP_TOPIC:
            # Offsets committed earlier in this loop pass must precede the marker.
            self._flush()

        def written(error: int, base_offset: int, time_ms: int) -> None:
            del base_offset, time_ms
            if not error and marker.topic == GROUP_TOPIC:
                self._groups.transaction_ended(marker.partition, marker.producer_id, commit=marker.commit)
            done(error)

        self._appends.append_marker(owned, marker, written)

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
    verify_only, producer_id, epoch, count = _PRODUCER.unpack_from(payload, offset)
    offset += _PRODUCER.size
    partitions = []
    for _ in range(count):
        topic, offset = read_string(payload, offset, len(payload))
        partitions.append((topic, _INT32.unpack_from(payload, offset)[0]))
        offset += _INT32.size
    return Membership(transactional_id, Producer(producer_id, epoch), verify_only, partitions)
