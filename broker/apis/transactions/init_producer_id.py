"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional one.

Without a transactional id the controller answers, which hands the ids out; with one, the coordinator of the id.
"""

from __future__ import annotations

from typing import Any

from broker.apis.cluster.controller_access import controller_of
from broker.apis.context import RequestContext
from broker.apis.transactions.transaction_errors import for_version
from broker.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from broker.errors import ApiError
from broker.partitions.transaction_messages import Producer
from broker.protocol.error_codes import ErrorCode
from broker.scheduling.deferred import Deferred
from broker.security.acl.acls import Operation, ResourceType

#: From this version on clients know PRODUCER_FENCED.
_FENCED_FROM = 4


def handle_init_producer_id(context: RequestContext, request: Any) -> dict[str, int] | Deferred:
    """Return a producer id and the epoch in which its producer may write.

    An idempotent producer gets a new id with epoch 0, whatever it had before. A transactional one fences all others of
    its id, and an open transaction is aborted first; what it had before, if it says so, is only raised (KIP-360).
    """
    if refusal := _refusal(context, request.transactional_id):
        return _refused(refusal)
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_EPOCH
    if has_id != has_epoch:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        try:
            producer_id = controller_of(context).next_producer_id()
        except ApiError as error:
            return _refused(error.code)
        return {"producer_id": producer_id, "producer_epoch": 0}
    deferred = Deferred()

    def answer(error: int, metadata: TransactionMetadata | None) -> None:
        if error or metadata is None:
            deferred.complete(_refused(for_version(error, context, _FENCED_FROM)))
        else:
            deferred.complete({"producer_id": metadata.producer_id, "producer_epoch": metadata.epoch})

    expected = Producer(request.producer_id, request.producer_epoch) if has_id else None
    context.broker.coordinators.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected, answer
    )
    return deferred


def _refused(error: int) -> dict[str, int]:
    return {"error_code": error, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}


def _refusal(context: RequestContext, transactional_id: str | None) -> int:
    """Return the error for who may not write in that transaction, or without one not at all (KIP-679); or 0."""
    authorizer, session = context.broker.metadata.authorizer, context.session
    if authorizer is None:
        return 0
    if transactional_id is not None:
        return context.refusal(ResourceType.TRANSACTIONAL_ID, transactional_id)
    if authorizer.allows_any(session, Operation.WRITE, ResourceType.TOPIC):
        return 0
    return context.refusal(ResourceType.CLUSTER)
