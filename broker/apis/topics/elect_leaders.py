"""ElectLeaders: the one replica of a partition leads it already, so there is nothing to elect (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.shm.tables.partitions import STATE_OPEN

_PREFERRED, _UNCLEAN = 0, 1

#: A partition by topic and number.
Place = tuple[str, int]

#: By election type: the error for a partition whose only replica is offline.
_NO_CANDIDATE = {
    _PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    _UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


#: Time for an owner to open a partition before it counts as offline.
OPEN_WAIT_MS = 500


def handle_elect_leaders(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each requested partition; for a request of all, only for those without a leader.

    A partition that has just been created is about to be opened, so the response waits a moment for closed ones.
    """
    election_type = body.election_type
    if election_type not in _NO_CANDIDATE:
        return at_length(_every_partition(body, ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"))
    return _once_opened(broker, body, election_type)


def _once_opened(broker: BrokerContext, body: Any, election_type: int) -> Work:
    """Return the outcomes, or a wait for closed partitions."""
    closed: list[int] = []

    def note(place: Place) -> None:
        partition = broker.metadata.partition(*place)
        if partition is not None and not _is_open(broker, partition.row):
            closed.append(partition.row)

    yield from each_of(_places(broker, body), note)

    def retry(final: bool) -> Work | None:
        while closed and _is_open(broker, closed[-1]):
            closed.pop()
        return _elected(broker, body, election_type) if final or not closed else None

    return retry(final=False) or Deferred(OPEN_WAIT_MS, retry)


def _places(broker: BrokerContext, body: Any) -> Iterator[Place]:
    if body.topic_partitions is None:
        for topic in broker.metadata.topics():
            yield from ((topic.name, partition.index) for partition in topic.partitions)
    else:
        for topic in body.topic_partitions:
            yield from ((topic.topic, index) for index in topic.partitions)


def _elected(broker: BrokerContext, body: Any, election_type: int) -> Work:
    """Return an outcome for each partition; for a request of all, only for failed ones."""
    if body.topic_partitions is not None:

        def topic_result(topic: Any) -> dict[str, Any]:
            outcomes = Lazily(topic.partitions, lambda index: _elect(broker, topic.topic, index, election_type))
            return {"topic": topic.topic, "partition_result": outcomes}

        return at_length(_response(Lazily(body.topic_partitions, topic_result)))
    return _of_all(broker, body, election_type)


def _response(results: Lazily, error: int = 0) -> dict[str, Any]:
    return {"error_code": error, "replica_election_results": results}


def _of_all(broker: BrokerContext, body: Any, election_type: int) -> Work:
    failed: dict[str, list[dict[str, Any]]] = {}

    def elect(place: Place) -> None:
        outcome = _elect(broker, *place, election_type)
        if outcome["error_code"] != ErrorCode.ELECTION_NOT_NEEDED:
            failed.setdefault(place[0], []).append(outcome)

    yield from each_of(_places(broker, body), elect)
    return _response(Lazily(failed.items(), lambda each: {"topic": each[0], "partition_result": each[1]}))


def _is_open(broker: BrokerContext, row: int) -> bool:
    return broker.partitions.table.state(row) == STATE_OPEN


def _elect(broker: BrokerContext, topic: str, index: int, election_type: int) -> dict[str, Any]:
    partition = broker.metadata.partition(topic, index)
    if partition is None:
        unknown = broker.metadata.topic(topic) is None
        missing = f"topic as {topic}" if unknown else f"partition as {topic}-{index}"
        return _outcome(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {missing}")
    if _is_open(broker, partition.row):
        error = ErrorCode.ELECTION_NOT_NEEDED
        return _outcome(
            index, error, f"{error.text} Broker {broker.metadata.broker_config.node_id} leads {topic}-{index}."
        )
    error = _NO_CANDIDATE[election_type]
    return _outcome(index, error, f"{error.text} The only replica of {topic}-{index} is offline: see the broker's log.")


def _every_partition(request: Any, error: int, message: str) -> dict[str, Any]:
    def topic_result(topic: Any) -> dict[str, Any]:
        outcomes = Lazily(topic.partitions, lambda index: _outcome(index, error, message))
        return {"topic": topic.topic, "partition_result": outcomes}

    return _response(Lazily(request.topic_partitions or (), topic_result), error)


def _outcome(index: int, error: int, message: str) -> dict[str, Any]:
    return {"partition_id": index, "error_code": error, "error_message": message}
