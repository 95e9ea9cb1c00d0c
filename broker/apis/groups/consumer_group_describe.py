"""ConsumerGroupDescribe (KIP-848): the members of consumer groups, their present and target assignments (I69)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import group_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.consumer_group_heartbeat import require_consumer_protocol
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners
from rotunda.broker.apis.groups.group_descriptions import (
    assignment_fields,
    denial_of_topics,
    failed_description,
    not_found,
)
from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.consumer.target_assignment import preferred_assignor
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.slices import Work

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle_consumer_group_describe(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return every requested group, from any coordinator."""
    return call_owners(request, broker, body, CONSUMER_GROUP_DESCRIBE)


def _group_response(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    require_consumer_protocol(broker)
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ConsumerGroup):
        return not_found(group_id, group, "consumer")
    assigned = [member.held for member in group.members.values()]
    assigned += [group.target.get(member_id, NO_PARTITIONS) for member_id in group.members]
    denial = denial_of_topics(request, broker, group_id, assigned)
    return denial or _described(request, broker, group, body.include_authorized_operations)


def _described(request: Request, broker: BrokerContext, group: ConsumerGroup, with_operations: bool) -> dict[str, Any]:
    metadata = broker.metadata
    assignors = metadata.broker_config.group_consumer_assignors
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": preferred_assignor(group.members.values(), assignors),
        "members": Lazily(
            list(group.members.values()),
            lambda member: _member_fields(metadata, member, group.target.get(member.member_id, NO_PARTITIONS)),
        ),
        "authorized_operations": group_operations(request, broker, group.group_id, with_operations),
    }


def _member_fields(metadata: MetadataCache, member: ConsumerGroupMember, target: Assignment) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": assignment_fields(metadata, member.held),
        "target_assignment": assignment_fields(metadata, target),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


CONSUMER_GROUP_DESCRIBE = MultiGroupApi("group_ids", "groups", _group_response, failed_description)
