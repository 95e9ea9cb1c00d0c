"""The guard of an API: the authorization of the whole request, before its function.

Runs in handler processes and the controller. The checks of each API are in `broker.security.acl.checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import text_of
from rotunda.broker.protocol.error_responses import error_response
from rotunda.broker.security.acl.acls import CLUSTER_NAME, ResourceType
from rotunda.broker.security.acl.checks import CHECKS

#: The fields of requests that contain the checked resources' names.
_FIELDS: Final = {ResourceType.GROUP: "group_id", ResourceType.TRANSACTIONAL_ID: "transactional_id"}


def guarded(key: ApiKey, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an API, wrapped in its guard if it has one."""
    guards = [(each.resource_type, _FIELDS.get(each.resource_type)) for each in CHECKS.get(key, ()) if each.guards]
    if not guards:
        return function

    def check_first(request: Request, broker: BrokerContext, body: Any) -> Any:
        for resource_type, field in guards:
            error = broker.access.rejection(
                request, resource_type, CLUSTER_NAME if field is None else getattr(body, field)
            )
            if error:
                # As Kafka does.
                message = text_of(error) if field is None else None
                return error_response(key, request.api_version, body, error, message)
        return function(request, broker, body)

    return check_first
