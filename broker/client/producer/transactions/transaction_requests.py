"""The transactional requests, from FindCoordinator and InitProducerId to EndTxn, and the state that they share.

The I/O thread sends one at a time and passes it the response. Errors have Kafka's three kinds: retry, abort the
transaction, close the producer. The queue has Kafka's order: coordinator lookup, producer id, additions to the
transaction, its end. AddPartitionsToTxn and AddOffsetsToTxn belong to transaction protocol 1; with protocol 2 (KIP-890)
Produce and TxnOffsetCommit add their own partitions, and EndTxn returns the next epoch. Older request versions signal
protocol 1 to the broker.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from itertools import count
from typing import Any, ClassVar, Final

from rotunda.broker.client.errors import (
    CommitFailed,
    GroupAuthorizationFailed,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailed,
    error_of,
)
from rotunda.broker.client.network.requests import ApiVersions, Buffer, ClientResponse, codec_request
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.client.producer.transactions.batch_sequences import BatchSequences
from rotunda.broker.client.producer.transactions.transaction_state import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
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
    def has_pending_requests(self) -> bool:
        return bool(self._queue)

    def set_in_flight(self, request: TransactionalRequest, correlation_id: int) -> None:
        request.was_sent = True
        self.in_flight, self.in_flight_correlation_id = request, correlation_id

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
    newest_version: int
    """The newest usable version; of EndTxn and TxnOffsetCommit it signals the transaction's protocol."""
    priority: Priority
    begins_transaction = False
    """Whether the transaction exists at the coordinator afterwards."""
    coordinator_type: CoordinatorType | None = CoordinatorType.TRANSACTION
    """Its coordinator's key; None: any node."""

    def __init__(self, manager: TransactionContext, result: TransactionalRequestResult) -> None:
        self.result = result
        self.is_retry = False
        self.was_sent = False
        self.retry_backoff_ms = manager.retry_backoff_ms
        self._manager = manager

    @property
    def coordinator_key(self) -> str:
        return self._manager.transactional_id or ""

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
        self.is_retry = True
        self._manager.enqueue(self)

    def fatal(self, error: KafkaError) -> None:
        self.result.fail(error)
        self._manager.transition_to_fatal_error(error)

    def abortable(self, error: KafkaError) -> None:
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


#: An idempotent producer has no transactions that could time out.
_NO_TIMEOUT_MS = 0x7FFF_FFFF
#: Backoff for the first partitions of a transaction while the previous one is being completed.
_CONCURRENT_BACKOFF_MS: Final = 20.0
_LOOK_UP_AGAIN: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)
_GROUP_CHANGED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_COMMIT_ABORTABLE: Final = frozenset(
    {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.TRANSACTION_ABORTABLE}
)
_COMMIT_FATAL: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)


class FindCoordinator(TransactionalRequest):
    """Looks up the coordinator of a transactional id or a group."""

    api_key = ApiKey.FIND_COORDINATOR
    newest_version = 6
    priority = Priority.FIND_COORDINATOR
    coordinator_type = None

    def __init__(self, manager: TransactionContext, kind: CoordinatorType, key: str) -> None:
        super().__init__(manager, TransactionalRequestResult("FindCoordinator"))
        self._kind = kind
        self._key = key

    def fields(self) -> Mapping[str, Any]:
        """Return the key, as a list for version 4 and newer."""
        return {"key": self._key, "key_type": self._kind.value, "coordinator_keys": [self._key]}

    def handle(self, response: Any) -> None:
        found = response.coordinators[0] if response.coordinators else response
        code = int(found.error_code)
        if code == ErrorCode.NONE:
            self._manager.coordinators[self._kind] = Node(int(found.node_id), found.host, int(found.port))
            self.result.done()
        elif error_of(code).retriable:
            self.reenqueue()
        elif code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fatal(error_of(code))
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.abortable(GroupAuthorizationFailed(f"the user may not use the group '{self._key}'"))
        elif code == ErrorCode.TRANSACTION_ABORTABLE:
            self.abortable(error_of(code))
        else:
            whose = f"{self._kind.name.lower()} '{self._key}'"
            message = found.error_message
            self.fatal(KafkaError(f"no coordinator was found for the {whose}: {error_of(code, message)}"))


