"""The Fetch codec compared with kio's in every version, and on hostile bytes."""

import struct
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.messages.fetch import (
    MOST_BYTES,
    FetchPart,
    ForgottenPart,
    Gap,
    PlainParts,
    encode_part,
    encode_topics,
    frame_fetch_response,
    read_fetch,
    tags_of,
)
from tests.protocol.kio_entities import (
    entities,
    few,
    framed_with,
    id_bytes,
    in_ms,
    kio_bytes,
    module_of,
    topics_are_distinct,
)
from tests.protocol.messages.hostile import check_hostile, placed

VERSIONS = range(4, 19)
_NOT_OURS = frozenset({"node_endpoints", "snapshot_id", "diverging_epoch", "current_leader", "preferred_read_replica"})


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


def _encoded(version: int, part: Any) -> bytes:
    aborted = part.aborted_transactions
    return encode_part(
        version,
        part.partition_index,
        int(part.error_code),
        (part.high_watermark, part.last_stable_offset, getattr(part, "log_start_offset", -1)),
        len(part.records),
        None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
    )


@pytest.mark.parametrize("version", VERSIONS)
@few
@given(data=st.data())
def test_responses_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    strategy = entities(load_response_schema(1, version), left_out=_NOT_OURS, not_null=frozenset({"records"}))
    entity = data.draw(strategy.filter(lambda e: topics_are_distinct(e.responses, "partitions")))
    records = [part.records for topic in entity.responses for part in topic.partitions]
    topics = encode_topics(version, [_topic(topic, version) for topic in entity.responses for _ in topic.partitions])
    tags = tags_of(version)
    encoded = [
        _encoded(version, part) + (b"" if part.records else tags)
        for topic in entity.responses
        for part in topic.partitions
    ]
    gaps: list[Gap] = [(index, len(data), tags) for index, data in enumerate(records) if data]
    status = (in_ms(entity.throttle_time), int(getattr(entity, "error_code", 0)), getattr(entity, "session_id", 0))
    chunks = frame_fetch_response(version, -7, topics, encoded, gaps, status)
    assert len(chunks) == len(gaps) + 1
    wire = chunks[0] + b"".join(data + chunk for data, chunk in zip(filter(None, records), chunks[1:], strict=True))
    assert wire == framed_with(b"\x00" if version >= 12 else b"", -7, kio_bytes(entity))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
def test_parts_without_records_are_written_as_all_others(version: int, committed: bool) -> None:
    part = encode_part(version, 7, 0, (1 << 40, 99, 3), aborted=() if committed else None)
    expected = part + tags_of(version)
    assert PlainParts(version, committed=committed).encode_empty(7, 1 << 40, 99, 3) == expected


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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("records_size", [0, 100, 1 << 20])
def test_the_short_way_of_a_part_is_that_of_all_others(version: int, committed: bool, records_size: int) -> None:
    plain = PlainParts(version, committed=committed)
    encoded = plain.encode(7, 9, 8, 3, records_size)
    assert encoded == encode_part(version, 7, 0, (9, 8, 3), records_size, () if committed else None)
    assert plain.tags == tags_of(version)
    topics = encode_topics(version, [("orders", None) if version < 13 else (None, b"i" * 16)])
    gaps: list[Gap] = [(0, records_size, plain.tags)] if records_size else []
    # A throttle time of 1 ms forces the general path; its bytes are zeroed for the comparison.
    first, *rest = frame_fetch_response(version, 1, topics, [encoded], gaps, (1, 0, 0))
    throttle_at = 9 if version >= 12 else 8
    first = first[:throttle_at] + bytes(4) + first[throttle_at + 4 :]
    assert frame_fetch_response(version, 1, topics, [encoded], gaps) == [first, *rest]
