"""CreateAcls and DeleteAcls: changes take effect in every process soon after. Served by the controller."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.acls.acl_fields import acl_fields, filter_of, no_authorizer
from rotunda.broker.apis.cluster.controller_access import announce, controller_of, request_id_of
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError, InvalidReceive
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import ADDRESS_RANGES_FROM, METADATA_VERSION
from rotunda.broker.metadata.security.acls import MOST_CHANGES
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import Acl, AclFilter, check_new

_GOOD: dict[str, Any] = {}


def handle_create_acls(request: Request, broker: BrokerContext, body: Any) -> Work | dict[str, Any]:
    """Return an outcome for each ACL; all valid ones are created at once."""
    if broker.metadata.authorizer is None:
        return no_authorizer(request, body)
    return _create(broker, body)


def _create(broker: BrokerContext, body: Any) -> Work:
    results: list[dict[str, Any]] = []
    wanted: list[Acl] = []
    allows_ranges = broker.metadata.finalized_features[METADATA_VERSION] >= ADDRESS_RANGES_FROM

    def look_at(creation: Any) -> None:
        acl = Acl(
            creation.resource_type, creation.resource_name, creation.resource_pattern_type, creation.principal,
            creation.host, creation.operation, creation.permission_type,
        )  # fmt: skip
        try:
            check_new(acl, allows_ranges=allows_ranges)
        except ApiError as error:
            results.append(_failed(error))
        else:
            wanted.append(acl)
            results.append(_GOOD)

    yield from each_of(body.creations, look_at)
    try:
        if len(wanted) > MOST_CHANGES:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        yield from controller_of(broker).acls.create(wanted)
    except ApiError as error:
        results = [_failed(error) if result is _GOOD else result for result in results]
    announce(broker)
    return {"results": Lazily(results, dict)}


def handle_delete_acls(request: Request, broker: BrokerContext, body: Any) -> Work | dict[str, Any]:
    """Return for each filter the ACLs that it has deleted. Raises InvalidReceive for an invalid filter."""
    if broker.metadata.authorizer is None:
        return no_authorizer(request, body)
    if len(body.filters) > MOST_CHANGES:
        raise InvalidReceive(f"DeleteAcls of {len(body.filters)} filters; {MOST_CHANGES} may be named")
    return _delete(request, broker, body)


def _delete(request: Request, broker: BrokerContext, body: Any) -> Work:
    filters: list[AclFilter] = []
    yield from each_of(body.filters, lambda each: filters.append(filter_of(each)))
    try:
        deleted = yield from controller_of(broker).acls.delete(filters, request_id_of(request))
    except ApiError as error:
        return {"filter_results": [_failed(error)] * len(filters)}
    announce(broker)
    return {"filter_results": Lazily(deleted, lambda acls: {"matching_acls": Lazily(acls, _matching)})}


def _matching(acl: Acl) -> dict[str, Any]:
    return {**acl_fields(acl), "resource_type": acl.resource_type, "resource_name": acl.name,
            "pattern_type": acl.pattern_type}  # fmt: skip


def _failed(error: ApiError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message or text_of(error.code)}
