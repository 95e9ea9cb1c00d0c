"""Fetch responses compared with kio's in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema

from rotunda.broker.partitions.fetch.fetch_response import (
    Gap,
    PlainParts,
    encode_part,
    encode_topics,
    frame_fetch_response,
    tags_of,
)
from rotunda.broker.partitions.produce_response import single_partition_response
from rotunda.broker.protocol.messages.produce import PartResponse, encode_produce_response
from tests.protocol.kio_entities import entities, few, framed_with, id_bytes, in_ms, kio_bytes, topics_are_distinct

VERSIONS = range(4, 19)
_NOT_OURS = frozenset({"node_endpoints", "snapshot_id", "diverging_epoch", "current_leader", "preferred_read_replica"})


def _topic(topic: Any, version: int) -> tuple[str | None, bytes | None]:
    if version >= 13:
        return None, id_bytes(topic.topic_id)
    return topic.topic, None


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


# ---- Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
@few
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    partition=st.integers(0, 2**31 - 1),
    name=st.text(min_size=1, max_size=249),
    base_offset=st.integers(-1, 2**63 - 1),
    error_code=st.integers(-1, 130),
)
def test_a_filled_template_equals_the_encoded_response(
    version: int, correlation_id: int, partition: int, name: str, base_offset: int, error_code: int
) -> None:
    topic_id = bytes(range(16))
    template = single_partition_response(version, name, topic_id, partition)
    part = PartResponse(name, topic_id, partition, error_code, base_offset, 5, 17)
    assert template.fill(correlation_id, error_code, base_offset, 5, 17) == encode_produce_response(
        version, correlation_id, 0, [part]
    )
