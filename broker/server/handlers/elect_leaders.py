"""ElectLeaders: the one replica of a partition leads it already, so there is nothing to elect (KIP-460)."""

from __future__ import annotations

from typing import Any

from broker.protocol.error_codes import ErrorCode
from broker.server.request_context import Parked, RequestContext
from shm.partitions import STATE_OPEN

_PREFERRED, _UNCLEAN = 0, 1

#: By election type: the error for a partition whose only replica is offline.
_NO_CANDIDATE = {
    _PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    _UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


#: How long a partition may take to be opened by its owner before it counts as offline.
OPEN_WAIT_MS = 500


def handle_elect_leaders(context: RequestContext, request: Any) -> dict[str, Any] | Parked:
    """Return an outcome for each partition asked for; when all are, for those that have no leader only.

    A partition that has just been created is about to be opened, so the answer waits a moment for those that are not.
    """
    election_type = getattr(request, "election_type", _PREFERRED)
    if election_type not in _NO_CANDIDATE:
        unknown = _every_partition(request, ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
        return _answer(unknown, ErrorCode.INVALID_REQUEST)

    def retry(final: bool) -> dict[str, Any] | None:
        response = _elected(context, request, election_type)
        return response if final or _NO_CANDIDATE[election_type] not in _errors_of(response) else None

    return retry(final=False) or Parked(OPEN_WAIT_MS, retry)


def _errors_of(response: dict[str, Any]) -> set[int]:
    results = response["replica_election_results"]
    return {outcome["error_code"] for result in results for outcome in result["partition_result"]}


def _elected(context: RequestContext, request: Any, election_type: int) -> dict[str, Any]:
    if request.topic_partitions is None:
        return _answer(_of_all(context, election_type))
    results = []
    for topic in request.topic_partitions:
        outcomes = [_elect(context, topic.topic, index, election_type) for index in topic.partitions]
        results.append({"topic": topic.topic, "partition_result": outcomes})
    return _answer(results)


def _answer(results: list[dict[str, Any]], error: int = 0) -> dict[str, Any]:
    return {"throttle_time_ms": 0, "error_code": error, "replica_election_results": results}


def _of_all(context: RequestContext, election_type: int) -> list[dict[str, Any]]:
    results = []
    for topic in context.broker.metadata.topics():
        outcomes = (_elect(context, topic.name, partition.index, election_type) for partition in topic.partitions)
        failed = [outcome for outcome in outcomes if outcome["error_code"] != ErrorCode.ELECTION_NOT_NEEDED]
        if failed:
            results.append({"topic": topic.name, "partition_result": failed})
    return results


def _elect(context: RequestContext, topic: str, index: int, election_type: int) -> dict[str, Any]:
    partition = context.broker.metadata.partition(topic, index)
    if partition is None:
        unknown = context.broker.metadata.topic(topic) is None
        what = f"topic as {topic}" if unknown else f"partition as {topic}-{index}"
        return _outcome(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")
    if context.broker.partitions.state(partition.row) == STATE_OPEN:
        error = ErrorCode.ELECTION_NOT_NEEDED
        return _outcome(index, error, f"{error.text} Broker {context.broker.config.node_id} leads {topic}-{index}.")
    error = _NO_CANDIDATE[election_type]
    return _outcome(index, error, f"{error.text} The only replica of {topic}-{index} is offline: see the broker's log.")


def _every_partition(request: Any, error: int, message: str) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic.topic,
            "partition_result": [_outcome(index, error, message) for index in topic.partitions],
        }
        for topic in request.topic_partitions or ()
    ]


def _outcome(index: int, error: int, message: str) -> dict[str, Any]:
    return {"partition_id": index, "error_code": error, "error_message": message}
