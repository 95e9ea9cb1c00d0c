"""DescribeAcls, CreateAcls, DeleteAcls without an authorizer: SECURITY_DISABLED, as Kafka answers then."""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.protocol.error_codes import ErrorCode

_NO_AUTHORIZER = "No Authorizer is configured on the broker: every client may do everything, and no ACLs are kept"
_REFUSAL = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER}


def handle_describe_acls(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal and no ACLs."""
    del context, request
    return {"throttle_time_ms": 0, **_REFUSAL, "resources": []}


def handle_create_acls(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal for each ACL."""
    del context
    return {"throttle_time_ms": 0, "results": [_REFUSAL] * len(request.creations)}


def handle_delete_acls(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal for each filter."""
    del context
    return {"throttle_time_ms": 0, "filter_results": [{**_REFUSAL, "matching_acls": []}] * len(request.filters)}
