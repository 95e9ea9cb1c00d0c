"""One request about a producer id or a transaction, and what all of them share of the transaction.

The I/O thread sends one at a time and calls it back with the answer. Errors are Kafka's three kinds: try again, abort
the transaction, close the producer. The order of the queue is Kafka's: who the coordinator is, then the producer id,
then what joins the transaction, then its end. The requests stand in `coordinator_requests` and `transaction_requests`.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from itertools import count
from typing import Any, ClassVar, Final

from rotunda.broker.client.errors import KafkaError, ProducerFenced, error_of
from rotunda.broker.client.network.api_versions import ApiVersions
from rotunda.broker.client.network.requests import Buffer, ClientResponse, codec_request
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
"""Coordinators of old answer the first where newer ones answer the second."""
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
    """Which request goes first."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3


class CoordinatorType(Enum):
    """Whose coordinator is asked: Kafka's numbers in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class TransactionContext(BatchSequences, ABC):
    """The transaction as its requests see it, and the queue that they stand in."""

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
        """Whether the coordinator may know of the transaction, so that it must be ended there."""
        self.in_flight: TransactionalRequest | None = None
        """The request that waits for its answer, under `in_flight_correlation_id`."""
        self.in_flight_correlation_id = _NO_CORRELATION_ID
        self.new_partitions: set[TopicPartition] = set()
        """Written to, and in no request yet (protocol 1)."""
        self.pending_partitions: set[TopicPartition] = set()
        """In a request that has no answer yet (protocol 1)."""
        self.partitions_in_transaction: set[TopicPartition] = set()
        self._queue: list[tuple[Priority, int, TransactionalRequest]] = []
        self._arrivals = count()
        self._features_epoch = -1

    @abstractmethod
    def lookup_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Forget a coordinator and ask for it."""

    def enqueue(self, request: TransactionalRequest) -> None:
        """Take a request that is to be sent. A producer that can only be closed sends no more: it fails."""
        if self.has_fatal_error and self.last_error is not None:
            request.result.fail(self.last_error)
            return
        heapq.heappush(self._queue, (request.priority, next(self._arrivals), request))

    @property
    def has_in_flight_request(self) -> bool:
        """Whether a request waits for its answer."""
        return self.in_flight is not None

    @property
    def has_pending_requests(self) -> bool:
        """Whether any is to be sent."""
        return bool(self._queue)

    def set_in_flight(self, request: TransactionalRequest, correlation_id: int) -> None:
        """Take note of the request that was sent."""
        request.was_sent = True
        self.in_flight, self.in_flight_correlation_id = request, correlation_id

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None:
        """Take what the broker has given."""
        self.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch)

    def transaction_ended(self) -> None:
        """Be ready for the next transaction, or for a new epoch first."""
        self.transition_to(State.INITIALIZING if self.epoch_bump_required else State.READY)
        self.epoch_bump_required = False
        self.transaction_started = False
        self.new_partitions.clear()
        self.pending_partitions.clear()
        self.partitions_in_transaction.clear()

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Let the producer only be closed; what is queued has failed."""
        with self.lock:
            super().transition_to_fatal_error(error)
            queue, self._queue = self._queue, []
            for _, _, request in queue:
                request.result.fail(error)

    def maybe_update_transaction_v2(self, on_initialization: bool) -> None:
        """See which protocol the cluster speaks now. One that has become 2 takes a new epoch first (KIP-890).

        The new epoch fences what is left of the old protocol, whose partitions were added by requests of their own.
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
    """Whether the coordinator knows of the transaction from it on."""
    coordinator_type: CoordinatorType | None = CoordinatorType.TRANSACTION
    """Whose coordinator it goes to; None: to any node."""

    def __init__(self, manager: TransactionContext, result: TransactionalRequestResult) -> None:
        self.result = result
        self.is_retry = False
        self.was_sent = False
        self._manager = manager

    @property
    @abstractmethod
    def newest_version(self) -> int:
        """The newest version that means what is meant."""

    @property
    def coordinator_key(self) -> str:
        """The name by which its coordinator is found."""
        return self._manager.transactional_id or ""

    @property
    def retry_backoff_ms(self) -> float:
        """How long to wait before it is sent again."""
        return self._manager.retry_backoff_ms

    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """Return what it says, by Kafka's names."""

    @abstractmethod
    def handle(self, answer: Any) -> None:
        """Take the answer, under the manager's lock."""

    def build(self, version: int, correlation_id: int, client_id: str) -> Sequence[Buffer]:
        """Return the request's bytes behind their size."""
        return codec_request(self.api_key, self.fields())(version, correlation_id, client_id)

    def on_complete(self, response: ClientResponse) -> None:
        """Take what came of it: an answer, or none."""
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
        """Ask who the coordinator is, if it has one."""
        if self.coordinator_type is not None:
            self._manager.lookup_coordinator(self.coordinator_type, self.coordinator_key)

    def reenqueue(self) -> None:
        """Send it again."""
        self.is_retry = True
        self._manager.enqueue(self)

    def fatal(self, error: KafkaError) -> None:
        """Fail it and the producer."""
        self.result.fail(error)
        self._manager.transition_to_fatal_error(error)

    def abortable(self, error: KafkaError) -> None:
        """Fail it and the transaction."""
        self.result.fail(error)
        self._manager.transition_to_abortable_error(error)

    def abortable_if_possible(self, error: KafkaError) -> None:
        """Fail it and the transaction, or the producer where there is no way to a new epoch."""
        if not self._manager.can_handle_abortable_error:
            self.fatal(error)
            return
        if self._manager.bumps_epoch_itself:
            self._manager.epoch_bump_required = True
        self.abortable(error)

    def is_sent_again(self, code: int) -> bool:
        """Return whether an error passes, and then see to it that the request is sent again."""
        if code in _COORDINATOR_MOVED:
            self.find_coordinator_again()
        elif not error_of(code).retriable:
            return False
        self.reenqueue()
        return True

    def fail_for(self, code: int, message: str | None = None) -> None:
        """Fail it for an error that does not pass."""
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
            self.fatal(KafkaError(f"{self.api_key.name} was answered with an unexpected error: {error}"))
