"""WriteTxnMarkers: ends a transaction in single partitions, without its coordinator. For admins (KIP-664)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.transaction.markers import TransactionPeers
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Marker
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import Operation, ResourceType

#: Markers written in one slice: each is a write to a log.
AT_ONCE = 16


def handle_write_txn_markers(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an error code for each partition of each marker."""
    if rejection := _rejection(request, broker):
        return _rejected(body, rejection)
    peers = broker.coordinators.transaction_rpc
    markers: list[dict[str, Any]] = []
    waiting: list[tuple[dict[str, int], Deferred]] = []
    for marker in body.markers:
        topics = []
        for topic in marker.topics:
            results: list[dict[str, int]] = []
            for index in topic.partition_indexes:
                results.append({"partition_index": index, "error_code": 0})
                written = _write(peers, _marker(marker, topic.name, index))
                waiting.append((results[-1], written))
                if len(waiting) == AT_ONCE:
                    yield from _note(waiting)
            topics.append({"name": topic.name, "partitions": results})
        markers.append({"producer_id": marker.producer_id, "topics": topics})
    yield from _note(waiting)
    return {"markers": markers}


def _rejection(request: Request, broker: BrokerContext) -> int:
    """Return the error for clients that are neither administrators nor brokers, or 0."""
    if not broker.access.rejection(request, ResourceType.CLUSTER, operation=Operation.ALTER):
        return 0
    return broker.access.rejection(request, ResourceType.CLUSTER, operation=Operation.CLUSTER_ACTION)


def _rejected(request: Any, error: int) -> dict[str, Any]:
    def outcomes(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partition_indexes, lambda index: {"partition_index": index, "error_code": error})
        return {"name": topic.name, "partitions": partitions}

    def result(marker: Any) -> dict[str, Any]:
        return {"producer_id": marker.producer_id, "topics": Lazily(marker.topics, outcomes)}

    return {"markers": Lazily(request.markers, result)}


def _write(peers: TransactionPeers, marker: Marker) -> Deferred:
    """Return a deferred that is completed with the error of a marker, boxed: 0 is a result too."""
    written = Deferred()
    owner = peers.owner_of((marker.topic, marker.partition))
    if owner is None:
        written.complete((int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),))
    else:
        peers.write_marker(owner, marker, lambda error: written.complete((error,)))
    return written


def _note(waiting: list[tuple[dict[str, int], Deferred]]) -> Work:
    """Wait for markers, and store the outcome of each."""
    for result, written in waiting:
        (result["error_code"],) = yield written
    waiting.clear()
    yield None


def _marker(marker: Any, topic: str, index: int) -> Marker:
    return Marker(
        topic,
        index,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )
