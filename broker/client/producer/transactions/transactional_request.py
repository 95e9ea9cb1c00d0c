"""Base of the transactional requests, and the transaction state that they share.

The I/O thread sends one at a time and passes it the response. Errors have Kafka's three kinds: retry, abort the
transaction, close the producer. The queue has Kafka's order: coordinator lookup, producer id, additions to the
transaction, its end. `transaction_requests` has the requests.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from itertools import count
from typing import Any, ClassVar, Final

from rotunda.broker.client.errors import KafkaError, ProducerFenced, error_of
from rotunda.broker.client.network.requests import ApiVersions, Buffer, ClientResponse, codec_request
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.client.producer.transactions.batch_sequences import BatchSequences
from rotunda.broker.client.producer.transactions.transaction_state import (
    ProducerIdAndEpoch,
    State,
    TransactionalRequestResult,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Older coordinators return the first instead of the second."""
_COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED})
_TRANSACTION_FEATURE: Final = "transaction.version"
_NO_CORRELATION_ID: Final = -1


class Priority(IntEnum):
    """Order of the requests in the queue."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3


class CoordinatorType(Enum):
    """The kind of coordinator: Kafka's numbers in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class TransactionContext(BatchSequences, ABC):
    """The transaction, as used by its requests, and the request queue."""

    def __init__(
        self,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        retry_backoff_ms: float,
        api_versions: ApiVersions,
    ) -> None:
        super().__init__(transactional_id)
        self.transaction_timeout_ms = transaction_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.api_versions = api_versions
        self.coordinators: dict[CoordinatorType, Node] = {}
        self.transaction_started = False
        """Whether the transaction may exist at the coordinator, and has to be ended there."""
        self.in_flight: TransactionalRequest | None = None
        """The request that waits for its response, under `in_flight_correlation_id`."""
        self.in_flight_correlation_id = _NO_CORRELATION_ID
        self.new_partitions: set[TopicPartition] = set()
        """With records, and in no request yet (protocol 1)."""
        self.pending_partitions: set[TopicPartition] = set()
        """In a request without a response yet (protocol 1)."""
        self.partitions_in_transaction: set[TopicPartition] = set()
        self._queue: list[tuple[Priority, int, TransactionalRequest]] = []
        self._arrivals = count()
        self._features_epoch = -1

    @abstractmethod
    def lookup_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Discard a coordinator and look it up again."""

    def enqueue(self, request: TransactionalRequest) -> None:
        """Queue a request; it fails at once if the producer has a fatal error."""
        if self.has_fatal_error and self.last_error is not None:
            request.result.fail(self.last_error)
            return
        heapq.heappush(self._queue, (request.priority, next(self._arrivals), request))

    @property
    def has_in_flight_request(self) -> bool:
        """Whether a request awaits its response."""
        return self.in_flight is not None

    @property
    def has_pending_requests(self) -> bool:
        """Whether the queue has requests."""
        return bool(self._queue)

    def set_in_flight(self, request: TransactionalRequest, correlation_id: int) -> None:
        """Record the request that was sent."""
        request.was_sent = True
        self.in_flight, self.in_flight_correlation_id = request, correlation_id

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None:
        """Store the id and epoch assigned by the broker."""
        self.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch)

    def transaction_ended(self) -> None:
        """Prepare for the next transaction, or for a new epoch first."""
        self.transition_to(State.INITIALIZING if self.epoch_bump_required else State.READY)
        self.epoch_bump_required = False
        self.transaction_started = False
        self.new_partitions.clear()
        self.pending_partitions.clear()
        self.partitions_in_transaction.clear()

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Fail the producer permanently, and all queued requests."""
        with self.lock:
            super().transition_to_fatal_error(error)
            queue, self._queue = self._queue, []
            for _, _, request in queue:
                request.result.fail(error)

    def maybe_update_transaction_v2(self, on_initialization: bool) -> None:
        """Update the cluster's transaction protocol. A change to protocol 2 requires a new epoch first (KIP-890).

        The new epoch fences remaining requests of the old protocol, which adds partitions by separate requests.
        """
        epoch, levels = self.api_versions.finalized_features
        if epoch <= self._features_epoch:
            return
        self._features_epoch = epoch
        was = self.transaction_v2
        self.transaction_v2 = levels.get(_TRANSACTION_FEATURE, 0) >= 2
        if not on_initialization and self.transaction_v2 and not was:
            self.epoch_bump_required = True


