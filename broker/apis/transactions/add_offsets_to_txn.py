"""AddOffsetsToTxn: adds the offsets of a group to a transaction, by the partition that stores them."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.transactions.transaction_errors import for_version
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Producer
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import GROUP_TOPIC, coordinator_partition
from rotunda.broker.scheduling.deferred import Deferred

#: The transaction version of clients that add their partitions explicitly.
_PLAIN = 0


def handle_add_offsets_to_txn(request: Request, broker: BrokerContext, body: Any) -> Deferred | dict[str, int]:
    """Return an error code; the group's partition of `__consumer_offsets` is part of the transaction then."""
    if not body.transactional_id:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    if not body.group_id:
        return {"error_code": int(ErrorCode.INVALID_GROUP_ID)}
    deferred = Deferred()
    partition = coordinator_partition(body.group_id, broker.coordinators.locator.counts.groups)

    def respond(error: int) -> None:
        deferred.complete({"error_code": for_version(error, request)})

    broker.coordinators.transactions.add_partitions(
        body.transactional_id,
        Producer(body.producer_id, body.producer_epoch),
        frozenset({(GROUP_TOPIC, partition)}),
        _PLAIN,
        respond,
    )
    return deferred
