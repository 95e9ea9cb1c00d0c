"""The guard of APIs about the cluster: one check of the whole request, before its function.

Runs in handler processes and the controller. The checks of each API are in `broker.security.acl.checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.apis.context import RequestContext
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import text_of
from broker.protocol.error_responses import error_response
from broker.security.acl.acls import ResourceType
from broker.security.acl.checks import CHECKS


def guarded(key: ApiKey, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an API, behind its check if the only one is of the cluster."""
    checks = CHECKS.get(key, ())
    if len(checks) != 1 or checks[0].resource_type != ResourceType.CLUSTER or checks[0].error is None:
        return function

    def check_first(context: RequestContext, request: Any) -> Any:
        if error := context.refusal(ResourceType.CLUSTER):
            return error_response(key, context.api_version, request, error, text_of(error))
        return function(context, request)

    return check_first
