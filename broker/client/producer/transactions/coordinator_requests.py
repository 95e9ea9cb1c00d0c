"""Who coordinates, and who the producer is: FindCoordinator and InitProducerId."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.client.errors import GroupAuthorizationFailed, KafkaError, ProducerFenced, error_of
from broker.client.network.cluster.snapshot import Node
from broker.client.producer.transactions.transaction_state import ProducerIdAndEpoch, State
from broker.client.producer.transactions.transactional_request import (
    FENCED,
    CoordinatorType,
    Priority,
    TransactionalRequest,
    TransactionContext,
)
from broker.client.producer.transactions.transactional_result import TransactionalRequestResult
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode

#: An idempotent producer has no transactions that could time out.
_NO_TIMEOUT_MS = 0x7FFF_FFFF
_NEWEST_FIND_COORDINATOR = 6
#: Version 6 is that of two-phase commit (KIP-939), which this producer has not.
_NEWEST_INIT_PRODUCER_ID = 5


class FindCoordinator(TransactionalRequest):
    """Which node coordinates a transactional id, or a group."""

    api_key = ApiKey.FIND_COORDINATOR
    priority = Priority.FIND_COORDINATOR
    coordinator_type = None

    def __init__(self, manager: TransactionContext, kind: CoordinatorType, key: str) -> None:
        super().__init__(manager, TransactionalRequestResult("FindCoordinator"))
        self._kind = kind
        self._key = key

    @property
    def newest_version(self) -> int:
        """Kafka 4.3's."""
        return _NEWEST_FIND_COORDINATOR

    def fields(self) -> Mapping[str, Any]:
        """Return the key, as a list for version 4 and newer."""
        return {"key": self._key, "key_type": self._kind.value, "coordinator_keys": [self._key]}

    def handle(self, answer: Any) -> None:
        """Take the node."""
        found = answer.coordinators[0] if answer.coordinators else answer
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
    """A producer id and an epoch, or for a producer that has an id the next epoch."""

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
        """The newest without two-phase commit."""
        return _NEWEST_INIT_PRODUCER_ID

    def fields(self) -> Mapping[str, Any]:
        """Return who asks, and whom it knows itself to be."""
        manager = self._manager
        return {
            "transactional_id": manager.transactional_id,
            "transaction_timeout_ms": manager.transaction_timeout_ms if manager.is_transactional else _NO_TIMEOUT_MS,
            "producer_id": self._present.producer_id,
            "producer_epoch": self._present.epoch,
        }

    def handle(self, answer: Any) -> None:
        """Take id and epoch."""
        manager = self._manager
        code = int(answer.error_code)
        if code == ErrorCode.NONE:
            manager.set_producer_id_and_epoch(int(answer.producer_id), int(answer.producer_epoch))
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
