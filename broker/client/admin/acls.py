"""The ACL operations of the command line, as requests on a connection. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.client.admin.connection import check
from broker.protocol.api_keys import ApiKey
from broker.security.acl.acls import Acl, AclFilter

if TYPE_CHECKING:
    from broker.client.admin.connection import Connection

_VERSION = 3


def create(connection: Connection, acls: Sequence[Acl]) -> None:
    """Make ACLs; those that there are stay. Raises ApiError for the first that may not be made."""
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
    version = connection.highest_version(ApiKey.CREATE_ACLS, _VERSION)
    for result in connection.request(ApiKey.CREATE_ACLS, version, {"creations": creations}).results:
        check(result)


def describe(connection: Connection, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter describes, in order. Raises ApiError."""
    version = connection.highest_version(ApiKey.DESCRIBE_ACLS, _VERSION)
    answer = connection.request(ApiKey.DESCRIBE_ACLS, version, _fields(wanted))
    check(answer)
    return sorted(
        Acl(each.resource_type, each.resource_name, each.pattern_type, *_said(acl))
        for each in answer.resources
        for acl in each.acls
    )


def delete(connection: Connection, filters: Sequence[AclFilter]) -> list[Acl]:
    """Delete what filters describe; return it, in order. Raises ApiError."""
    version = connection.highest_version(ApiKey.DELETE_ACLS, _VERSION)
    answer = connection.request(ApiKey.DELETE_ACLS, version, {"filters": [_fields(each) for each in filters]})
    deleted = set()
    for result in answer.filter_results:
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
