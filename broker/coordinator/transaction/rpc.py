"""What transactions have handlers and the controller do for each other: tasks in bytes, and who asks for them.

Runs in handler processes and the controller. A coordinator asks the owner of a partition for a marker and the
controller for producer ids; a handler that holds records asks the coordinator whether they belong to a transaction.
Every task is answered in the turn in which it is asked, and changes nothing when it is asked again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.coordinator.transaction.markers import Marker
from broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM, Producer, TopicPartition
from broker.errors import ApiError
from broker.protocol.coordinator_routing import GROUP_TOPIC, TRANSACTION_TOPIC
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import read_string, string_bytes
from broker.scheduling.peer_tasks import TaskDone

if TYPE_CHECKING:
    from broker.handler.broker_state import BrokerState
    from broker.partitions.owned_partition import Answer, OwnedPartition

AppendMarker = Callable[["OwnedPartition", Marker, "Answer"], None]

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
_PRODUCER_ID: Final = struct.Struct(">q")

#: What a question has room for, as have the records of the coordinator.
_LONGEST_BYTES: Final = 2**15 - 1


class Membership(NamedTuple):
    """Whether partitions belong to a producer's transaction. Unless ``verify_only``, they do from now on."""

    transactional_id: str
    producer: Producer
    verify_only: bool
    partitions: Sequence[TopicPartition]


class TransactionRpc:
    """One target's correspondence about transactions."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._append_marker: AppendMarker = _cannot_append
        state.tasks.register("write_marker", self._write_marker)
        state.tasks.register("next_producer_id", self._next_producer_id)
        state.tasks.register("add_partition_to_transaction", self._add_partitions)

    def connect(self, append_marker: AppendMarker) -> None:
        """Say what stages markers in this process's partitions."""
        self._append_marker = append_marker

    # ---- asking --------------------------------------------------------------------------------------------------

    def owner_of(self, place: TopicPartition) -> int | None:
        """Return the handler that owns a partition; None when there is no such partition any more."""
        info = self._state.metadata.partition(*place)
        return None if info is None else info.owner

    def write_marker(self, owner: int, marker: Marker, done: Callable[[int], None]) -> None:
        """Have the owner write a marker; ``done(error)`` is called once it is committed or has failed."""
        payload = _MARKER.pack(*marker[1:]) + string_bytes(marker.topic)
        self._state.tasks.ask(owner, "write_marker", payload, lambda error, _: done(error))

    def coordinator_epoch(self, partition: int) -> int:
        """Return the epoch in which this process coordinates a partition of `__transaction_state`."""
        info = self._state.metadata.partition(TRANSACTION_TOPIC, partition)
        owned = None if info is None else self._state.owned.get(info.row)
        return 0 if owned is None else owned.log.leader_epoch

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get a producer id that was never handed out: ``done(error, producer id)``, now or in a later turn."""

        def answered(error: int, payload: bytes) -> None:
            done(error, -1 if error else _PRODUCER_ID.unpack(payload)[0])

        self._state.tasks.ask(self._state.heritage.handlers, "next_producer_id", b"", answered)

    def ask_membership(self, membership: Membership, done: Callable[[list[int]], None]) -> None:
        """Ask the coordinator of a transactional id; ``done`` gets an error code for each partition."""
        transactional_id, producer, verify_only, partitions = membership
        if len(transactional_id.encode()) > _LONGEST_BYTES:
            done([int(ErrorCode.INVALID_REQUEST)] * len(partitions))
            return
        payload = string_bytes(transactional_id) + _PRODUCER.pack(verify_only, *producer, len(partitions))
        payload += b"".join(string_bytes(topic) + _INT32.pack(partition) for topic, partition in partitions)

        def answered(error: int, answer: bytes) -> None:
            if error:
                done([error] * len(partitions))
            else:
                done(list(struct.unpack(f">{len(partitions)}h", answer)))

        target = self._state.coordinators.owner_of(TRANSACTION_TOPIC, transactional_id)
        self._state.tasks.ask(target, "add_partition_to_transaction", payload, answered)

    # ---- answering -----------------------------------------------------------------------------------------------

    def _write_marker(self, payload: bytes, reply: TaskDone) -> None:
        topic, _ = read_string(payload, _MARKER.size, len(payload))
        self.write_own_marker(Marker(topic, *_MARKER.unpack_from(payload)), lambda error: reply(error, b""))

    def write_own_marker(self, marker: Marker, done: Callable[[int], None]) -> None:
        """Write a marker into a partition of this process."""
        info = self._state.metadata.partition(marker.topic, marker.partition)
        owned = None if info is None else self._state.owned.get(info.row)
        if owned is None:
            done(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return

        if marker.topic == GROUP_TOPIC:
            # Offsets that were taken earlier in this turn stand in front of the marker.
            self._state.coordinators.flush()

        def answer(error: int, base_offset: int, time_ms: int) -> None:
            del base_offset, time_ms
            if not error and marker.topic == GROUP_TOPIC:
                groups = self._state.coordinators.groups
                groups.transaction_ended(marker.partition, marker.producer_id, commit=marker.commit)
            done(error)

        self._append_marker(owned, marker, answer)

    def _next_producer_id(self, payload: bytes, reply: TaskDone) -> None:
        del payload
        controller = self._state.controller
        if controller is None:
            reply(int(ErrorCode.NOT_CONTROLLER), b"")
            return
        try:
            reply(0, _PRODUCER_ID.pack(controller.next_producer_id()))
        except ApiError as error:
            reply(error.code, b"")

    def _add_partitions(self, payload: bytes, reply: TaskDone) -> None:
        membership = _read_membership(payload)
        transactional_id, producer, verify_only, partitions = membership
        transactions = self._state.coordinators.transactions
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
                transactions.verify_partition(transactional_id, producer, place, partial(noted, index))
        else:

            def added(error: int) -> None:
                reply(0, struct.pack(f">{len(errors)}h", *[error] * len(errors)))

            transactions.add_partitions(transactional_id, producer, frozenset(partitions), EPOCH_BUMP_FROM, added)


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


def _cannot_append(owned: OwnedPartition, marker: Marker, answer: Answer) -> None:
    raise RuntimeError(f"no marker can be written to row {owned.row} before the loop stands: {marker} {answer}")
