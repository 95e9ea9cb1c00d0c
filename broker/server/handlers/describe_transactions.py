"""DescribeTransactions: what the coordinators know of transactional ids. For admins (KIP-664)."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any

from broker.coordinator.transaction import TransactionMetadata
from broker.server.request_context import Deferred, RequestContext


def handle_describe_transactions(context: RequestContext, request: Any) -> Deferred | dict[str, Any]:
    """Return the state of each id, or TRANSACTIONAL_ID_NOT_FOUND."""
    ids = request.transactional_ids
    if not ids:
        return {"throttle_time_ms": 0, "transaction_states": []}
    deferred = Deferred()
    states: list[dict[str, Any] | None] = [None] * len(ids)
    left = len(ids)

    def noted(index: int, error: int, metadata: TransactionMetadata | None) -> None:
        nonlocal left
        states[index] = {"transactional_id": ids[index], "error_code": error, **_described(metadata)}
        left -= 1
        if not left:
            deferred.complete({"throttle_time_ms": 0, "transaction_states": states})

    for index, transactional_id in enumerate(ids):
        context.broker.coordinators.transaction_admin.ask_transaction(transactional_id, partial(noted, index))
    return deferred


def _described(metadata: TransactionMetadata | None) -> dict[str, Any]:
    if metadata is None:
        return {"producer_id": -1, "producer_epoch": -1, "transaction_state": "", "transaction_start_time_ms": -1}
    return {
        "transaction_state": metadata.state.text,
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_start_time_ms": metadata.start_ms,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.epoch,
        "topics": [
            {"topic": topic, "partitions": [partition for _, partition in group]}
            for topic, group in groupby(sorted(metadata.partitions), lambda place: place[0])
        ],
    }
