"""DeleteGroups: deletes groups without members, and their offsets (I42)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners, failed_group
from rotunda.broker.coordinator.offsets.offset_expiration import delete_offsets
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work


def handle_delete_groups(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an error for each group, from any coordinator, once the others are deleted."""
    return call_owners(request, broker, body, DELETE_GROUPS)


def _group_response(_request: Request, broker: BrokerContext, _body: Any, group_id: str) -> dict[str, Any] | Deferred:
    shard = broker.coordinators.groups.shard_of(group_id)
    group = shard.groups.get(group_id)
    error = int(ErrorCode.GROUP_ID_NOT_FOUND) if group is None else group.validate_delete()
    if group is None or error:
        return failed_group(group_id, error)
    deferred = Deferred()
    if isinstance(group, ShareGroup):
        broker.coordinators.groups.shares.delete(
            shard, group, lambda error: deferred.complete(failed_group(group_id, error))
        )
        return deferred
    records = [*delete_offsets(shard, group_id), *group.tombstones()]
    del shard.groups[group_id]
    shard.append(records, lambda error: deferred.complete(failed_group(group_id, error)))
    return deferred


DELETE_GROUPS = MultiGroupApi("groups_names", "results", _group_response)
