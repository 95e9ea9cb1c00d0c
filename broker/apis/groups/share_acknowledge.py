"""ShareAcknowledge: acknowledgements of a share consumer without a fetch."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.share_state.share_consumers import AcknowledgeErrors, named_in
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.scheduling.deferred import Deferred

_NO_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}

_topic_of = attrgetter("topic_id")


def handle_share_acknowledge(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    """Return an error code for each partition, once the others' acknowledgements are committed."""
    consumers = broker.coordinators.share_consumers
    try:
        consumers.validate(request, body)
        group, session = consumers.continue_session(body)
    except ApiError as error:
        return _rejected(error.code, error.message)
    response = Deferred()

    def applied(acknowledged: AcknowledgeErrors) -> None:
        errors = {place: acknowledged.get(place, 0) for place in named_in(body.topics)}
        lock_ms = broker.metadata.share_group_config(group.group_id).share_record_lock_duration_ms
        group.shard.when_committed(
            lambda error: response.complete(_rejected(error, None) if error else _acknowledged(errors, lock_ms))
        )

    consumers.apply(request, group, session, body, applied)
    return response


def _rejected(error: int, message: str | None) -> dict[str, Any]:
    return {"error_code": error, "error_message": message}


def _acknowledged(errors: AcknowledgeErrors, lock_ms: int) -> dict[str, Any]:
    topics = [
        {
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": place.partition,
                    "error_code": errors[place],
                    "current_leader": _NO_LEADER,
                }
                for place in places
            ],
        }
        for topic_id, places in groupby(errors, key=_topic_of)
    ]
    return {"acquisition_lock_timeout_ms": lock_ms, "responses": topics}
