"""DescribeShareGroupOffsets (KIP-932, KIP-1226): the start offsets and lags of the partitions of share groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners, failed_group
from rotunda.broker.apis.groups.share_group_heartbeat import require_share_groups
from rotunda.broker.apis.topics.published_offsets import published_ends
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import TopicInfo
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_NO_STATE: Final[Mapping[str, Any]] = {"start_offset": -1, "leader_epoch": 0, "lag": -1, "error_code": 0}


class _Asked(NamedTuple):
    """A topic of a request that exists, and its partitions."""

    topic: TopicInfo
    partitions: Sequence[int]


def handle_describe_share_group_offsets(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return the offsets of every requested group, from any coordinator."""
    try:
        require_share_groups(broker)
    except ApiError as error:
        return {"groups": [_failed(each.group_id, error.code) for each in body.groups]}
    return call_owners(request, broker, body, DESCRIBE_SHARE_GROUP_OFFSETS)


def _group_response(request: Request, broker: BrokerContext, _body: Any, asked: Any) -> Work:
    group = broker.coordinators.groups.find(asked.group_id)
    return _described(request, broker, asked, group if isinstance(group, ShareGroup) else None)


def _described(request: Request, broker: BrokerContext, asked: Any, group: ShareGroup | None) -> Work:
    topics = []
    for each in _named(request, broker, asked.topics) if asked.topics is not None else _all(request, broker, group):
        topic = (yield from _topic(broker, asked.group_id, each)) if isinstance(each, _Asked) else each
        if isinstance(topic, int):
            return _failed(asked.group_id, topic)
        topics.append(topic)
        yield None
    return {"group_id": asked.group_id, "error_code": 0, "topics": topics}


def _named(request: Request, broker: BrokerContext, topics: Iterable[Any]) -> Iterator[_Asked | dict[str, Any]]:
    """Yield the named topics that exist and that the client may see, and the entry of each other one."""
    for named in topics:
        topic = broker.metadata.topic(named.topic_name)
        error = broker.access.rejection(request, ResourceType.TOPIC, named.topic_name)
        if error or topic is None:
            yield _failed_topic(named, error or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            yield _Asked(topic, named.partitions)


def _all(request: Request, broker: BrokerContext, group: ShareGroup | None) -> list[_Asked]:
    """Return the initialized partitions of a group whose topics the client may see."""
    if group is None:
        return []
    found = ((broker.metadata.topic_by_id(topic_id), each.partitions) for topic_id, each in group.initialized.items())
    return [
        _Asked(topic, sorted(partitions))
        for topic, partitions in found
        if topic is not None and not broker.access.rejection(request, ResourceType.TOPIC, topic.name)
    ]


def _topic(broker: BrokerContext, group_id: str, asked: _Asked) -> Work:
    """Return the entry of a topic, or the error of the state's owner."""
    topic = asked.topic
    existing = [each for each in asked.partitions if 0 <= each < len(topic.partitions)]
    summary = Deferred()
    broker.coordinators.share_rpc.summary(
        group_id, topic.topic_id, existing, lambda error, found: summary.complete((error, found))
    )
    error, found = yield summary
    if error:
        return error
    partitions = []
    for index in asked.partitions:
        entry: dict[str, Any] = {"partition_index": index, **_NO_STATE}
        if not 0 <= index < len(topic.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            entry |= {"error_code": int(code), "error_message": text_of(code)}
        elif index in found:
            start, completed = found[index]
            ends = published_ends(broker, topic, topic.partitions[index])
            is_known = ends is not None and start >= 0 and completed >= 0
            entry |= {
                "start_offset": start,
                "leader_epoch": 0 if ends is None else max(ends.leader_epoch, 0),
                "lag": max(0, ends.end - start - completed) if ends is not None and is_known else -1,
            }
        partitions.append(entry)
    return {"topic_name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def _failed_topic(named: Any, error: int) -> dict[str, Any]:
    failure = {**_NO_STATE, "error_code": error, "error_message": text_of(error)}
    return {
        "topic_name": named.topic_name,
        "partitions": [{"partition_index": index, **failure} for index in named.partitions],
    }


def _failed(group_id: str, error: int) -> dict[str, Any]:
    return {**failed_group(group_id, error), "error_message": text_of(error)}


def _merged(groups: Sequence[Any]) -> Any:
    """Return one element for several that name the same group."""
    if any(each.topics is None for each in groups):
        return groups[0].replaced(topics=None)
    return groups[0].replaced(topics=tuple(topic for each in groups for topic in each.topics))


DESCRIBE_SHARE_GROUP_OFFSETS = MultiGroupApi(
    "groups", "groups", _group_response, _failed, attrgetter("group_id"), _merged
)
