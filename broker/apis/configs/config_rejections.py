"""Authorization for the settings of a resource. Runs in handler processes and the controller."""

from __future__ import annotations

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.configs.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from rotunda.broker.security.acl.acls import CLUSTER_NAME, ResourceType

_OF_THE_CLUSTER = frozenset({BROKER, BROKER_LOGGER, CLIENT_METRICS})


def rejection_of(request: Request, broker: BrokerContext, resource_type: int, name: str) -> int:
    """Return the authorization error for a resource of DescribeConfigs, AlterConfigs and the like, or 0."""
    if resource_type in _OF_THE_CLUSTER:
        return broker.access.rejection(request, ResourceType.CLUSTER, CLUSTER_NAME)
    if resource_type == TOPIC:
        return broker.access.rejection(request, ResourceType.TOPIC, name)
    # Unknown types are rejected by the caller.
    return broker.access.rejection(request, ResourceType.GROUP, name) if resource_type == GROUP else 0
