"""AlterPartitionReassignments and ListPartitionReassignments: every replica is on the only broker (KIP-455).

A reassignment to this broker is complete already; one to any other is rejected; so none is ever in progress.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work


def handle_alter_partition_reassignments(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each partition."""

    def topic_response(topic: Any) -> dict[str, Any]:
        return {"name": topic.name, "partitions": Lazily(topic.partitions, partial(_outcome, broker, topic.name))}

    response = {
        "allow_replication_factor_change": body.allow_replication_factor_change,
        "error_code": 0,
        "error_message": None,
        "responses": Lazily(body.topics, topic_response),
    }
    return at_length(response)


def _outcome(broker: BrokerContext, topic: str, wanted: Any) -> dict[str, Any]:
    code, message = 0, None
    try:
        _check(broker, topic, wanted)
    except ApiError as error:
        code, message = error.code, error.message or text_of(error.code)
    return {"partition_index": wanted.partition_index, "error_code": code, "error_message": message}


def handle_list_partition_reassignments(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return that no reassignment is in progress, whatever the requested partitions."""
    del request, broker, body
    return {}


def _check(broker: BrokerContext, topic: str, wanted: Any) -> None:
    """Raise ApiError unless the requested replicas are the present ones."""
    index, replicas = wanted.partition_index, wanted.replicas
    if broker.metadata.topic(topic) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if broker.metadata.partition(topic, index) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    node_id = broker.metadata.broker_config.node_id
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for replica in sorted(replicas):
        if replica != node_id:
            raise _invalid(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered: "
                f"the only one is {node_id}."
            )
    if len(replicas) > 1:
        raise _invalid(f"The manual partition assignment includes the broker {node_id} more than once.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
