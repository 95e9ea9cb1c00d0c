"""DescribeProducers: who has written to a partition lately, and whose transaction is open there (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.request_context import Deferred, RequestContext
from broker.server.transaction_admin import ActiveProducer


def handle_describe_producers(context: RequestContext, request: Any) -> Deferred | dict[str, Any]:
    """Return the producers of each partition; the owners of the partitions know them."""
    broker = context.broker
    topics: list[dict[str, Any]] = []
    wanted: list[tuple[tuple[str, int], dict[str, Any]]] = []
    for topic in request.topics:
        results: list[dict[str, Any]] = [{"partition_index": index} for index in topic.partition_indexes]
        wanted += [((topic.name, result["partition_index"]), result) for result in results]
        topics.append({"name": topic.name, "partitions": results})
    response = {"throttle_time_ms": 0, "topics": topics}
    if not wanted:
        return response
    deferred = Deferred()
    left = len(wanted)

    def noted(result: dict[str, Any], error: int, producers: list[ActiveProducer]) -> None:
        nonlocal left
        result |= {
            "error_code": error,
            "error_message": text_of(error) if error else None,
            "active_producers": [producer._asdict() for producer in producers],
        }
        left -= 1
        if not left:
            deferred.complete(response)

    for place, result in wanted:
        info = broker.metadata.partition(*place)
        if info is None:
            noted(result, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), [])
        else:
            broker.coordinators.transaction_admin.ask_producers(info.owner, place, partial(noted, result))
    return deferred
