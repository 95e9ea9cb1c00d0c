"""ListOffsets and Metadata against kio's codecs, in every version."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from broker.protocol.messages import fetch, list_offsets, metadata, produce
from tests.protocol.kio_entities import (
    entities,
    few,
    framed_with,
    id_bytes,
    in_ms,
    kio_bytes,
    topics_are_distinct,
)
from tests.protocol.messages.hostile import check_hostile, placed


@pytest.mark.parametrize("version", range(1, 12))
@few
@given(data=st.data())
def test_list_offsets_both_ways(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(2, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    assert list_offsets.parse_list_offsets(buffer, version, offset, end) == list_offsets.ListOffsetsRequest(
        entity.replica_id,
        getattr(entity, "isolation_level", 0),
        [
            list_offsets.ListOffsetsPart(
                topic.name, part.partition_index, getattr(part, "current_leader_epoch", -1), part.timestamp
            )
            for topic in entity.topics
            for part in topic.partitions
        ],
        in_ms(entity.timeout) if version >= 10 else 0,
    )
    strategy = entities(load_response_schema(2, version))
    answer = data.draw(strategy.filter(lambda e: topics_are_distinct(e.topics, "partitions")))
    parts = [
        list_offsets.ListOffsetsPartResponse(
            topic.name,
            part.partition_index,
            int(part.error_code),
            part.timestamp,
            part.offset,
            getattr(part, "leader_epoch", -1),
        )
        for topic in answer.topics
        for part in topic.partitions
    ]
    throttle_ms = in_ms(answer.throttle_time) if version >= 2 else 0
    wire = list_offsets.encode_list_offsets_response(version, 3, list_offsets.ListOffsetsResponse(throttle_ms, parts))
    assert wire == framed_with(b"\x00" if version >= 6 else b"", 3, kio_bytes(answer))
    if not parts:
        return
    # And from a template, which has no errors.
    parts = [part._replace(error_code=0, timestamp=-1) for part in parts]
    template = list_offsets.OffsetsTemplate(version, [(part.topic_name, part.partition) for part in parts])
    filled = bytearray(template.size_bytes)
    template.fill_into(filled, 0, 3, [(part.offset, part.leader_epoch) for part in parts])
    assert filled == list_offsets.encode_list_offsets_response(version, 3, list_offsets.ListOffsetsResponse(0, parts))


@pytest.mark.parametrize("version", range(14))
@few
@given(data=st.data())
def test_metadata_requests_are_read_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(3, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    topics = None
    if entity.topics is not None and (entity.topics or version > 0):
        topics = [
            metadata.MetadataRequestTopic(id_bytes(getattr(topic, "topic_id", None)), topic.name)
            for topic in entity.topics
        ]
    assert metadata.parse_metadata(buffer, version, offset, end) == metadata.MetadataRequest(
        topics,
        getattr(entity, "allow_auto_topic_creation", True),
        getattr(entity, "include_cluster_authorized_operations", False),
        getattr(entity, "include_topic_authorized_operations", False),
    )


def _partition(part: Any) -> metadata.MetadataPartition:
    return metadata.MetadataPartition(
        int(part.error_code),
        part.partition_index,
        part.leader_id,
        getattr(part, "leader_epoch", -1),
        part.replica_nodes,
        part.isr_nodes,
        getattr(part, "offline_replicas", ()),
    )


def _topic(topic: Any) -> metadata.MetadataTopic:
    return metadata.MetadataTopic(
        int(topic.error_code),
        topic.name,
        id_bytes(getattr(topic, "topic_id", None)),
        getattr(topic, "is_internal", False),
        [_partition(part) for part in topic.partitions],
        getattr(topic, "topic_authorized_operations", 0),
    )


@pytest.mark.parametrize("version", range(14))
@few
@given(data=st.data())
def test_metadata_responses_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_response_schema(3, version)))
    response = metadata.MetadataResponse(
        in_ms(entity.throttle_time) if version >= 3 else 0,
        [
            metadata.MetadataBroker(one.node_id, one.host, one.port, getattr(one, "rack", None))
            for one in entity.brokers
        ],
        getattr(entity, "cluster_id", None),
        getattr(entity, "controller_id", -1),
        [_topic(topic) for topic in entity.topics],
        getattr(entity, "cluster_authorized_operations", 0),
        int(getattr(entity, "error_code", 0)),
    )
    wire = metadata.encode_metadata_response(version, 9, response)
    assert wire == framed_with(b"\x00" if version >= 9 else b"", 9, kio_bytes(entity))


def test_metadata_name_that_is_null_is_empty_where_it_may_not_be_null() -> None:
    topic = metadata.MetadataTopic(100, None, bytes(15) + b"\x01")
    response = metadata.MetadataResponse(0, [], None, 1, [topic])
    for version, encoded in ((10, b"\x01"), (12, b"\x00")):
        wire = metadata.encode_metadata_response(version, 9, response)
        assert b"\x00\x64" + encoded + topic.topic_id in wire


_HOSTILE = {
    "list offsets": (list_offsets.parse_list_offsets, 2, range(1, 12)),
    "metadata": (metadata.parse_metadata, 3, range(14)),
}


@pytest.mark.parametrize("name", list(_HOSTILE))
def test_hostile_requests_are_invalid_and_nothing_worse(name: str) -> None:
    """C07."""
    parse, api_key, versions = _HOSTILE[name]
    for version in versions:
        body = kio_bytes(_example(api_key, version))
        check_hostile(lambda buffer, offset, end, v=version: parse(buffer, v, offset, end), body)


@pytest.mark.parametrize(
    ("parse", "api_key", "version"),
    [
        (produce.parse_produce, 0, 12),
        (fetch.parse_fetch, 1, 17),
        (list_offsets.parse_list_offsets, 2, 9),
        (metadata.parse_metadata, 3, 12),
    ],
)
@few
@given(data=st.data())
def test_unknown_tagged_fields_are_skipped(parse: Any, api_key: int, version: int, data: st.DataObject) -> None:
    strategy = entities(load_request_schema(api_key, version), left_out=frozenset({"cluster_id", "replica_state"}))
    body = kio_bytes(data.draw(strategy))
    tagged = body[:-1] + b"\x02\x62\x00\x63\x03abc"
    assert parse(tagged, version, 0, len(tagged)) == parse(body, version, 0, len(body))


def _example(api_key: int, version: int) -> Any:
    """Return a request with something in each of its arrays."""
    found: list[Any] = []

    @few
    @given(entity=entities(load_request_schema(api_key, version)))
    def collect(entity: Any) -> None:
        found.append(entity)

    collect()
    return max(found, key=lambda entity: len(kio_bytes(entity)))
