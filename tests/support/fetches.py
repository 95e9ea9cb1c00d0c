"""Fetches in every version, sent to a stepped broker and read back by kio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rotunda.broker.protocol import codec
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.wire_messages import FETCH, read_batches

FETCH_VERSIONS = range(4, 19)


class Answered(NamedTuple):
    """One partition of a response."""

    partition: int
    error: int
    values: list[bytes]


class Answer(NamedTuple):
    """A whole response."""

    error: int
    session: int
    parts: list[Answered]


def send_fetch(
    broker: SteppedBroker, client: Client, version: int, places: Sequence[tuple[int, int]], **options: object
) -> Sent:
    """Fetch from (partition, offset) of the topic, by handler 0; ``options`` are fields of the request."""
    topic = broker.topic("topic")
    name = {"topic_id": topic.topic_id} if version >= 13 else {"topic": "topic"}
    wanted = [
        {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for partition, offset in places
    ]
    values = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "isolation_level": 0,
        "topics": [{**name, "partitions": wanted}] if wanted else [],
    }
    frame = codec.encode_request(FETCH, version, 0, "consumer", {**values, **options})
    return client.send_frame(FETCH, version, frame[4:], 0)


def fetched(sent: Sent) -> Answer:
    """Return the response to a fetch."""
    payload = sent.answer.payload
    response = codec.decode_response(FETCH, sent.version, payload, 4, len(payload))
    parts = [
        Answered(
            part.partition_index,
            int(part.error_code),
            [record.value for record in read_batches(bytes(part.records or b""))],
        )
        for topic in response.responses
        for part in topic.partitions
    ]
    return Answer(int(getattr(response, "error_code", 0)), getattr(response, "session_id", 0), parts)


def append(broker: SteppedBroker, partition: int, value: bytes) -> None:
    """Append a batch of one record to a partition of the topic."""
    broker.client().produce([("topic", partition, record_batch([value]))])
    broker.settle()
