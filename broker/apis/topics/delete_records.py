"""DeleteRecords: advances the log start offset of partitions. The response waits for their owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.log.owner_tasks import DELETE_RECORDS, START_OFFSET
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_NO_OFFSET = -1
#: A client's timeout is meant for followers. There are none, so that even a timeout of 0 gets a response without
#: errors; the owners, which are processes of this broker, have the time needed to replace one.
_OWNERS_MS = 5_000


@dataclass(slots=True)
class _Outcome:
    """The outcome of a partition; ``error`` is None until its owner has responded."""

    partition: int
    error: int | None = None
    low_watermark: int = _NO_OFFSET


class _Asked:
    """The outcomes of all partitions of a request."""

    def __init__(self) -> None:
        self.topics: list[tuple[str, list[_Outcome]]] = []
        #: Owners that have not responded, plus one while requests are still being sent.
        self.left = 1

    def response(self) -> Work:
        """Return the response, with the owners' outcomes so far."""
        return at_length({"topics": Lazily(self.topics, lambda each: _topic(*each))})


def handle_delete_records(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the new log start offset of each partition, or a wait for the owners of some."""
    asked = _Asked()
    # The outcomes have no reference to the response: both are freed when it is sent, without garbage collection.
    deferred = Deferred(
        max(body.timeout_ms, _OWNERS_MS),
        lambda final: asked.response() if final or not asked.left else None,
    )
    for topic in body.topics:
        outcomes: list[_Outcome] = []
        asked.topics.append((topic.name, outcomes))
        for part in topic.partitions:
            outcome = _Outcome(part.partition_index)
            outcomes.append(outcome)
            # Its owner removes segments from the log.
            _ask(request, broker, asked, deferred, (topic.name, part.offset), outcome)
            yield None
    asked.left -= 1
    return deferred if asked.left else asked.response()


def _ask(
    request: Request,
    broker: BrokerContext,
    asked: _Asked,
    deferred: Deferred,
    target: tuple[str, int],
    outcome: _Outcome,
) -> None:
    """Send a task to the owner of a partition; ``target``: the topic, and the offset before which to delete."""
    topic_name, before = target
    metadata = broker.metadata
    if rejection := broker.access.rejection(request, ResourceType.TOPIC, topic_name):
        outcome.error = rejection
        return
    topic, partition = metadata.topic(topic_name), metadata.partition(topic_name, outcome.partition)
    if topic is None or partition is None:
        outcome.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    if topic.internal:
        outcome.error = ErrorCode.INVALID_TOPIC_EXCEPTION
        return
    config = metadata.log_config(topic)
    if config.compacts and not config.deletes:
        # Records of a compacted topic are deleted by key, not by age.
        outcome.error = ErrorCode.POLICY_VIOLATION
        return

    def complete(error: int, payload: bytes) -> None:
        outcome.error = error
        if not error:
            (outcome.low_watermark,) = START_OFFSET.unpack(payload)
        asked.left -= 1
        deferred.try_complete(final=False)

    asked.left += 1
    payload = DELETE_RECORDS.pack(partition.row, before)
    broker.tasks.ask(partition.owner, "delete_records", payload, complete)


def _topic(name: str, outcomes: list[_Outcome]) -> dict[str, Any]:
    return {"name": name, "partitions": Lazily(outcomes, _part)}


def _part(outcome: _Outcome) -> dict[str, Any]:
    error = ErrorCode.REQUEST_TIMED_OUT if outcome.error is None else outcome.error
    return {"partition_index": outcome.partition, "low_watermark": outcome.low_watermark, "error_code": error}