class TransactionalRequest(ABC):
    """A request in the transaction manager's queue."""

    api_key: ClassVar[ApiKey]
    priority: Priority
    begins_transaction = False
    """Whether the transaction exists at the coordinator afterwards."""
    coordinator_type: CoordinatorType | None = CoordinatorType.TRANSACTION
    """Its coordinator's key; None: any node."""

    def __init__(self, manager: TransactionContext, result: TransactionalRequestResult) -> None:
        self.result = result
        self.is_retry = False
        self.was_sent = False
        self._manager = manager

    @property
    @abstractmethod
    def newest_version(self) -> int:
        """The newest usable version."""

    @property
    def coordinator_key(self) -> str:
        """The key of its coordinator lookup."""
        return self._manager.transactional_id or ""

    @property
    def retry_backoff_ms(self) -> float:
        """Wait before a retry."""
        return self._manager.retry_backoff_ms

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Return the request's fields by Kafka's names."""

    @abstractmethod
    def handle(self, response: Any) -> None:
        """Handle the response, under the manager's lock."""

    def build(self, version: int, correlation_id: int, client_id: str) -> Sequence[Buffer]:
        """Return the request's bytes, including the size prefix."""
        return codec_request(self.api_key, self.fields())(version, correlation_id, client_id)

    def on_complete(self, response: ClientResponse) -> None:
        """Handle the result: a response, or a failure."""
        manager = self._manager
        with manager.lock:
            if response.request.correlation_id != manager.in_flight_correlation_id:
                self.fatal(KafkaError("two requests of one transaction were under way at once"))
                return
            manager.in_flight, manager.in_flight_correlation_id = None, _NO_CORRELATION_ID
            if response.disconnected:
                self.find_coordinator_again()
                self.reenqueue()
            elif response.version_mismatch is not None:
                self.fatal(response.version_mismatch)
            else:
                self.handle(response.body)

    def find_coordinator_again(self) -> None:
        """Look up the coordinator again, if the request has one."""
        if self.coordinator_type is not None:
            self._manager.lookup_coordinator(self.coordinator_type, self.coordinator_key)

    def reenqueue(self) -> None:
        """Queue the request for a retry."""
        self.is_retry = True
        self._manager.enqueue(self)

    def fatal(self, error: KafkaError) -> None:
        """Fail the request and the producer."""
        self.result.fail(error)
        self._manager.transition_to_fatal_error(error)

    def abortable(self, error: KafkaError) -> None:
        """Fail the request and the transaction."""
        self.result.fail(error)
        self._manager.transition_to_abortable_error(error)

    def abortable_if_possible(self, error: KafkaError) -> None:
        """Fail the request and the transaction, or the producer if no new epoch can be obtained."""
        if not self._manager.can_handle_abortable_error:
            self.fatal(error)
            return
        if self._manager.bumps_epoch_itself:
            self._manager.epoch_bump_required = True
        self.abortable(error)

    def is_sent_again(self, code: int) -> bool:
        """Return whether the error is retriable; if so, queue the request again."""
        if code in _COORDINATOR_MOVED:
            self.find_coordinator_again()
        elif not error_of(code).retriable:
            return False
        self.reenqueue()
        return True

    def fail_for(self, code: int, message: str | None = None) -> None:
        """Fail the request with a permanent error."""
        if code in FENCED:
            self.fatal(ProducerFenced())
        elif code in _FATAL:
            self.fatal(error_of(code, message))
        elif code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self.abortable_if_possible(error_of(code, message))
        elif code in _ABORTABLE:
            self.abortable(error_of(code, message))
        else:
            error = error_of(code, message)
            self.fatal(KafkaError(f"{self.api_key.name} returned an unexpected error: {error}"))
