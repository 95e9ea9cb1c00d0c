"""The bit fields of a client's authorized operations; without an authorizer, all of them (KIP-430)."""

from __future__ import annotations

from collections.abc import Sequence

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType

NOT_ASKED_FOR = -2147483648

_TOPIC = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
_CLUSTER = (
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
)  # fmt: skip
_GROUP = (
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)  # fmt: skip


def topic_operations(request: Request, broker: BrokerContext, topic: str, asked_for: bool) -> int:
    """Return the bit field for a topic."""
    return _bits(request, broker, _TOPIC, ResourceType.TOPIC, topic) if asked_for else NOT_ASKED_FOR


def cluster_operations(request: Request, broker: BrokerContext, asked_for: bool) -> int:
    """Return the bit field for the cluster; 0 for clients without DESCRIBE."""
    if not asked_for:
        return NOT_ASKED_FOR
    if broker.access.rejection(request, ResourceType.CLUSTER, operation=Operation.DESCRIBE):
        return 0
    return _bits(request, broker, _CLUSTER, ResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(request: Request, broker: BrokerContext, group_id: str, asked_for: bool) -> int:
    """Return the bit field for a group."""
    return _bits(request, broker, _GROUP, ResourceType.GROUP, group_id) if asked_for else NOT_ASKED_FOR


def _bits(
    request: Request, broker: BrokerContext, operations: Sequence[Operation], resource_type: ResourceType, name: str
) -> int:
    authorizer, session = broker.metadata.authorizer, request.session
    return sum(
        1 << operation
        for operation in operations
        if authorizer is None or authorizer.allows(session, operation, resource_type, name, is_asked_for=False)
    )
