"""DescribeLogDirs: the one data directory, the sizes of partitions and of its volume (KIP-827)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import PartitionInfo
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.shm.tables.partitions import STATE_OPEN

_UNKNOWN_SIZE = -1


def handle_describe_log_dirs(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the directory with the requested partitions that exist; with all by default."""
    directory = broker.metadata.broker_config.log_dirs[0]
    try:
        volume = os.statvfs(directory)
        error, total_bytes, usable_bytes = (
            0,
            volume.f_blocks * volume.f_frsize,
            volume.f_bavail * volume.f_frsize,
        )
    except OSError:
        error, total_bytes, usable_bytes = int(ErrorCode.KAFKA_STORAGE_ERROR), _UNKNOWN_SIZE, _UNKNOWN_SIZE
    topics: list[dict[str, Any]] = []

    def add(topic: tuple[str, Sequence[PartitionInfo]]) -> None:
        name, partitions = topic
        if partitions:
            topics.append({"name": name, "partitions": Lazily(partitions, partial(_part, broker))})

    yield from each_of(_wanted(broker, body.topics), add)
    result = {
        "error_code": error,
        "log_dir": directory,
        "topics": [] if error else topics,
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
    return {"error_code": 0, "results": [result]}


def _wanted(broker: BrokerContext, topics: Any) -> Iterator[tuple[str, Sequence[PartitionInfo]]]:
    metadata = broker.metadata
    if topics is None:
        for topic in metadata.topics():
            yield topic.name, topic.partitions
        return
    for topic in topics:
        found = metadata.topic(topic.topic)
        known = () if found is None else found.partitions
        yield topic.topic, [known[index] for index in dict.fromkeys(topic.partitions) if 0 <= index < len(known)]


def _part(broker: BrokerContext, partition: PartitionInfo) -> dict[str, Any]:
    table = broker.partitions.table
    is_open = table.state(partition.row) == STATE_OPEN
    return {
        "partition_index": partition.index,
        "partition_size": table.log_bytes(partition.row) if is_open else 0,
        "offset_lag": 0,
        "is_future_key": False,
    }
