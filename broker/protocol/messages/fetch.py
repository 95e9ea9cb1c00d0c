"""Fetch requests, versions 4-18. HOT: every poll of every consumer is one.

The response is built around the records of files: `broker.partitions.fetch.fetch_response`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.primitives import Buffer

TOPIC_ID_FROM: Final = 13
NO_LIMIT: Final = 1 << 31

#: Longest request: it is copied and decoded at once.
MOST_BYTES: Final = 16 << 20


class FetchPart(NamedTuple):
    """One partition to read. The name is None from version 13, the id (16 bytes) below it."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


#: The fields of a `FetchPart`, in order: a plain tuple, because there may be thousands in each poll, and the garbage
#: collector leaves those alone.
PartFields = tuple[str | None, bytes | None, int, int, int, int, int, int]


_part_fields = attrgetter(*FetchPart._fields[2:])


class ForgottenPart(NamedTuple):
    """One partition that an incremental fetch drops from its session."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int


class FetchRequest(NamedTuple):
    """A request, its parts in the order of the wire format.

    ``places``: (offset in the buffer, `struct` format) of its session epoch, from version 7 on, and its fetch offsets.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    parts: list[PartFields]
    forgotten: list[ForgottenPart]
    places: list[tuple[int, str]]


#: The `session_epoch` of a request that begins a session, and of one without a session.
FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1


def read_fetch(buffer: Buffer, version: int, offset: int, end: int, most_parts: int = NO_LIMIT) -> FetchRequest:
    """Decode the request body in [offset, end) of `buffer`.

    InvalidReceive when it is malformed, longer than `MOST_BYTES`, or names more than ``most_parts`` partitions.
    """
    if end - offset > MOST_BYTES:
        raise InvalidReceive(f"Fetch of {end - offset} bytes; {MOST_BYTES} are accepted")
    body, places = codec.decode_and_locate(ApiKey.FETCH, version, buffer, offset, end)
    parts: list[PartFields] = []
    for topic in body.topics:
        name, topic_id = _topic(version, topic)
        parts += [(name, topic_id, *fields) for fields in map(_part_fields, topic.partitions)]
    forgotten = [
        ForgottenPart(*_topic(version, topic), partition)
        for topic in body.forgotten_topics_data
        for partition in topic.partitions
    ]
    most = max(len(parts), len(forgotten), len(body.topics))
    if most > most_parts:
        raise InvalidReceive(f"Fetch of {most} topics or partitions; {most_parts} may be named")
    return FetchRequest(
        body.max_wait_ms, body.min_bytes, body.max_bytes, body.isolation_level, body.session_id, body.session_epoch,
        parts, forgotten, places,
    )  # fmt: skip


def _topic(version: int, topic: Any) -> tuple[str | None, bytes | None]:
    return (None, topic.topic_id) if version >= TOPIC_ID_FROM else (topic.topic, None)
