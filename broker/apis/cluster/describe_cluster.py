"""DescribeCluster: the cluster id and its one broker, on the request's listener (KIP-700, ``C18``)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import cluster_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2


def handle_describe_cluster(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return the description; an error for a client that requests another endpoint type than brokers."""
    endpoint_type = body.endpoint_type
    if endpoint_type == _CONTROLLERS:
        return _rejected(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != _BROKERS:
        return _rejected(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    config, (host, port) = broker.metadata.broker_config, broker.address_for(request)
    return {
        "cluster_id": broker.cluster_id,
        "controller_id": config.node_id,
        "brokers": [
            {
                "broker_id": config.node_id,
                "host": host,
                "port": port,
                "rack": config.broker_rack,
                "is_fenced": False,
            }
        ],
        "cluster_authorized_operations": cluster_operations(
            request, broker, body.include_cluster_authorized_operations
        ),
    }


def _rejected(error: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": error, "error_message": message}
