"""DescribeLogDirs: the one data directory, what partitions and volume it is on measure (KIP-827)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from broker.protocol.error_codes import ErrorCode
from broker.protocol.kio_slices import Lazily
from broker.server.handlers.long_answers import at_length
from broker.server.metadata_cache import PartitionInfo
from broker.server.request_context import RequestContext
from broker.server.slices import Work
from shm.partitions import STATE_OPEN

_UNKNOWN_SIZE = -1


def handle_describe_log_dirs(context: RequestContext, request: Any) -> Work:
    """Return the directory with the partitions asked for that exist; with all when the request names none."""
    directory = context.broker.config.log_dirs[0]
    try:
        volume = os.statvfs(directory)
        error, total_bytes, usable_bytes = (
            0,
            volume.f_blocks * volume.f_frsize,
            volume.f_bavail * volume.f_frsize,
        )
    except OSError:
        error, total_bytes, usable_bytes = int(ErrorCode.KAFKA_STORAGE_ERROR), _UNKNOWN_SIZE, _UNKNOWN_SIZE
    topics = [
        {"name": name, "partitions": Lazily(partitions, partial(_part, context))}
        for name, partitions in _wanted(context, request.topics)
        if partitions
    ]
    result = {
        "error_code": error,
        "log_dir": directory,
        "topics": [] if error else topics,
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
    return at_length({"throttle_time_ms": 0, "error_code": 0, "results": [result]})


def _wanted(context: RequestContext, topics: Any) -> Iterable[tuple[str, list[PartitionInfo]]]:
    metadata = context.broker.metadata
    if topics is None:
        return [(topic.name, list(topic.partitions)) for topic in metadata.topics()]
    found = []
    for topic in topics:
        partitions = (metadata.partition(topic.topic, index) for index in dict.fromkeys(topic.partitions))
        found.append((topic.topic, [partition for partition in partitions if partition is not None]))
    return found


def _part(context: RequestContext, partition: PartitionInfo) -> dict[str, Any]:
    table = context.broker.partitions
    is_open = table.state(partition.row) == STATE_OPEN
    return {
        "partition_index": partition.index,
        "partition_size": table.log_bytes(partition.row) if is_open else 0,
        "offset_lag": 0,
        "is_future_key": False,
    }
