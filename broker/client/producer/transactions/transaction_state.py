"""States of a producer with a producer id, and their valid transitions: Kafka's table.

Idempotent producers use the same states without transactions. The application thread and the I/O thread change them
under one lock. An invalid transition by the application raises an error and keeps the state. On the I/O thread it is a
bug of this client: the state becomes fatal, so that no wrong data is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from rotunda.broker.client.errors import DeliveryTimeout, IllegalState, InvalidProducerEpoch, KafkaError, ProducerFenced
from rotunda.broker.client.topic_partition import TopicPartition

_MOST_OF_LONG: Final = (1 << 63) - 1


class OffsetAndMetadata(NamedTuple):
    """The next offset of a partition to be read by a group."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The group, with the consumer's member id and generation; with these, zombies are fenced (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_named(self) -> bool:
        return self.generation_id != -1 or bool(self.member_id) or self.group_instance_id is not None


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata) -> None:
    """Raise TypeError or ValueError for invalid offsets; on the I/O thread no caller could receive the error."""
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"the group is {group!r:.60}: give a ConsumerGroupMetadata")
    if group.generation_id > 0 and not group.member_id:
        raise ValueError(f"{group} has a generation and no member: give both, or neither")
    for partition, place in offsets.items():
        if not isinstance(place, OffsetAndMetadata):
            raise TypeError(f"invalid offset of {partition}: {place!r:.60}, expected an OffsetAndMetadata")
        if not 0 <= place.offset <= _MOST_OF_LONG:
            raise ValueError(f"invalid offset {place.offset} of {partition}: expected 0 or more")
        if not isinstance(place.metadata, str):
            raise TypeError(f"the metadata of {partition} are {place.metadata!r:.60}: give a str")


class State(Enum):
    """The state of a producer."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_SOURCES: Final[dict[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING_TRANSACTION: frozenset({State.IN_TRANSACTION}),
    State.ABORTING_TRANSACTION: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {State.IN_TRANSACTION, State.COMMITTING_TRANSACTION, State.ABORTABLE_ERROR, State.INITIALIZING}
    ),
    State.FATAL_ERROR: frozenset(State),
}
_ERRORS: Final = frozenset({State.ABORTABLE_ERROR, State.FATAL_ERROR})
_COMPLETING: Final = frozenset({State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION})


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity for the broker."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > -1

    def __str__(self) -> str:
        return f"producer id {self.producer_id} and epoch {self.epoch}"


NO_PRODUCER_ID: Final = ProducerIdAndEpoch(-1, -1)


class ProducerState:
    """The state, the last error and the producer id. `transactional_id` is None for an idempotent producer."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self.is_transactional = transactional_id is not None
        self.state = State.UNINITIALIZED
        self.last_error: KafkaError | None = None
        self.producer_id_and_epoch = NO_PRODUCER_ID
        self.io_thread = 0
        """The I/O thread's identity, once it runs."""
        self.lock = threading.RLock()

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    @property
    def has_error(self) -> bool:
        """Whether only an abort or close is possible."""
        return self.state in _ERRORS

    @property
    def has_fatal_error(self) -> bool:
        """Whether the producer can only be closed."""
        return self.state is State.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state is State.ABORTABLE_ERROR

    @property
    def is_completing(self) -> bool:
        return self.state in _COMPLETING

    @property
    def is_aborting(self) -> bool:
        return self.state is State.ABORTING_TRANSACTION

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether a transaction is open, must be aborted, or is being completed (`G36`)."""
        return self.state is State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    def transition_to(self, target: State, error: KafkaError | None = None) -> None:
        """Change the state; error states store the error. Raises IllegalState for an invalid transition."""
        if self.state not in _SOURCES[target]:
            failure = IllegalState(f"{self._name()}{self.state.name} cannot be followed by {target.name}")
            if threading.get_ident() == self.io_thread:
                self.state, self.last_error = State.FATAL_ERROR, failure
            raise failure
        self.state, self.last_error = target, error

    def raise_error(self) -> None:
        """Raise if the state does not allow a transactional call: a new error with the original as its cause."""
        if not self.has_error:
            return
        error = self.last_error
        who = f"the producer with transactional.id '{self.transactional_id}', {self.producer_id_and_epoch},"
        if isinstance(error, ProducerFenced):
            raise ProducerFenced(f"{who} has been replaced by another with the same transactional.id: close it")
        if isinstance(error, InvalidProducerEpoch):
            raise InvalidProducerEpoch(f"{who} has written with an old epoch: abort the transaction")
        if isinstance(error, IllegalState):
            raise IllegalState(f"{who} is broken by a state that may not be: close it") from error
        remedy = "close the producer" if self.has_fatal_error else "abort the transaction"
        raise KafkaError(f"cannot continue after an error: {remedy}. It was: {error}") from error

    def _name(self) -> str:
        return "" if self.transactional_id is None else f"transactional.id '{self.transactional_id}': "


class TransactionalRequestResult:
    """The result of an operation, with its display name: `InitProducerId`, `EndTxn(True)`."""

    __slots__ = ("_callbacks", "_done", "_lock", "error", "is_acked", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.error: KafkaError | None = None
        self.is_acked = False
        """Whether the caller has received the outcome: until then it must repeat the call (KIP-588)."""
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_completed(self) -> bool:
        return self._done.is_set()

    def done(self) -> None:
        """Complete the result: success, unless an error was set before."""
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def fail(self, error: KafkaError) -> None:
        """Complete the result with an error. A later error replaces an earlier one, as in Kafka."""
        self.error = error
        self.done()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once on completion: on the I/O thread, or immediately if already complete."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def acknowledge(self) -> None:
        """Record that the caller received the result. Raises the error of a failed operation."""
        self.is_acked = True
        if self.error is not None:
            raise self.error

    def wait(self, timeout_ms: float, hint: str) -> None:
        """Wait for the result. Raises the operation's error, or DeliveryTimeout with `hint`, the remedy."""
        if not self._done.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
            raise DeliveryTimeout(f"{self.operation} has had no response for {timeout_ms:g} ms (max.block.ms). {hint}")
        self.acknowledge()
