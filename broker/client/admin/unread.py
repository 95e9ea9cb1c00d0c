"""Finds the oldest record that a consumer has yet to see: what lag in seconds is measured from.

The record is fetched, as there is no other way to learn the time of a record at an offset. Transaction markers
are skipped, and with read_committed the records of aborted transactions too, by the rule that consumers follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.client.admin.offsets import by_topic
from broker.client.topic_partition import TopicPartition
from broker.client.visible_batches import AbortedTransactions, whole_batches
from broker.errors import ApiError
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import name_of
from broker.protocol.record_reader import iterate_records

if TYPE_CHECKING:
    from broker.client.network.blocking_client import BlockingClient

_FETCH_VERSION: Final = 12  # newer ones name topics by id
_PARTITION_BYTES: Final = 1 << 17
_RESPONSE_BYTES: Final = 1 << 23
_MOST_ANSWERS: Final = 1000


class Span(NamedTuple):
    """The offsets in which to look: from `start` to below `end`."""

    start: int
    end: int


class Unread(NamedTuple):
    """What was found: the first record's time; or None, with what prevented it or because there is no record."""

    timestamp_ms: int | None
    problem: str | None = None


NOTHING: Final = Unread(None)
"""There is no record in the span: only markers, aborted records, or offsets that compaction emptied."""
_GIVEN_UP: Final = Unread(None, f"not among the first {_MOST_ANSWERS} answers")


def oldest_unread(
    client: BlockingClient, spans: Mapping[TopicPartition, Span], *, read_committed: bool
) -> dict[TopicPartition, Unread]:
    """Return the first record of each span. Raises ConnectionFailed."""
    found: dict[TopicPartition, Unread] = {}
    left = {each: span for each, span in spans.items() if span.start < span.end}
    for _ in range(_MOST_ANSWERS):
        if not left:
            break
        # The first partition in a request always gets a whole batch, however large it is. So each answer settles
        # that one or brings it forward, and most answers settle most partitions.
        answers = _fetch(client, left, read_committed=read_committed)
        first = min(left)
        for partition, answer in answers.items():
            result = _search(answer, left[partition], read_committed=read_committed)
            if isinstance(result, Unread):
                found[partition] = result
                del left[partition]
            elif result > left[partition].start:
                left[partition] = Span(result, left[partition].end)
            elif partition == first:
                found[partition] = NOTHING
                del left[partition]
    return {each: found.get(each, _GIVEN_UP if each in left else NOTHING) for each in spans}


def _fetch(
    client: BlockingClient, spans: Mapping[TopicPartition, Span], *, read_committed: bool
) -> dict[TopicPartition, Any]:
    topics = [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": each,
                    "fetch_offset": spans[TopicPartition(topic, each)].start,
                    "partition_max_bytes": _PARTITION_BYTES,
                }
                for each in partitions
            ],
        }
        for topic, partitions in by_topic(spans).items()
    ]
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": _RESPONSE_BYTES,
        "isolation_level": int(read_committed),
        "session_epoch": -1,
        "topics": topics,
    }
    answer = client.request(ApiKey.FETCH, fields, _FETCH_VERSION, 4)
    if int(getattr(answer, "error_code", 0)):
        raise ApiError(int(answer.error_code), "fetch of the oldest unread records")
    return {
        TopicPartition(str(topic.topic), int(each.partition_index)): each
        for topic in answer.responses
        for each in topic.partitions
    }


def _search(answer: Any, span: Span, *, read_committed: bool) -> Unread | int:
    """Return what is found in one partition's answer, or the offset at which to go on."""
    if int(answer.error_code):
        return Unread(None, name_of(int(answer.error_code)))
    aborted = AbortedTransactions(answer.aborted_transactions or () if read_committed else ())
    offset = span.start
    for header, batch in whole_batches(memoryview(answer.records or b"")):
        if header.base_offset >= span.end:
            return NOTHING
        if header.last_offset < offset:
            continue
        if not aborted.hides(header, batch):
            try:
                for record in iterate_records(batch):
                    if record.offset >= offset:
                        return Unread(record.timestamp_ms) if record.offset < span.end else NOTHING
            except ApiError as error:
                return Unread(None, name_of(error.code))
        offset = header.last_offset + 1
    return NOTHING if offset >= span.end else offset
