"""Who may see or change the settings of a resource. Runs in handler processes and the controller."""

from __future__ import annotations

from broker.apis.context import RequestContext
from broker.metadata.configs.alter_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from broker.security.acl.acls import CLUSTER_NAME, ResourceType

_OF_THE_CLUSTER = frozenset({BROKER, BROKER_LOGGER, CLIENT_METRICS})


def refusal_of(context: RequestContext, resource_type: int, name: str) -> int:
    """Return the error with which a resource of DescribeConfigs, AlterConfigs and their like is refused, or 0."""
    if resource_type in _OF_THE_CLUSTER:
        return context.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
    if resource_type == TOPIC:
        return context.refusal(ResourceType.TOPIC, name)
    # What there is none of is refused by who knows that.
    return context.refusal(ResourceType.GROUP, name) if resource_type == GROUP else 0
