"""OffsetFetch: the committed offsets of groups. Several groups at a time from version 8 on, topics by id from 10 on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners, failed_group
from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard

_BATCHED_FROM = 8
_TOPIC_ID_FROM = 10


#: As in Kafka: consumers do not expect COORDINATOR_NOT_AVAILABLE, and look for a coordinator again after this error.
_TOLD = {int(ErrorCode.COORDINATOR_NOT_AVAILABLE): int(ErrorCode.NOT_COORDINATOR)}

#: Topics looked up between two yields; one may have many partitions.
_TOPICS_AT_ONCE = 16


class _Query(NamedTuple):
    """One group of a request: with ``require_stable``, offsets pending in a transaction are not returned."""

    request: Request
    broker: BrokerContext
    shard: GroupShard
    group_id: str
    require_stable: bool


def handle_offset_fetch(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the committed offset of each requested partition, -1 where there is none; null requests all."""
    if request.api_version >= _BATCHED_FROM:
        return call_owners(request, broker, body, OFFSET_FETCH)
    return _fetch_one(request, broker, body)


def _fetch_one(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the response for one group, as before version 8.

    From version 2 on Kafka sets only the top-level error. aiokafka reads only the partitions' errors, and would treat
    that as "nothing has been committed": so every partition has the error as well.
    """
    rejection = broker.access.rejection(request, ResourceType.GROUP, body.group_id)
    error, topics = (rejection, []) if rejection else (yield from _fetch(request, broker, body, body.require_stable))
    if error:
        topics = Lazily(body.topics or (), lambda topic: _failed(topic, error))
    return {"error_code": error, "topics": topics}


def _group_response(request: Request, broker: BrokerContext, body: Any, group: Any) -> Work:
    error, topics = yield from _fetch(request, broker, group, body.require_stable)
    return {"group_id": group.group_id, "error_code": error, "topics": topics}


def _fetch(request: Request, broker: BrokerContext, asked: Any, require_stable: bool) -> Work:
    """Return (error, topics) for one group, once the returned offsets are committed."""
    group_id = asked.group_id
    try:
        shard = broker.coordinators.groups.shard_of(group_id)
    except ApiError as failure:
        return _TOLD.get(failure.code, failure.code), []
    group = shard.groups.get(group_id)
    if group is not None:
        error = group.validate_offset_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
        if error:
            return error, []
    query = _Query(request, broker, shard, group_id, require_stable)
    topics: list[dict[str, Any]] = []
    # Offsets are looked up now and encoded later: they must be those that the awaited commit makes durable.
    work = _all(query) if asked.topics is None else _each(query, (yield from _distinct(asked.topics)))
    for number, topic in enumerate(work, 1):
        topics.append(topic)
        if not number % _TOPICS_AT_ONCE:
            yield None
    committed = Deferred()
    shard.when_committed(committed.complete)
    error = yield committed
    return _TOLD.get(error, error), [] if error else topics


def _all(query: _Query) -> Iterator[dict[str, Any]]:
    by_id = query.request.api_version >= _TOPIC_ID_FROM
    for name, offsets in list(query.shard.offsets.of_group(query.group_id).items()):
        if query.broker.access.rejection(query.request, ResourceType.TOPIC, name):
            continue
        topic = query.broker.metadata.topic(name) if by_id else None
        if by_id and topic is None:
            continue
        place = {"name": name, "topic_id": bytes(16) if topic is None else topic.topic_id}
        yield {**place, "partitions": _partitions(query, name, offsets, offsets)}


def _distinct(topics: Sequence[Any]) -> Steps[Iterable[tuple[Any, Collection[int]]]]:
    """Return the topics of a request and their partitions, each once."""
    found: dict[Any, tuple[Any, dict[int, None]]] = {}

    def add(topic: Any) -> None:
        key = topic.name, getattr(topic, "topic_id", None)
        found.setdefault(key, (topic, {}))[1].update(dict.fromkeys(topic.partition_indexes))

    yield from each_of(topics, add)
    return found.values()


def _each(query: _Query, topics: Iterable[tuple[Any, Collection[int]]]) -> Iterator[dict[str, Any]]:
    for asked, indexes in topics:
        yield _topic(query, asked, indexes)


def _topic(query: _Query, asked: Any, indexes: Collection[int]) -> dict[str, Any]:
    if query.request.api_version < _TOPIC_ID_FROM:
        name = asked.name
    else:
        topic = query.broker.metadata.topic_by_id(asked.topic_id)
        if topic is None:
            return _failed(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    if rejection := query.broker.access.rejection(query.request, ResourceType.TOPIC, name):
        return _failed(asked, rejection)
    offsets = query.shard.offsets.of_group(query.group_id).get(name, {})
    return {**_place(asked), "partitions": _partitions(query, name, indexes, offsets)}


def _place(asked: Any) -> dict[str, Any]:
    return {"name": asked.name, "topic_id": getattr(asked, "topic_id", ZERO_TOPIC_ID)}


def _partitions(query: _Query, topic: str, indexes: Collection[int], offsets: Mapping[int, CommittedOffset]) -> Lazily:
    """Return partitions that are encoded later, with their present offsets."""
    store = query.shard.offsets
    now = [
        (
            index,
            ErrorCode.UNSTABLE_OFFSET_COMMIT
            if query.require_stable and store.is_pending(query.group_id, topic, index)
            else 0,
            offset,
        )
        for index, offset in zip(indexes, map(offsets.get, indexes), strict=True)
    ]
    return Lazily(now, lambda each: _partition(each[0], each[1], None if each[1] else each[2]))


def _partition(index: int, error: int, committed: CommittedOffset | None = None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": error,
    }


def _failed(asked: Any, error: int) -> dict[str, Any]:
    return {**_place(asked), "partitions": Lazily(asked.partition_indexes, lambda index: _partition(index, error))}


def _group_failed(group_id: str, error: int) -> dict[str, Any]:
    return failed_group(group_id, _TOLD.get(error, error))


def _merged(groups: Sequence[Any]) -> Any:
    """Return one element for several that name the same group."""
    if any(each.topics is None for each in groups):
        return groups[0].replaced(topics=None)
    return groups[0].replaced(topics=tuple(topic for each in groups for topic in each.topics))


OFFSET_FETCH = MultiGroupApi("groups", "groups", _group_response, _group_failed, attrgetter("group_id"), _merged)
