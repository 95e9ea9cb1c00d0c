"""DescribeProducers: recent producers of a partition, and their open transactions (KIP-664)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.transaction.admin import ActiveProducer, Producers
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import TOO_LONG, TOO_LONG_MESSAGE
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_NOBODY = Producers(b"")


def handle_describe_producers(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the producers of each partition, each once, from the partitions' owners."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in wanted.items():
        partitions = []
        for index in indexes:
            error, producers = yield from _producers(request, broker, name, index)
            partitions.append((index, error, producers))
            yield None
        topics.append({"name": name, "partitions": Lazily(partitions, _described, _rejected)})
    return {"topics": topics}


def _producers(request: Request, broker: BrokerContext, topic: str, index: int) -> Work:
    if rejection := broker.access.rejection(request, ResourceType.TOPIC, topic):
        return rejection, _NOBODY
    info = broker.metadata.partition(topic, index)
    if info is None:
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), _NOBODY
    response = yield from broker.coordinators.transaction_admin.ask_producers(info.owner, (topic, index))
    return response


def _described(partition: tuple[int, int, Producers]) -> dict[str, Any]:
    index, error, producers = partition
    return {
        "partition_index": index,
        "error_code": error,
        "error_message": text_of(error) if error else None,
        "active_producers": Lazily(producers, ActiveProducer._asdict),
    }


def _rejected(partition: tuple[int, int, Producers]) -> dict[str, Any]:
    return {"partition_index": partition[0], "error_code": TOO_LONG, "error_message": TOO_LONG_MESSAGE}
