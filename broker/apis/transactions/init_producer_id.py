"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional one.

Without a transactional id the controller handles it, which allocates the ids; with one, the coordinator of the id.
"""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.controller_access import controller_of
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.transactions.transaction_errors import for_version
from rotunda.broker.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Producer
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.security.acl.acls import Operation, ResourceType

#: From this version on clients know PRODUCER_FENCED.
_FENCED_FROM = 4


def handle_init_producer_id(request: Request, broker: BrokerContext, body: Any) -> dict[str, int] | Deferred:
    """Return a producer id and the epoch in which its producer may write.

    An idempotent producer gets a new id with epoch 0, whatever it had before. A transactional one fences all others of
    its id, and an open transaction is aborted first; if the request has its present id and epoch, only the epoch is
    raised (KIP-360).
    """
    if rejection := _rejection(request, broker, body.transactional_id):
        return _rejected(rejection)
    has_id, has_epoch = body.producer_id != NO_PRODUCER_ID, body.producer_epoch != NO_EPOCH
    if has_id != has_epoch:
        return _rejected(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is None:
        try:
            producer_id = controller_of(broker).next_producer_id()
        except ApiError as error:
            return _rejected(error.code)
        return {"producer_id": producer_id, "producer_epoch": 0}
    deferred = Deferred()

    def respond(error: int, metadata: TransactionMetadata | None) -> None:
        if error or metadata is None:
            deferred.complete(_rejected(for_version(error, request, _FENCED_FROM)))
        else:
            deferred.complete({"producer_id": metadata.producer_id, "producer_epoch": metadata.epoch})

    expected = Producer(body.producer_id, body.producer_epoch) if has_id else None
    broker.coordinators.transactions.init_producer_id(
        body.transactional_id, body.transaction_timeout_ms, expected, respond
    )
    return deferred


def _rejected(error: int) -> dict[str, int]:
    return {"error_code": error, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}


def _rejection(request: Request, broker: BrokerContext, transactional_id: str | None) -> int:
    """Return the error for a client that may not write in the transaction, or idempotently (KIP-679); or 0."""
    authorizer, session = broker.metadata.authorizer, request.session
    if authorizer is None:
        return 0
    if transactional_id is not None:
        return broker.access.rejection(request, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if authorizer.allows_any(session, Operation.WRITE, ResourceType.TOPIC):
        return 0
    return broker.access.rejection(request, ResourceType.CLUSTER)
