"""The transactional requests, from FindCoordinator and InitProducerId to EndTxn.

AddPartitionsToTxn and AddOffsetsToTxn belong to transaction protocol 1; with protocol 2 (KIP-890) Produce and
TxnOffsetCommit add their own partitions, and EndTxn returns the next epoch. Older request versions signal protocol 1 to
the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rotunda.broker.client.errors import (
    CommitFailed,
    GroupAuthorizationFailed,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailed,
    error_of,
)
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.client.producer.transactions.transaction_state import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    State,
    TransactionalRequestResult,
)
from rotunda.broker.client.producer.transactions.transactional_request import (
    FENCED,
    CoordinatorType,
    Priority,
    TransactionalRequest,
    TransactionContext,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

#: An idempotent producer has no transactions that could time out.
_NO_TIMEOUT_MS = 0x7FFF_FFFF
_NEWEST_FIND_COORDINATOR = 6
#: Version 6 adds two-phase commit (KIP-939), which this producer does not support.
_NEWEST_INIT_PRODUCER_ID = 5
#: Backoff for the first partitions of a transaction while the previous one is being completed.
_CONCURRENT_BACKOFF_MS: Final = 20.0
_NEWEST_ADD_PARTITIONS: Final = 3
_NEWEST_ADD_OFFSETS: Final = 4
_NEWEST_END_TXN: Final = 5
_NEWEST_END_TXN_V1: Final = 4
_NEWEST_OFFSET_COMMIT: Final = 5
_NEWEST_OFFSET_COMMIT_V1: Final = 4
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
    priority = Priority.FIND_COORDINATOR
    coordinator_type = None

    def __init__(self, manager: TransactionContext, kind: CoordinatorType, key: str) -> None:
        super().__init__(manager, TransactionalRequestResult("FindCoordinator"))
        self._kind = kind
        self._key = key

    @property
    def newest_version(self) -> int:
        """The newest version of Kafka 4.3."""
        return _NEWEST_FIND_COORDINATOR

    def fields(self) -> Mapping[str, Any]:
        """Return the key, as a list for version 4 and newer."""
        return {"key": self._key, "key_type": self._kind.value, "coordinator_keys": [self._key]}

    def handle(self, response: Any) -> None:
        """Store the coordinator."""
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
    priority = Priority.INIT_PRODUCER_ID

    def __init__(
        self, manager: TransactionContext, present: ProducerIdAndEpoch, result: TransactionalRequestResult | None = None
    ) -> None:
        super().__init__(manager, result or TransactionalRequestResult("InitProducerId"))
        if not manager.is_transactional:
            self.coordinator_type = None
        self._present = present

    @property
    def newest_version(self) -> int:
        """The newest version without two-phase commit."""
        return _NEWEST_INIT_PRODUCER_ID

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
        """Store the producer id and epoch."""
        manager = self._manager
        code = int(response.error_code)
        if code == ErrorCode.NONE:
            manager.set_producer_id_and_epoch(int(response.producer_id), int(response.producer_epoch))
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
    begins_transaction = True
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(self, manager: TransactionContext) -> None:
        super().__init__(manager, TransactionalRequestResult("AddPartitionsToTxn"))
        self._sender = manager.producer_id_and_epoch
        self._partitions = sorted(manager.pending_partitions)
        self._backoff_ms = manager.retry_backoff_ms

    @property
    def newest_version(self) -> int:
        """The newest version for clients."""
        return _NEWEST_ADD_PARTITIONS

    @property
    def retry_backoff_ms(self) -> float:
        """Shorter while the previous transaction is being completed."""
        return self._backoff_ms

    def fields(self) -> Mapping[str, Any]:
        """Return the partitions."""
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
        self._backoff_ms = manager.retry_backoff_ms
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
                self._backoff_ms = min(_CONCURRENT_BACKOFF_MS, manager.retry_backoff_ms)
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

    @property
    def newest_version(self) -> int:
        """The newest version of Kafka 4.3."""
        return _NEWEST_ADD_OFFSETS

    def fields(self) -> Mapping[str, Any]:
        """Return the group."""
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
        self._newest = _NEWEST_OFFSET_COMMIT if manager.transaction_v2 else _NEWEST_OFFSET_COMMIT_V1

    @property
    def newest_version(self) -> int:
        """The version signals the transaction's protocol."""
        return self._newest

    @property
    def coordinator_key(self) -> str:
        """The group id."""
        return self._group.group_id

    def fields(self) -> Mapping[str, Any]:
        """Return the uncommitted offsets."""
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
        """Fail the request with a permanent error."""
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
        self._newest = _NEWEST_END_TXN if manager.transaction_v2 else _NEWEST_END_TXN_V1

    @property
    def newest_version(self) -> int:
        """The version signals the transaction's protocol."""
        return self._newest

    def fields(self) -> Mapping[str, Any]:
        """Return whether to commit or abort."""
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
        """Prepare for the next transaction."""
        code = int(response.error_code)
        if code == ErrorCode.NONE:
            producer_id = int(getattr(response, "producer_id", -1))
            if producer_id != -1:
                self._manager.set_producer_id_and_epoch(producer_id, int(response.producer_epoch))
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
