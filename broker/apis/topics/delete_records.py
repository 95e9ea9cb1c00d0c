"""DeleteRecords: move the beginning of partitions up. Their owners do it; the answer waits for them."""

from __future__ import annotations

from typing import Any

from broker.apis.context import Parked, PendingAnswer, RequestContext
from broker.protocol.error_codes import ErrorCode
from broker.protocol.kio_adapter import milliseconds
from broker.protocol.kio_slices import Lazily
from broker.scheduling.long_answers import at_length
from broker.scheduling.slices import Work

_NO_OFFSET = -1
#: A client's timeout is meant for followers. There are none, so that even a timeout of 0 gets an answer without errors;
#: the owners, which are processes of this broker, are given the time that it takes to replace one.
_OWNERS_MS = 5_000


def handle_delete_records(context: RequestContext, request: Any) -> Work:
    """Return the new beginning of each partition, or a wait for the owners of some."""
    asked: list[tuple[str, list[tuple[int, PendingAnswer]]]] = []
    for topic in request.topics:
        answers: list[tuple[int, PendingAnswer]] = []
        asked.append((topic.name, answers))
        for part in topic.partitions:
            # An owner takes segments out of the log for it.
            answers.append((part.partition_index, _ask(context, topic.name, part)))
            yield None

    def retry(final: bool) -> Work | None:
        is_done = final or all(answer.done for _, parts in asked for _, answer in parts)
        return _response(asked) if is_done else None

    return retry(False) or Parked(max(milliseconds(request.timeout), _OWNERS_MS), retry)


def _response(asked: list[tuple[str, list[tuple[int, PendingAnswer]]]]) -> Work:
    def topic(each: tuple[str, list[tuple[int, PendingAnswer]]]) -> dict[str, Any]:
        name, answers = each
        return {"name": name, "partitions": Lazily(answers, lambda answer: _part(*answer))}

    return at_length({"throttle_time_ms": 0, "topics": Lazily(asked, topic)})


def _ask(context: RequestContext, topic_name: str, part: Any) -> PendingAnswer:
    metadata = context.broker.metadata
    topic, partition = metadata.topic(topic_name), metadata.partition(topic_name, part.partition_index)
    if topic is None or partition is None:
        return _settled(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        return _settled(ErrorCode.INVALID_TOPIC_EXCEPTION)
    config = metadata.log_config(topic)
    if config.compacts and not config.deletes:
        # Records of a compacted topic go away by key, not by age.
        return _settled(ErrorCode.POLICY_VIOLATION)
    return context.broker.ask_owner(partition.row, kind="delete_records", argument=part.offset)


def _settled(error: int) -> PendingAnswer:
    return PendingAnswer(done=True, error_code=error, value=_NO_OFFSET)


def _part(partition: int, answer: PendingAnswer) -> dict[str, Any]:
    error = answer.error_code if answer.done else ErrorCode.REQUEST_TIMED_OUT
    return {
        "partition_index": partition,
        "low_watermark": _NO_OFFSET if error else answer.value,
        "error_code": error,
    }
