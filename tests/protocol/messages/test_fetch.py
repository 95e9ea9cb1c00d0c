"""Fetch requests compared with kio's in every version, and on hostile bytes."""

import struct
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.messages.fetch import MOST_BYTES, FetchPart, ForgottenPart, read_fetch
from tests.protocol.kio_entities import (
    entities,
    few,
    id_bytes,
    in_ms,
    kio_bytes,
    module_of,
)
from tests.protocol.messages.hostile import check_hostile, placed

VERSIONS = range(4, 19)


def _topic(topic: Any, version: int) -> tuple[str | None, bytes | None]:
    if version >= 13:
        return None, id_bytes(topic.topic_id)
    return (topic.topic if hasattr(topic, "topic") else topic.name), None


@pytest.mark.parametrize("version", VERSIONS)
@few
@given(data=st.data())
def test_requests_are_read_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(1, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    request = read_fetch(buffer, version, offset, end)
    assert request.max_wait_ms == in_ms(entity.max_wait)
    assert (request.min_bytes, request.max_bytes) == (entity.min_bytes, entity.max_bytes)
    assert request.isolation_level == entity.isolation_level
    assert request.session_id == getattr(entity, "session_id", 0)
    assert request.session_epoch == getattr(entity, "session_epoch", -1)
    assert request.parts == [
        FetchPart(
            *_topic(topic, version),
            part.partition,
            getattr(part, "current_leader_epoch", -1),
            part.fetch_offset,
            getattr(part, "last_fetched_epoch", -1),
            getattr(part, "log_start_offset", -1),
            part.partition_max_bytes,
        )
        for topic in entity.topics
        for part in topic.partitions
    ]
    assert request.forgotten == [
        ForgottenPart(*_topic(topic, version), partition)
        for topic in getattr(entity, "forgotten_topics_data", ())
        for partition in topic.partitions
    ]
    varying = [part.fetch_offset for topic in entity.topics for part in topic.partitions]
    if version >= 7:
        varying.insert(0, request.session_epoch)
    assert [struct.unpack_from(f">{form}", buffer, place)[0] for place, form in request.places] == varying


@pytest.mark.parametrize("version", VERSIONS)
def test_hostile_requests_are_invalid_and_nothing_worse(version: int) -> None:
    """C07."""
    module = module_of(load_request_schema(1, version))
    topic = {"topic_id": None} if version >= 13 else {"topic": "orders"}
    partition = module.FetchPartition(
        partition=0,
        fetch_offset=5,
        partition_max_bytes=1 << 20,
        **({"log_start_offset": -1} if version >= 5 else {}),
    )
    topics = (module.FetchTopic(**topic, partitions=(partition, partition)),) * 2
    more: dict[str, Any] = {}
    if version >= 7:
        more |= {"session_id": 0, "session_epoch": -1}
        more["forgotten_topics_data"] = (module.ForgottenTopic(**topic, partitions=(1, 2)),)
    if version < 15:
        more["replica_id"] = -1
    entity = module.FetchRequest(
        max_wait=timedelta(seconds=1), min_bytes=1, max_bytes=2, isolation_level=0, topics=topics, **more
    )
    check_hostile(lambda buffer, offset, end: read_fetch(buffer, version, offset, end), kio_bytes(entity))


def test_a_request_that_takes_long_to_copy_is_rejected() -> None:
    with pytest.raises(InvalidReceive, match="are accepted"):
        read_fetch(bytes(MOST_BYTES + 1), 12, 0, MOST_BYTES + 1)
