"""The common parts of ConsumerGroupDescribe and ShareGroupDescribe: rejections, and assignments with topic names.

Runs in handler processes, in a group's coordinator. Must not know how a kind of group works.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import failed_group
from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.group import Group
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.security.acl.acls import ResourceType


def failed_description(group_id: str, error: int) -> dict[str, Any]:
    """Return the element of a group with an error and its text."""
    # Kafka returns no message to clients without the right to the group.
    message = None if error == ErrorCode.GROUP_AUTHORIZATION_FAILED else text_of(error)
    return {**failed_group(group_id, error), "error_message": message}


def not_found(group_id: str, group: Group | None, kind: str) -> dict[str, Any]:
    """Return the element for a group that does not exist, or that is of another kind."""
    problem = "not found" if group is None else f"is not a {kind} group"
    return {**failed_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND), "error_message": f"Group {group_id} {problem}."}


def denial_of_topics(
    request: Request, broker: BrokerContext, group_id: str, assignments: Collection[Assignment]
) -> dict[str, Any] | None:
    """Return the element for clients that may not see a topic of these assignments; or None."""
    metadata = broker.metadata
    if metadata.authorizer is None:
        return None
    found = [metadata.topic_by_id(topic_id) for topic_id in {topic_id for each in assignments for topic_id in each}]
    error = max(
        [broker.access.rejection(request, ResourceType.TOPIC, topic.name) for topic in found if topic is not None],
        default=0,
    )
    message = "The group has described topic(s) that the client is not authorized to describe."
    return {**failed_group(group_id, error), "error_message": message} if error else None


def assignment_fields(metadata: MetadataCache, assignment: Assignment) -> dict[str, Any]:
    """Return an assignment with the names of its topics; deleted ones are left out, as in Kafka."""
    found = ((metadata.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": sorted(partitions)}
            for topic, partitions in found
            if topic is not None
        ]
    }
