"""Offsets of partitions by ListOffsets: where they begin and end, and which offset belongs to a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.client.topic_partition import TopicPartition
from broker.errors import ApiError
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.client.admin.connection import Connection

_VERSION: Final = 8
_LATEST: Final = -1
_EARLIEST: Final = -2
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Bounds(NamedTuple):
    """What a partition holds: offsets from `start` to below `end`, below `stable` all transactions are decided."""

    start: int
    stable: int
    end: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in order: the shape in which requests name them."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def bounds(connection: Connection, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition; one that does not exist is left out. Raises ApiError.

    Asked for in the order start, stable, end: each of them only grows, so start <= end and stable <= end hold, and
    an offset that was read before the call is at most `end`.
    """
    wanted = sorted(partitions)
    starts = _listed(connection, dict.fromkeys(wanted, _EARLIEST), read_committed=False)
    stables = _listed(connection, dict.fromkeys(starts, _LATEST), read_committed=True)
    ends = _listed(connection, dict.fromkeys(stables, _LATEST), read_committed=False)
    return {each: Bounds(starts[each], stables[each], end) for each, end in ends.items()}


def at_time(
    connection: Connection, partitions: Iterable[TopicPartition], time_ms: int
) -> dict[TopicPartition, int | None]:
    """Return each partition's first offset of that time or later, None where there is none. Raises ApiError."""
    found = _listed(connection, dict.fromkeys(sorted(partitions), time_ms), read_committed=False)
    return {each: offset if offset >= 0 else None for each, offset in found.items()}


def _listed(
    connection: Connection, times: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, int]:
    if not times:
        return {}
    version = connection.highest_version(ApiKey.LIST_OFFSETS, _VERSION, oldest=2)
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": each, "current_leader_epoch": -1, "timestamp": times[TopicPartition(topic, each)]}
                for each in partitions
            ],
        }
        for topic, partitions in by_topic(times).items()
    ]
    fields = {"replica_id": -1, "isolation_level": int(read_committed), "topics": topics}
    found = {}
    for topic in connection.request(ApiKey.LIST_OFFSETS, version, fields).topics:
        for each in topic.partitions:
            code = int(each.error_code)
            if code in _UNKNOWN:
                continue
            partition = TopicPartition(str(topic.name), int(each.partition_index))
            if code:
                raise ApiError(code, f"offsets of {partition.topic}-{partition.partition}")
            found[partition] = int(each.offset)
    return found
