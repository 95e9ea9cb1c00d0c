"""DescribeTransactions: the coordinators' state of transactional ids. For admins (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import TOO_LONG
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

#: Ids requested between two yields.
_IDS_AT_ONCE = 32


def handle_describe_transactions(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the state of each id, once, or TRANSACTIONAL_ID_NOT_FOUND."""
    ids = list(dict.fromkeys(body.transactional_ids))
    descriptions: list[Deferred] = []
    for number, transactional_id in enumerate(ids, 1):
        description = Deferred()
        descriptions.append(description)
        if rejection := broker.access.rejection(request, ResourceType.TRANSACTIONAL_ID, transactional_id):
            description.complete((rejection, None))
            continue
        broker.coordinators.transaction_admin.ask_transaction(transactional_id, _completing(description))
        if not number % _IDS_AT_ONCE:
            yield None
    found: dict[str, tuple[int, TransactionMetadata | None]] = {}
    for transactional_id, description in zip(ids, descriptions, strict=True):
        found[transactional_id] = yield description

    def describe(transactional_id: str) -> dict[str, Any]:
        error, metadata = found[transactional_id]
        return {"transactional_id": transactional_id, "error_code": error, **_described(request, broker, metadata)}

    return {"transaction_states": Lazily(ids, describe, _rejected)}


def _completing(description: Deferred) -> Callable[[int, TransactionMetadata | None], None]:
    return lambda error, metadata: description.complete((error, metadata))


def _rejected(transactional_id: str) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "error_code": TOO_LONG, **_NOTHING}


_NOTHING = {"producer_id": -1, "producer_epoch": -1, "transaction_state": "", "transaction_start_time_ms": -1}


def _described(request: Request, broker: BrokerContext, metadata: TransactionMetadata | None) -> dict[str, Any]:
    if metadata is None:
        return _NOTHING
    return {
        "transaction_state": metadata.state.text,
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_start_time_ms": metadata.start_ms,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.epoch,
        "topics": [
            {"topic": topic, "partitions": [partition for _, partition in group]}
            for topic, group in groupby(sorted(metadata.partitions), lambda place: place[0])
            if not broker.access.rejection(request, ResourceType.TOPIC, topic)
        ],
    }
