"""The Produce codec compared with kio's in every version, and on hostile bytes."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from rotunda.broker.protocol.messages.produce import (
    PartResponse,
    ProduceRequest,
    encode_produce_response,
    parse_produce,
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

VERSIONS = range(3, 14)
_EPOCH_NONE = -1


def _expected(entity: Any, version: int) -> tuple[Any, ...]:
    parts = [
        (
            None if version >= 13 else topic.name,
            id_bytes(topic.topic_id) if version >= 13 else None,
            partition.index,
            partition.records,
        )
        for topic in entity.topic_data
        for partition in topic.partition_data
    ]
    return entity.transactional_id, entity.acks, in_ms(entity.timeout), parts


def _seen(request: ProduceRequest, buffer: bytes | memoryview) -> tuple[Any, ...]:
    parts = [
        (
            part.topic_name,
            part.topic_id,
            part.partition,
            None if part.records_size < 0 else bytes(buffer[part.records_offset :][: part.records_size]),
        )
        for part in request.parts
    ]
    return request.transactional_id, request.acks, request.timeout_ms, parts


@pytest.mark.parametrize("version", VERSIONS)
@few
@given(data=st.data())
def test_requests_are_read_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(0, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    assert _seen(parse_produce(buffer, version, offset, end), buffer) == _expected(entity, version)


def _ours(entity: Any, version: int) -> list[PartResponse]:
    return [
        PartResponse(
            None if version >= 13 else topic.name,
            id_bytes(topic.topic_id) if version >= 13 else None,
            part.index,
            int(part.error_code),
            part.base_offset,
            _EPOCH_NONE if part.log_append_time is None else round(part.log_append_time.timestamp() * 1000),
            getattr(part, "log_start_offset", -1),
            getattr(part, "error_message", None),
            tuple((e.batch_index, e.batch_index_error_message) for e in getattr(part, "record_errors", ())),
        )
        for topic in entity.responses
        for part in topic.partition_responses
    ]


@pytest.mark.parametrize("version", VERSIONS)
@few
@given(data=st.data())
def test_responses_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    strategy = entities(load_response_schema(0, version), left_out=frozenset({"current_leader", "node_endpoints"}))
    entity = data.draw(strategy.filter(lambda e: topics_are_distinct(e.responses, "partition_responses")))
    wire = encode_produce_response(version, 7, in_ms(entity.throttle_time), _ours(entity, version))
    assert wire == framed_with(b"\x00" if version >= 9 else b"", 7, kio_bytes(entity))


@pytest.mark.parametrize("version", VERSIONS)
def test_hostile_requests_are_invalid_and_nothing_worse(version: int) -> None:
    """C07."""
    module = module_of(load_request_schema(0, version))
    topic = {"topic_id": None} if version >= 13 else {"name": "orders"}
    partitions = tuple(module.PartitionProduceData(index=i, records=b"r" * 70) for i in range(2))
    entity = module.ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout=timedelta(seconds=1),
        topic_data=(module.TopicProduceData(**topic, partition_data=partitions),) * 2,
    )
    body = kio_bytes(entity)

    def parse(buffer: bytes, offset: int, end: int) -> None:
        for part in parse_produce(buffer, version, offset, end).parts:
            assert -1 <= part.records_size <= end - part.records_offset

    check_hostile(parse, body)
