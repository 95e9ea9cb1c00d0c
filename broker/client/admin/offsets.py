"""Partition offsets by ListOffsets: start, end, and the offset of a timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

_VERSION: Final = 8
_LATEST: Final = -1
_EARLIEST: Final = -2
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Bounds(NamedTuple):
    """A partition's offsets: from `start` to below `end`; below `stable` all transactions are decided."""

    start: int
    stable: int
    end: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in order: the format of requests."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def commit_fields(offsets: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offsets[TopicPartition(topic, partition)],
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
                for partition in partitions
            ],
        }
        for topic, partitions in by_topic(offsets).items()
    ]


def bounds(
    client: BlockingClient, partitions: Iterable[TopicPartition], node_id: int | None = None
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition; nonexistent ones are omitted. Raises ApiError.

    Requested in the order start, stable, end: each only grows, so start <= end and stable <= end hold, and an offset
    that was read before the call is at most `end`.
    """
    wanted = sorted(partitions)
    starts = _listed(client, dict.fromkeys(wanted, _EARLIEST), node_id, read_committed=False)
    stables = _listed(client, dict.fromkeys(starts, _LATEST), node_id, read_committed=True)
    ends = _listed(client, dict.fromkeys(stables, _LATEST), node_id, read_committed=False)
    return {each: Bounds(starts[each], stables[each], end) for each, end in ends.items()}


def at_time(
    client: BlockingClient, partitions: Iterable[TopicPartition], time_ms: int, node_id: int | None = None
) -> dict[TopicPartition, int | None]:
    """Return each partition's first offset of that time or later, None if there is none. Raises ApiError."""
    found = _listed(client, dict.fromkeys(sorted(partitions), time_ms), node_id, read_committed=False)
    return {each: offset if offset >= 0 else None for each, offset in found.items()}


def _listed(
    client: BlockingClient, times: Mapping[TopicPartition, int], node_id: int | None, *, read_committed: bool
) -> dict[TopicPartition, int]:
    if not times:
        return {}
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
    for topic in client.request(ApiKey.LIST_OFFSETS, fields, _VERSION, 2, node_id=node_id).topics:
        for each in topic.partitions:
            code = int(each.error_code)
            if code in _UNKNOWN:
                continue
            partition = TopicPartition(str(topic.name), int(each.partition_index))
            if code:
                raise ApiError(code, f"offsets of {partition.topic}-{partition.partition}")
            found[partition] = int(each.offset)
    return found
