"""The transactions' tasks for other handlers and the controller: who asks for them, and their form in bytes.

Runs in handler processes and the controller. A coordinator asks the owner of a partition for a marker and the
controller for producer ids; a handler that holds records asks the coordinator whether they belong to a transaction.
Every task is answered in the turn in which it is asked, and changes nothing when it is asked again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.partitions.transaction_messages import Marker, Membership, TopicPartition
from broker.protocol.coordinator_routing import TRANSACTION_TOPIC
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import string_bytes
from broker.scheduling.peer_tasks import TargetTasks

if TYPE_CHECKING:
    from broker.coordinator.locator import CoordinatorOwnership
    from broker.partitions.partition_manager import PartitionManager

MARKER: Final = struct.Struct(
    ">i"  # partition
    "q"  # producer id
    "h"  # producer epoch
    "i"  # coordinator epoch
    "?"  # commit
    "h"  # transaction version
)
PRODUCER: Final = struct.Struct(
    ">?"  # verify only
    "q"  # producer id
    "h"  # producer epoch
    "i"  # partitions
)
INT32: Final = struct.Struct(">i")
PRODUCER_ID: Final = struct.Struct(">q")

#: What a question has room for, as have the records of the coordinator.
_LONGEST_BYTES: Final = 2**15 - 1


class TransactionRpc:
    """One target's correspondence about transactions."""

    def __init__(self, tasks: TargetTasks, locator: CoordinatorOwnership, partitions: PartitionManager) -> None:
        self._tasks = tasks
        self._locator = locator
        self._partitions = partitions

    def owner_of(self, place: TopicPartition) -> int | None:
        """Return the handler that owns a partition; None when there is no such partition any more."""
        info = self._partitions.metadata.partition(*place)
        return None if info is None else info.owner

    def write_marker(self, owner: int, marker: Marker, done: Callable[[int], None]) -> None:
        """Have the owner write a marker; ``done(error)`` is called once it is committed or has failed."""
        payload = MARKER.pack(*marker[1:]) + string_bytes(marker.topic)
        self._tasks.ask(owner, "write_marker", payload, lambda error, _: done(error))

    def coordinator_epoch(self, partition: int) -> int:
        """Return the epoch in which this process coordinates a partition of `__transaction_state`."""
        owned = self._partitions.own(TRANSACTION_TOPIC, partition)
        return 0 if owned is None else owned.log.leader_epoch

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get a producer id that was never handed out: ``done(error, producer id)``, now or in a later turn."""

        def answered(error: int, payload: bytes) -> None:
            done(error, -1 if error else PRODUCER_ID.unpack(payload)[0])

        self._tasks.ask(self._locator.controller, "next_producer_id", b"", answered)

    def ask_membership(self, membership: Membership, done: Callable[[list[int]], None]) -> None:
        """Ask the coordinator of a transactional id; ``done`` gets an error code for each partition."""
        transactional_id, producer, verify_only, partitions = membership
        if len(transactional_id.encode()) > _LONGEST_BYTES:
            done([int(ErrorCode.INVALID_REQUEST)] * len(partitions))
            return
        payload = string_bytes(transactional_id) + PRODUCER.pack(verify_only, *producer, len(partitions))
        payload += b"".join(string_bytes(topic) + INT32.pack(partition) for topic, partition in partitions)

        def answered(error: int, answer: bytes) -> None:
            if error:
                done([error] * len(partitions))
            else:
                done(list(struct.unpack(f">{len(partitions)}h", answer)))

        target = self._locator.owner_of(TRANSACTION_TOPIC, transactional_id)
        self._tasks.ask(target, "add_partition_to_transaction", payload, answered)
