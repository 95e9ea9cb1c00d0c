"""ListOffsets: the first and last offset of a partition, and the offset at a time.

Served by any handler, from the owners' published offsets and from the files. A search through files is done in slices,
and so is a response with very many partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.topics.published_offsets import PartitionEnds, epoch_error, published_ends
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.log.log_reader import ATTEMPTS, End, LogReader
from rotunda.broker.log.timestamp_search import TimestampOffset
from rotunda.broker.metadata.metadata_cache import PartitionInfo
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.steps import Steps, finished

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)

READ_COMMITTED = 1

#: Timestamps that need no search in files of records.
_PUBLISHED = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
#: Most such partitions in one slice.
_SLICE_PARTS = 50


class _Found(NamedTuple):
    """The outcome of one partition; all -1: there is no such offset."""

    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class _Query(NamedTuple):
    """One existing partition and its request: ``is_committed`` hides unstable records."""

    request: Request
    broker: BrokerContext
    topic_name: str
    partition: PartitionInfo
    ends: PartitionEnds
    is_committed: bool
    timestamp: int


def handle_list_offsets(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Steps[dict[str, Any]]:
    """Return an offset or an error for every requested partition."""
    parts = parts_of(body)
    steps = _topics(request, broker, parts, is_committed=body.isolation_level == READ_COMMITTED)
    is_short = len(parts) <= _SLICE_PARTS and all(part.timestamp in _PUBLISHED for _, part in parts)
    return finished(steps) if is_short else steps


def parts_of(request: Any) -> list[tuple[str, Any]]:
    """Return each partition of a request with the name of its topic."""
    return [(topic.name, part) for topic in request.topics for part in topic.partitions]


def _topics(
    request: Request, broker: BrokerContext, parts: Sequence[tuple[str, Any]], *, is_committed: bool
) -> Steps[dict[str, Any]]:
    times_asked = Counter((name, part.partition_index) for name, part in parts)
    topics: list[dict[str, Any]] = []
    for number, (name, part) in enumerate(parts, 1):
        if rejection := broker.access.rejection(request, ResourceType.TOPIC, name):
            response = _failed(part, rejection)
        elif times_asked[name, part.partition_index] > 1:
            response = _failed(part, ErrorCode.INVALID_REQUEST)
        else:
            response = yield from _partition_response(request, broker, name, part, is_committed)
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, "partitions": []})
        topics[-1]["partitions"].append(response)
        if not number % _SLICE_PARTS:
            yield
    return {"topics": topics}


def _partition_response(
    request: Request, broker: BrokerContext, name: str, part: Any, is_committed: bool
) -> Steps[dict[str, int]]:
    metadata = broker.metadata
    topic, partition = metadata.topic(name), metadata.partition(name, part.partition_index)
    if topic is None or partition is None:
        return _failed(part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    lookup, since_version = _LOOKUPS.get(part.timestamp, (_none, None)) if part.timestamp < 0 else (_by_time, 0)
    if since_version is None or request.api_version < since_version:
        return _failed(part, ErrorCode.UNSUPPORTED_VERSION)
    ends = published_ends(broker, topic, partition)
    if ends is None:
        return _failed(part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = epoch_error(part.current_leader_epoch, ends)
    if error:
        return _failed(part, error)
    try:
        found = lookup(_Query(request, broker, topic.name, partition, ends, is_committed, part.timestamp))
        if not isinstance(found, _Found):
            found = yield from found
    except ApiError as unreadable:
        return _failed(part, unreadable.code)
    return {"partition_index": part.partition_index, **found._asdict()}


def _failed(part: Any, error: int) -> dict[str, int]:
    return {"partition_index": part.partition_index, "error_code": error}


def _latest(query: _Query) -> _Found:
    ends = query.ends
    return _Found(offset=ends.stable if query.is_committed else ends.end, leader_epoch=ends.leader_epoch)


def _earliest(query: _Query) -> _Found:
    start = query.ends.start
    if start == query.ends.end:
        return _Found(offset=start, leader_epoch=query.ends.leader_epoch)
    return _Found(offset=start, leader_epoch=_reader(query).epoch_for_offset(start))


def _max_timestamp(query: _Query) -> _Found | Steps[_Found]:
    if query.ends.start == query.ends.end:
        return _Found()
    return _search(query, lambda reader, end: reader.max_timestamp(query.ends.start, end))


def _by_time(query: _Query) -> _Found | Steps[_Found]:
    if query.ends.start == query.ends.end:
        return _Found()
    return _search(query, lambda reader, end: reader.offset_for_timestamp(query.timestamp, query.ends.start, end))


def _reader(query: _Query) -> LogReader:
    partition = query.partition
    return query.broker.partitions.reader(partition.row, query.topic_name, partition.index)


def _search(query: _Query, search: Callable[[LogReader, End], Steps[TimestampOffset | None]]) -> Steps[_Found]:
    """Search the log up to its published end, again if its segment was rolled meanwhile.

    ApiError LEADER_NOT_AVAILABLE, after which clients retry, when segments roll faster than they are searched.
    """
    table, row = query.broker.partitions.table, query.partition.row
    for _ in range(ATTEMPTS):
        stable_offset = table.read_stable(row)
        end = table.read_position(row)
        try:
            found = yield from search(_reader(query), end)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if table.read_position(row)[1] == end[1]:
            limit = stable_offset if query.is_committed else end[0]
            return _Found() if found is None or found.offset >= limit else _Found(*found)
    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)


def _none(_query: _Query) -> _Found:
    """There is no tiered storage."""
    return _Found()


#: By special timestamp: the function, and its first version.
_LOOKUPS: Mapping[int, tuple[Callable[[_Query], _Found | Steps[_Found]], int | None]] = {
    LATEST: (_latest, 1),
    EARLIEST: (_earliest, 1),
    MAX_TIMESTAMP: (_max_timestamp, 7),
    EARLIEST_LOCAL: (_earliest, 8),
    LATEST_TIERED: (_none, 9),
    EARLIEST_PENDING_UPLOAD: (_none, 11),
}
