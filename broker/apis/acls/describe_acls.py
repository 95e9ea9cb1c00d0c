"""DescribeAcls: the ACLs that match a filter, by resource. Served by any handler."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.acls.acl_fields import acl_fields, filter_of, no_authorizer
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import Acl


def handle_describe_acls(request: Request, broker: BrokerContext, body: Any) -> Work | dict[str, Any]:
    """Return the ACLs. Raises InvalidReceive for an invalid filter."""
    authorizer = broker.metadata.authorizer
    if authorizer is None:
        return no_authorizer(request, body)
    wanted = filter_of(body)

    def described() -> Work:
        found: dict[tuple[int, str, int], list[Acl]] = {}

        def look_at(acl: Acl) -> None:
            if wanted.matches(acl):
                found.setdefault(acl[:3], []).append(acl)

        yield from each_of(authorizer, look_at)
        return {"resources": Lazily(found.items(), _resource)}

    return described()


def _resource(found: tuple[tuple[int, str, int], list[Acl]]) -> dict[str, Any]:
    (resource_type, name, pattern_type), acls = found
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "pattern_type": pattern_type,
        "acls": Lazily(acls, acl_fields),
    }