class InitProducerId(TransactionalRequest):
    """Requests a producer id and epoch, or the next epoch of an existing producer id."""

    api_key = ApiKey.INIT_PRODUCER_ID
    newest_version = 5  # version 6 adds two-phase commit (KIP-939), which this producer does not support
    priority = Priority.INIT_PRODUCER_ID

    def __init__(
        self, manager: TransactionContext, present: ProducerIdAndEpoch, result: TransactionalRequestResult | None = None
    ) -> None:
        super().__init__(manager, result or TransactionalRequestResult("InitProducerId"))
        if not manager.is_transactional:
            self.coordinator_type = None
        self._present = present

    def fields(self) -> Mapping[str, Any]:
        """Return the transactional id and the current producer id and epoch."""
        manager = self._manager
        return {
            "transactional_id": manager.transactional_id,
            "transaction_timeout_ms": manager.transaction_timeout_ms if manager.is_transactional else _NO_TIMEOUT_MS,
            "producer_id": self._present.producer_id,
            "producer_epoch": self._present.epoch,
        }

    def handle(self, response: Any) -> None:
        manager = self._manager
        code = int(response.error_code)
        if code == ErrorCode.NONE:
            manager.producer_id_and_epoch = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            manager.transition_to(State.READY)
            if self._present.is_valid:
                manager.reset_sequence_numbers()
            else:
                manager.maybe_update_transaction_v2(on_initialization=True)
            manager.renumber()
            self.result.done()
        elif self.is_sent_again(code):
            return
        elif code in FENCED:
            self.fatal(ProducerFenced())
        elif code in (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTION_ABORTABLE,
        ):
            self.abortable(error_of(code))
        else:
            self.fatal(KafkaError(f"the broker gave no producer id: {error_of(code)}"))


class AddPartitions(TransactionalRequest):
    """Adds partitions to the transaction."""

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    newest_version = 3  # newer ones are for brokers
    begins_transaction = True
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(self, manager: TransactionContext) -> None:
        super().__init__(manager, TransactionalRequestResult("AddPartitionsToTxn"))
        self._sender = manager.producer_id_and_epoch
        self._partitions = sorted(manager.pending_partitions)

    def fields(self) -> Mapping[str, Any]:
        topics: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            topics.setdefault(topic, []).append(partition)
        return {
            "v3_and_below_transactional_id": self._manager.transactional_id,
            "v3_and_below_producer_id": self._sender.producer_id,
            "v3_and_below_producer_epoch": self._sender.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": own} for name, own in topics.items()],
        }

    def handle(self, response: Any) -> None:
        """Allow batches for the partitions, or fail the transaction."""
        manager = self._manager
        self.retry_backoff_ms = manager.retry_backoff_ms
        errors = {
            TopicPartition(topic.name, each.partition_index): int(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        unauthorised = set()
        refused = False
        for partition, code in errors.items():
            if code == ErrorCode.NONE:
                continue
            if code == ErrorCode.CONCURRENT_TRANSACTIONS and not manager.partitions_in_transaction:
                self.retry_backoff_ms = min(_CONCURRENT_BACKOFF_MS, manager.retry_backoff_ms)
            if self.is_sent_again(code):
                return
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorised.add(partition.topic)
            elif self._ends_all(code):
                self.fail_for(code)
                return
            else:
                refused = True
        manager.pending_partitions.difference_update(errors)
        if unauthorised:
            self.abortable(TopicAuthorizationFailed(f"the user may not write to {', '.join(sorted(unauthorised))}"))
        elif refused:
            named = ", ".join(f"{topic}-{index}: {error_of(code)}" for (topic, index), code in errors.items())
            self.abortable(KafkaError(f"partitions could not join the transaction: {named}"))
        else:
            manager.partitions_in_transaction.update(errors)
            manager.transaction_started = True
            self.result.done()

    @staticmethod
    def _ends_all(code: int) -> bool:
        return code in FENCED or code in (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.TRANSACTION_ABORTABLE,
        )


class AddOffsets(TransactionalRequest):
    """Adds a group's offsets to the transaction, before TxnOffsetCommit."""

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    newest_version = 4
    begins_transaction = True
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: TransactionContext,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, TransactionalRequestResult("AddOffsetsToTxn"))
        self._sender = manager.producer_id_and_epoch
        self._offsets = offsets
        self._group = group

    def fields(self) -> Mapping[str, Any]:
        return {
            "transactional_id": self._manager.transactional_id,
            "producer_id": self._sender.producer_id,
            "producer_epoch": self._sender.epoch,
            "group_id": self._group.group_id,
        }

    def handle(self, response: Any) -> None:
        """Enqueue the offset commit, which completes the result."""
        code = int(response.error_code)
        if code == ErrorCode.NONE:
            self._manager.enqueue(TxnOffsetCommit(self._manager, self._offsets, self._group, self.result))
            self._manager.transaction_started = True
        elif not self.is_sent_again(code):
            self.fail_for(code)


class TxnOffsetCommit(TransactionalRequest):
    """Commits a group's offsets with the transaction."""

    api_key = ApiKey.TXN_OFFSET_COMMIT
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    coordinator_type = CoordinatorType.GROUP

    def __init__(
        self,
        manager: TransactionContext,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        result: TransactionalRequestResult,
    ) -> None:
        super().__init__(manager, result)
        self._sender = manager.producer_id_and_epoch
        self._left = dict(offsets)
        self._group = group
        self.newest_version = 5 if manager.transaction_v2 else 4

    @property
    def coordinator_key(self) -> str:
        return self._group.group_id

    def fields(self) -> Mapping[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), place in self._left.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": place.offset,
                    "committed_leader_epoch": place.leader_epoch,
                    "committed_metadata": place.metadata,
                }
            )
        return {
            "transactional_id": self._manager.transactional_id,
            "group_id": self._group.group_id,
            "producer_id": self._sender.producer_id,
            "producer_epoch": self._sender.epoch,
            "generation_id_or_member_epoch": self._group.generation_id,
            "member_id": self._group.member_id,
            "group_instance_id": self._group.group_instance_id,
            "topics": [{"name": name, "partitions": own} for name, own in topics.items()],
        }

    def handle(self, response: Any) -> None:
        """Complete the result, or retry the uncommitted offsets."""
        looked_up = False
        for topic in response.topics:
            for each in topic.partitions:
                code = int(each.error_code)
                if code == ErrorCode.NONE:
                    self._left.pop(TopicPartition(topic.name, each.partition_index), None)
                elif code in _LOOK_UP_AGAIN:
                    if not looked_up:
                        self.find_coordinator_again()
                    looked_up = True
                elif not error_of(code).retriable:
                    self.fail_for(code)
                    return
        if self._left:
            self.reenqueue()
        else:
            self.result.done()

    def fail_for(self, code: int, message: str | None = None) -> None:
        if code in _GROUP_CHANGED:
            text = "the consumer is no longer the member of the group that its metadata names"
            self.abortable(CommitFailed(f"offsets were not committed, {text}: {error_of(code, message)}"))
        elif code in _COMMIT_ABORTABLE:
            self.abortable(error_of(code, message))
        elif code in FENCED:
            self.fatal(ProducerFenced())
        elif code in _COMMIT_FATAL:
            self.fatal(error_of(code, message))
        else:
            self.fatal(KafkaError(f"offsets were refused with an unexpected error: {error_of(code, message)}"))


