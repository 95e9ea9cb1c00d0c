"""The command line's ACL operations, as requests on a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.acl.acls import Acl, AclFilter

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

_VERSION = 3


def create(client: BlockingClient, acls: Sequence[Acl]) -> None:
    """Create ACLs; existing ones are unchanged. Raises ApiError for the first that failed."""
    creations = [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
    for result in client.request(ApiKey.CREATE_ACLS, {"creations": creations}, _VERSION).results:
        check(result)


def describe(client: BlockingClient, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that match a filter, in order. Raises ApiError."""
    response = client.request(ApiKey.DESCRIBE_ACLS, _fields(wanted), _VERSION)
    check(response)
    return sorted(
        Acl(each.resource_type, each.resource_name, each.pattern_type, *_said(acl))
        for each in response.resources
        for acl in each.acls
    )


def delete(client: BlockingClient, filters: Sequence[AclFilter]) -> list[Acl]:
    """Delete the ACLs that match any filter; return them in order. Raises ApiError."""
    response = client.request(ApiKey.DELETE_ACLS, {"filters": [_fields(each) for each in filters]}, _VERSION)
    deleted = set()
    for result in response.filter_results:
        check(result)
        for acl in result.matching_acls:
            check(acl)
            deleted.add(Acl(acl.resource_type, acl.resource_name, acl.pattern_type, *_said(acl)))
    return sorted(deleted)


def _said(acl: Any) -> tuple[str, str, int, int]:
    return acl.principal, acl.host, acl.operation, acl.permission_type


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
