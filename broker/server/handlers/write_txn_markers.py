"""WriteTxnMarkers: ends a transaction in single partitions, whatever its coordinator knows. For admins (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.coordinator.transaction_markers import Marker
from broker.protocol.error_codes import ErrorCode
from broker.server.deferred import Deferred
from broker.server.request_context import RequestContext


def handle_write_txn_markers(context: RequestContext, request: Any) -> Deferred | dict[str, Any]:
    """Return an error code for each partition of each marker."""
    desk = context.broker.coordinators.transaction_desk
    answers: list[dict[str, Any]] = []
    wanted: list[tuple[Marker, dict[str, int]]] = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            results = []
            for index in topic.partition_indexes:
                results.append({"partition_index": index, "error_code": 0})
                wanted.append((_marker(marker, topic.name, index), results[-1]))
            topics.append({"name": topic.name, "partitions": results})
        answers.append({"producer_id": marker.producer_id, "topics": topics})
    if not wanted:
        return {"markers": answers}
    deferred = Deferred()
    left = len(wanted)

    def noted(result: dict[str, int], error: int) -> None:
        nonlocal left
        result["error_code"] = error
        left -= 1
        if not left:
            deferred.complete({"markers": answers})

    for one, result in wanted:
        owner = desk.owner_of((one.topic, one.partition))
        if owner is None:
            noted(result, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            desk.write_marker(owner, one, partial(noted, result))
    return deferred


def _marker(marker: Any, topic: str, index: int) -> Marker:
    return Marker(
        topic,
        index,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        getattr(marker, "transaction_version", 0),
    )
