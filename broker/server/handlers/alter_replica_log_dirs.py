"""AlterReplicaLogDirs: there is one data directory, and every partition is in it (KIP-113)."""

from __future__ import annotations

from typing import Any

from broker.protocol.error_codes import ErrorCode
from broker.server.request_context import RequestContext


def handle_alter_replica_log_dirs(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return an outcome for each partition: success where it is told to stay where it is."""
    errors: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                errors.setdefault(topic.name, {})[index] = _error(context, directory.path, topic.name, index)
    results = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": index, "error_code": error} for index, error in partitions.items()],
        }
        for name, partitions in errors.items()
    ]
    return {"throttle_time_ms": 0, "results": results}


def _error(context: RequestContext, path: str, topic: str, index: int) -> int:
    # The directory comes first, as in Kafka; the answer has no place for words.
    if path != context.broker.config.log_dirs[0]:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if context.broker.metadata.partition(topic, index) is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