class EndTxn(TransactionalRequest):
    """Commits or aborts. With protocol 2 the response has the next epoch."""

    api_key = ApiKey.END_TXN
    priority = Priority.END_TXN

    def __init__(self, manager: TransactionContext, committed: bool) -> None:
        super().__init__(manager, TransactionalRequestResult(f"EndTxn({committed})"))
        self._committed = committed
        self._sender = manager.producer_id_and_epoch
        self.newest_version = 5 if manager.transaction_v2 else 4

    def fields(self) -> Mapping[str, Any]:
        return {
            "transactional_id": self._manager.transactional_id,
            "producer_id": self._sender.producer_id,
            "producer_epoch": self._sender.epoch,
            "committed": self._committed,
        }

    def ended(self) -> None:
        """Prepare for the next transaction; if a new epoch is needed, the call ends when it is received."""
        manager = self._manager
        manager.transaction_ended()
        if manager.state is State.READY:
            self.result.done()
        else:
            manager.enqueue(InitProducerId(manager, manager.producer_id_and_epoch, self.result))

    def handle(self, response: Any) -> None:
        code = int(response.error_code)
        if code == ErrorCode.NONE:
            producer_id = int(getattr(response, "producer_id", -1))
            if producer_id != -1:
                self._manager.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, response.producer_epoch)
                self._manager.reset_sequence_numbers()
            self.ended()
        elif self.is_sent_again(code):
            return
        elif code == ErrorCode.TRANSACTION_ABORTABLE and not self._committed:
            # Another abort would fail in the same way, endlessly.
            failure = KafkaError(f"the transaction could not be aborted: {error_of(code)}")
            self.fatal(failure)
        else:
            self.fail_for(code)
