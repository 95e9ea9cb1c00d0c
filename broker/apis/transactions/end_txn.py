"""EndTxn: commits or aborts a transaction. The response waits for its markers in every partition."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.transactions.transaction_errors import for_version
from rotunda.broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM, TransactionMetadata
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Producer
from rotunda.broker.scheduling.deferred import Deferred

#: From this version on the response has the producer's next epoch (KIP-890).
_EPOCH_BUMP_VERSION = 5


def handle_end_txn(request: Request, broker: BrokerContext, body: Any) -> dict[str, int] | Deferred:
    """Return an error code and, from version 5, the producer id and epoch of the next transaction."""
    deferred = Deferred()
    client_version = EPOCH_BUMP_FROM if request.api_version >= _EPOCH_BUMP_VERSION else 0

    def respond(error: int, metadata: TransactionMetadata | None) -> None:
        response = {"error_code": for_version(error, request)}
        if metadata is not None and not error and client_version:
            response |= {"producer_id": metadata.producer_id, "producer_epoch": metadata.epoch}
        deferred.complete(response)

    producer = Producer(body.producer_id, body.producer_epoch)
    end = body.committed, client_version
    broker.coordinators.transactions.end(body.transactional_id, producer, end, respond)
    return deferred
