"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional one.

Without a transactional id the controller answers, which hands the ids out; with one, the coordinator of the id.
"""

from __future__ import annotations

from broker.apis.cluster.controller_access import controller_of
from broker.apis.context import RequestContext
from broker.apis.transactions.transaction_errors import for_version
from broker.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from broker.errors import ApiError
from broker.partitions.transaction_messages import Producer
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.scheduling.deferred import Deferred

#: From this version on clients know PRODUCER_FENCED.
_FENCED_FROM = 4


def handle_init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred:
    """Return a producer id and the epoch in which its producer may write.

    An idempotent producer gets a new id with epoch 0, whatever it had before. A transactional one fences all others of
    its id, and an open transaction is aborted first; what it had before, if it says so, is only raised (KIP-360).
    """
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_EPOCH
    if has_id != has_epoch:
        return InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        try:
            producer_id = controller_of(context).next_producer_id()
        except ApiError as error:
            return InitProducerIdResponse(0, error.code)
        return InitProducerIdResponse(0, 0, producer_id, 0)
    deferred = Deferred()

    def answer(error: int, metadata: TransactionMetadata | None) -> None:
        if error or metadata is None:
            deferred.complete(InitProducerIdResponse(0, for_version(error, context, _FENCED_FROM)))
        else:
            deferred.complete(InitProducerIdResponse(0, 0, metadata.producer_id, metadata.epoch))

    expected = Producer(request.producer_id, request.producer_epoch) if has_id else None
    context.broker.coordinators.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected, answer
    )
    return deferred
