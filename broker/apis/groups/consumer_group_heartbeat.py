"""ConsumerGroupHeartbeat (KIP-848): a member joins its group, reports, moves towards its assignment, leaves (I68)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.consumer.heartbeat import MEMBER_ID_FROM_CLIENT, Client
from rotunda.broker.coordinator.consumer.member import JOIN_EPOCH
from rotunda.broker.coordinator.consumer.topic_patterns import NO_MATCHES, Matches
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import GROUP_VERSION
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_UUID_BYTES = 16


def handle_consumer_group_heartbeat(
    request: Request, broker: BrokerContext, body: Any
) -> dict[str, Any] | Deferred | Work:
    """Return the member's news: at once if nothing has changed, else when the change is committed. HOT."""
    if rejection := _rejection(request, broker, body):
        return {"error_code": rejection}
    groups = broker.coordinators.groups
    session = None if broker.metadata.authorizer is None else request.session
    client = Client(request.client_id, client_host(request, broker), session)
    try:
        require_consumer_protocol(broker)
        shard = groups.shard_of(body.group_id)
        response = groups.consumers.try_steady_heartbeat(shard, body, client)
        if response is not None:
            return response
        _require_few_topics(body, broker.metadata.broker_config.max_partitions)
        joins = body.member_epoch == JOIN_EPOCH
        if joins and not body.member_id and request.api_version < MEMBER_ID_FROM_CLIENT:
            body = body.replaced(member_id=_member_id(request))
        patterns = groups.consumers.needed_patterns(shard, body, request.api_version)
    except ApiError as error:
        return _rejected(error)
    if patterns:
        return _resolved(broker, body, client, patterns)
    return _changed(broker, body, client, NO_MATCHES)


def _resolved(broker: BrokerContext, body: Any, client: Client, patterns: set[str]) -> Work:
    """Resolve the patterns that the group needs, as far as time permits, and apply the heartbeat."""
    matches = yield from broker.coordinators.groups.topic_patterns.resolve(client.session, patterns)
    return _changed(broker, body, client, matches)


def _changed(broker: BrokerContext, body: Any, client: Client, matches: Matches) -> dict[str, Any] | Deferred:
    """Apply a heartbeat that changes something."""
    groups = broker.coordinators.groups
    deferred = Deferred()
    try:
        shard = groups.shard_of(body.group_id)
        groups.consumers.consumer_heartbeat(shard, body, client, matches, deferred.complete)
    except ApiError as error:
        return _rejected(error)
    return deferred


def _rejected(error: ApiError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message or text_of(error.code)}


def _rejection(request: Request, broker: BrokerContext, body: Any) -> int:
    """Return the error for clients that may not see a topic that they subscribe to; or 0."""
    if broker.metadata.authorizer is None:
        return 0
    errors = [broker.access.rejection(request, ResourceType.TOPIC, name) for name in body.subscribed_topic_names or ()]
    return max(errors, default=0)


def require_consumer_protocol(broker: BrokerContext) -> None:
    """Raise ApiError UNSUPPORTED_VERSION when consumer groups are switched off."""
    protocols = broker.metadata.broker_config.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or not broker.metadata.finalized_features[GROUP_VERSION]:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled.")


def _require_few_topics(request: Any, most: int) -> None:
    """Raise ApiError INVALID_REQUEST when a member names more topics or partitions than can exist."""
    topics = len(request.subscribed_topic_names or ())
    partitions = sum([1 + len(each.partitions) for each in request.topic_partitions or ()])
    if topics > most or partitions > 2 * most:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"A member subscribes to {topics} topics and has {partitions} topics and partitions; it may subscribe to "
            f"{most} and have {2 * most} (max.partitions): subscribe with a regular expression, or with more members.",
        )


def client_host(request: Request, broker: BrokerContext) -> str:
    """Return a member's host for its group: the address of its connection, as "/127.0.0.1"."""
    return broker.client_hosts.of(request.connection_id)


def _member_id(request: Request) -> str:
    """Return an id for a member without one, the same when the request is handled a second time."""
    identity = f"{request.connection_id}:{request.sequence}:{request.received_ns}"
    digest = hashlib.blake2b(identity.encode(), digest_size=_UUID_BYTES).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
