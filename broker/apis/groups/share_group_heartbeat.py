"""ShareGroupHeartbeat (KIP-932): a member joins its share group, reports, gets its assignment, leaves."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.consumer_group_heartbeat import client_host
from rotunda.broker.coordinator.consumer.heartbeat import Client
from rotunda.broker.coordinator.share.protocol import LONGEST_MEMBER_ID, validate
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import SHARE_VERSION
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.security.acl.acls import ResourceType


def handle_share_group_heartbeat(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    """Return the member's news: at once if nothing has changed, else when the change is committed. HOT."""
    groups = broker.coordinators.groups
    client = Client(request.client_id, client_host(request, broker))
    deferred = Deferred()
    try:
        require_share_groups(broker)
        if rejection := _rejection(request, broker, body):
            return {"error_code": rejection}
        shard = groups.shard_of(body.group_id)
        response = groups.shares.try_steady_heartbeat(shard, body, client)
        if response is not None:
            return response
        validate(body)
        _require_few_topics(body, broker.metadata.broker_config.max_partitions)
        groups.shares.share_heartbeat(shard, body, client, deferred.complete)
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message or text_of(error.code)}
    return deferred


def require_share_groups(broker: BrokerContext) -> None:
    """Raise ApiError UNSUPPORTED_VERSION when share groups are switched off."""
    if not broker.metadata.finalized_features[SHARE_VERSION]:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Share groups are not enabled: share.version is 0.")


def _rejection(request: Request, broker: BrokerContext, body: Any) -> int:
    """Return the error of a client without the right to the group or to a topic; or 0.

    Raises ApiError for an invalid member id, which Kafka checks between the two.
    """
    rejection = broker.access.rejection(request, ResourceType.GROUP, body.group_id)
    if rejection:
        return rejection
    if not 0 < len(body.member_id) <= LONGEST_MEMBER_ID:
        message = f"MemberId must have 1 to {LONGEST_MEMBER_ID} characters, not {len(body.member_id)}."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if broker.metadata.authorizer is None:
        return 0
    errors = [broker.access.rejection(request, ResourceType.TOPIC, name) for name in body.subscribed_topic_names or ()]
    return max(errors, default=0)


def _require_few_topics(request: Any, most: int) -> None:
    """Raise ApiError INVALID_REQUEST when a member names more topics than can exist."""
    topics = len(request.subscribed_topic_names or ())
    if topics > most:
        message = f"A member subscribes to {topics} topics; it may subscribe to {most} (max.partitions)."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
