"""Conversion of ACLs and their filters from and to the protocol."""

from __future__ import annotations

from typing import Any

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.error_responses import error_response
from rotunda.broker.security.acl.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType, is_known

_NO_AUTHORIZER = (
    "No Authorizer is configured on the broker: every client may do everything, and no ACLs are kept. "
    "Start it with --secure, or set authorizer.class.name"
)


def no_authorizer(request: Request, body: Any) -> dict[str, Any]:
    """Return the response to every request about ACLs without an authorizer."""
    return error_response(request.api_key, request.api_version, body, ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)


def filter_of(asked: Any) -> AclFilter:
    """Return a filter of a request. Raises InvalidReceive for one with invalid numbers, as Kafka does."""
    found = AclFilter(
        asked.resource_type_filter, asked.resource_name_filter, asked.pattern_type_filter, asked.principal_filter,
        asked.host_filter, asked.operation, asked.permission_type,
    )  # fmt: skip
    if not (
        is_known(ResourceType, found.resource_type)
        and is_known(PatternType, found.pattern_type)
        and is_known(Operation, found.operation)
        and is_known(Permission, found.permission)
    ):
        raise InvalidReceive(f"a filter of ACLs contains UNKNOWN elements: {found}")
    return found


def acl_fields(acl: Acl) -> dict[str, Any]:
    """Return the response fields of an ACL: principal, host, operation and permission."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
