"""AlterReplicaLogDirs: there is one data directory, and every partition is in it (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work


def handle_alter_replica_log_dirs(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each partition: success if the request has its present directory."""
    errors: dict[str, dict[int, int]] = {}

    def note(place: tuple[str, str, int]) -> None:
        path, topic, index = place
        errors.setdefault(topic, {})[index] = _error(broker, path, topic, index)

    yield from each_of(_places(body), note)
    return {"results": Lazily(errors.items(), _result)}


def _places(request: Any) -> Iterator[tuple[str, str, int]]:
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield directory.path, topic.name, index


def _result(topic: tuple[str, dict[int, int]]) -> dict[str, Any]:
    name, errors = topic
    partitions = Lazily(errors.items(), lambda each: {"partition_index": each[0], "error_code": each[1]})
    return {"topic_name": name, "partitions": partitions}


def _error(broker: BrokerContext, path: str, topic: str, index: int) -> int:
    # The directory is checked first, as in Kafka; the response has no field for a message.
    if path != broker.metadata.broker_config.log_dirs[0]:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.metadata.partition(topic, index) is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
