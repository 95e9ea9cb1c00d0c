"""InitProducerId: a producer id for an idempotent producer. The controller hands the ids out."""

from __future__ import annotations

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.server.handlers.controlling import controller_of
from broker.server.request_context import RequestContext


def handle_init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0, whatever id the producer had before.

    A transactional id is answered as by a broker that knows no transactions: UNSUPPORTED_VERSION, which ends
    the client's attempts; an empty one is INVALID_REQUEST.
    """
    if request.transactional_id is not None:
        empty = not request.transactional_id
        return InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION)
    try:
        producer_id = controller_of(context).next_producer_id()
    except ApiError as error:
        return InitProducerIdResponse(0, error.code)
    return InitProducerIdResponse(0, 0, producer_id, 0)
