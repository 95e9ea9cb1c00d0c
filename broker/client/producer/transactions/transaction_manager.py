"""Producer ids and transactions, for the producer's calls and its I/O thread. Kafka's TransactionManager.

An application thread begins and ends transactions; the required requests are queued, and the I/O thread sends them
(`next_request`). Calls return a `TransactionalRequestResult` to wait for. One lock guards the state; it is never held
during a wait. An idempotent producer uses the same manager without a transactional id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rotunda.broker.client.errors import IllegalState, KafkaError, ProducerClosed
from rotunda.broker.client.network.requests import ApiVersions
from rotunda.broker.client.producer.transactions.transaction_requests import (
    AddOffsets,
    AddPartitions,
    CoordinatorType,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TransactionalRequest,
    TransactionContext,
    TxnOffsetCommit,
)
from rotunda.broker.client.producer.transactions.transaction_state import (
    NO_PRODUCER_ID,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    State,
    TransactionalRequestResult,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey

_FIRST_WITH_EPOCH_BUMP = 3


class PendingTransition(NamedTuple):
    """A call that timed out before its result was returned: only the same call may follow (KIP-588)."""

    result: TransactionalRequestResult
    target: State
    operation: str


class TransactionManager(TransactionContext):
    """The manager. `transactional_id` is None for an idempotent producer."""

    def __init__(
        self,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        retry_backoff_ms: float,
        api_versions: ApiVersions,
    ) -> None:
        super().__init__(transactional_id, transaction_timeout_ms, retry_backoff_ms, api_versions)
        self._pending_transition: PendingTransition | None = None

    # Called by the producer's methods.

    def initialize_transactions(self) -> TransactionalRequestResult:
        """Start to request a producer id. Raises IllegalState, and the error of a failed producer."""
        with self.lock:
            self.raise_error()

            def begin() -> TransactionalRequestResult:
                self.transition_to(State.INITIALIZING)
                request = InitProducerId(self, NO_PRODUCER_ID)
                self.enqueue(request)
                return request.result

            return self._once(begin, State.INITIALIZING, "init_transactions")

    def begin_transaction(self) -> None:
        """Begin a transaction; the broker learns of it with the first record. Raises as above."""
        with self.lock:
            self._check_transactional()
            self._reject_if_pending("begin_transaction")
            self.raise_error()
            self.transition_to(State.IN_TRANSACTION)

    def begin_commit(self) -> TransactionalRequestResult:
        """Start to commit. Raises as above."""
        with self.lock:

            def begin() -> TransactionalRequestResult:
                self.raise_error()
                self.transition_to(State.COMMITTING_TRANSACTION)
                return self._begin_completing(committed=True)

            return self._once(begin, State.COMMITTING_TRANSACTION, "commit_transaction")

    def begin_abort(self) -> TransactionalRequestResult:
        """Start to abort, also after an abortable error. Raises as above."""
        with self.lock:

            def begin() -> TransactionalRequestResult:
                if not self.has_abortable_error:
                    self.raise_error()
                self.transition_to(State.ABORTING_TRANSACTION)
                self.new_partitions.clear()
                return self._begin_completing(committed=False)

            return self._once(begin, State.ABORTING_TRANSACTION, "abort_transaction")

    def _begin_completing(self, committed: bool) -> TransactionalRequestResult:
        if self.new_partitions:
            self.enqueue(self._add_partitions())
        end = EndTxn(self, committed)
        # Update only now: the transaction ends with the protocol it began with; the next uses the current one.
        self.maybe_update_transaction_v2(on_initialization=False)
        self.enqueue(end)
        return end.result

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalRequestResult:
        """Start to commit a consumer's offsets with the transaction. Raises as above."""
        with self.lock:
            self._check_transactional()
            self._reject_if_pending("send_offsets_to_transaction")
            self.raise_error()
            if self.state is not State.IN_TRANSACTION:
                raise IllegalState(f"offsets can only be sent in a transaction; the state is {self.state.name}")
            request: TransactionalRequest
            if self.transaction_v2:
                request = TxnOffsetCommit(self, offsets, group, TransactionalRequestResult("TxnOffsetCommit"))
                self.transaction_started = True
            else:
                request = AddOffsets(self, offsets, group)
            self.enqueue(request)
            return request.result

    def check_send(self) -> None:
        """Raise an error if a record may not be sent now; otherwise a later transaction would write its batch."""
        if not self.is_transactional:
            self.raise_error()
            return
        if self.state is State.IN_TRANSACTION and self._pending_transition is None:
            return
        with self.lock:
            self.raise_error()
            self._reject_if_pending("send")
            if not self.has_producer_id:
                raise IllegalState("records can be sent after init_transactions() has succeeded")
            if self.state is not State.IN_TRANSACTION:
                raise IllegalState(f"records can only be sent in a transaction; the state is {self.state.name}")

    def maybe_add_partition(self, partition: TopicPartition) -> None:
        """Add a record's partition to the transaction; called per record, and cheap. Raises as above."""
        if not self.is_transactional:
            return
        if (
            self.state is State.IN_TRANSACTION
            and self._pending_transition is None
            and partition in self.partitions_in_transaction
        ):
            return
        with self.lock:
            self.check_send()
            if self.transaction_v2:
                self.partitions_in_transaction.add(partition)
                self.transaction_started = True
            elif partition not in self.partitions_in_transaction and partition not in self.pending_partitions:
                self.new_partitions.add(partition)

    # Called by the I/O thread.

    def is_send_to_partition_allowed(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be sent to the partition: in a transaction only after the partition was added."""
        if self.has_fatal_error:
            return False
        return not self.is_transactional or partition in self.partitions_in_transaction

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """For an idempotent producer: bump the epoch and request a producer id if needed."""
        if self.is_transactional:
            return
        if self.epoch_bump_required:
            self.bump_idempotent_epoch()
        if self.state is not State.INITIALIZING and not self.has_producer_id:
            with self.lock:
                self.transition_to(State.INITIALIZING)
                self.enqueue(InitProducerId(self, NO_PRODUCER_ID))

    def next_request(self, has_incomplete_batches: bool) -> TransactionalRequest | None:
        """Return the next request to send. A transaction is not ended before all of its batches are complete."""
        with self.lock:
            if self.new_partitions:
                self.enqueue(self._add_partitions())
            request = self._peek()
            if request is None or (isinstance(request, EndTxn) and has_incomplete_batches):
                return None
            self._pop()
            if self._is_failed_by_error(request):
                return None
            if isinstance(request, EndTxn) and not self.transaction_started:
                request.ended()  # the transaction is empty: it is unknown to the coordinator
                return self._pop()
            return request

    def lookup_coordinator(self, kind: CoordinatorType, key: str) -> None:
        with self.lock:
            self.coordinators.pop(kind, None)
            self.enqueue(FindCoordinator(self, kind, key))

    def handle_coordinator_ready(self) -> None:
        """Check the transaction coordinator's API versions after it is connected."""
        node = self.coordinators.get(CoordinatorType.TRANSACTION)
        versions = None if node is None else self.api_versions.get(node.id)
        served = None if versions is None else versions.ranges.get(ApiKey.INIT_PRODUCER_ID)
        self.coordinator_bumps_epochs = served is not None and served[1] >= _FIRST_WITH_EPOCH_BUMP

    def fail_pending_requests(self, error: KafkaError) -> None:
        with self.lock:
            for _, _, request in sorted(self._queue):
                request.abortable(error)

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Fail the producer permanently, and the call in progress."""
        with self.lock:
            super().transition_to_fatal_error(error)
            self._fail_transition(error)

    def transition_to_uninitialized(self, error: KafkaError) -> None:
        """Reset after an authorization error: `init_transactions` may be called again."""
        with self.lock:
            self.transition_to(State.UNINITIALIZED)
            self._queue.clear()
            self._fail_transition(error)

    def close(self) -> None:
        """Fail the queued requests: the producer is closed by force (`G36`)."""
        with self.lock:
            error = ProducerClosed("the producer was closed before the response")
            if self.in_flight is not None:
                self.in_flight.result.fail(error)
            self.transition_to_fatal_error(error)

    def _fail_transition(self, error: KafkaError) -> None:
        if self._pending_transition is not None and not self._pending_transition.result.is_completed:
            self._pending_transition.result.fail(error)

    def _add_partitions(self) -> AddPartitions:
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        return AddPartitions(self)

    def _peek(self) -> TransactionalRequest | None:
        return self._queue[0][2] if self._queue else None

    def _pop(self) -> TransactionalRequest | None:
        return heapq.heappop(self._queue)[2] if self._queue else None

    def _is_failed_by_error(self, request: TransactionalRequest) -> bool:
        if self.last_error is None or not self.has_error:
            return False
        if self.has_abortable_error and (isinstance(request, FindCoordinator) or self._may_have_begun(request)):
            return False  # needed for the abort
        request.result.fail(self.last_error)
        return True

    @staticmethod
    def _may_have_begun(request: TransactionalRequest) -> bool:
        """Return whether the coordinator may know of the transaction: the response to a request was lost.

        Then the request is retried, so that an abort is certain to find a transaction: a new epoch during an open
        transaction would fence this producer itself.
        """
        return request.begins_transaction and request.was_sent

    def _once(
        self, begin: Callable[[], TransactionalRequestResult], target: State, operation: str
    ) -> TransactionalRequestResult:
        """Return a call's result; that of the previous call as long as no caller has received it."""
        self._check_transactional()
        pending = self._pending_transition
        if pending is not None and not pending.result.is_acked:
            if pending.target is not target:
                self._reject_if_pending(operation)
            return pending.result
        result = begin()
        self._pending_transition = PendingTransition(result, target, operation)
        return result

    def _reject_if_pending(self, operation: str) -> None:
        pending = self._pending_transition
        if pending is None:
            return
        if not pending.result.is_acked:
            raise IllegalState(
                f"{operation}() is not possible now: {pending.operation}() timed out before, and must be called again"
            )
        self._pending_transition = None

    def _check_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalState("this producer has no transactions: set transactional.id")
