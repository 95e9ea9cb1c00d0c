"""ConsumerGroupHeartbeat against kio's codec, in every version."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from broker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    encode_consumer_group_heartbeat_response,
    parse_consumer_group_heartbeat,
)
from tests.protocol.kio_entities import entities, few, framed_with, id_bytes, in_ms, kio_bytes
from tests.protocol.messages.hostile import check_hostile, placed

API_KEY = 68


def assignment(topics: Iterable[Any]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[id_bytes(topic.topic_id)] = found.get(id_bytes(topic.topic_id), frozenset()).union(topic.partitions)
    return found


@pytest.mark.parametrize("version", range(2))
@few
@given(data=st.data())
def test_requests_are_read_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(API_KEY, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    assert parse_consumer_group_heartbeat(buffer, version, offset, end) == ConsumerGroupHeartbeatRequest(
        entity.group_id,
        entity.member_id,
        entity.member_epoch,
        entity.instance_id,
        entity.rack_id,
        in_ms(entity.rebalance_timeout),
        entity.subscribed_topic_names,
        getattr(entity, "subscribed_topic_regex", None),
        entity.server_assignor,
        None if entity.topic_partitions is None else assignment(entity.topic_partitions),
    )


def is_plain(entity: Any) -> bool:
    """Whether an answer names each topic once, with partitions that are in order."""
    topics = [] if entity.assignment is None else entity.assignment.topic_partitions
    ids = [topic.topic_id for topic in topics]
    return len(set(ids)) == len(ids) and all(
        topic.partitions and list(topic.partitions) == sorted(set(topic.partitions)) for topic in topics
    )


@pytest.mark.parametrize("version", range(2))
@few
@given(data=st.data())
def test_responses_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    drawn = data.draw(entities(load_response_schema(API_KEY, version)).filter(is_plain))
    entity = replace(drawn, throttle_time=timedelta(0))
    response = ConsumerGroupHeartbeatResponse(
        int(entity.error_code),
        entity.error_message,
        entity.member_id,
        entity.member_epoch,
        in_ms(entity.heartbeat_interval),
        None if entity.assignment is None else assignment(entity.assignment.topic_partitions),
    )
    wire = encode_consumer_group_heartbeat_response(version, 3, response)
    assert wire == framed_with(b"\x00", 3, kio_bytes(entity))


def test_what_says_nothing_new() -> None:
    assert ConsumerGroupHeartbeatRequest("g", "m", 3, "instance").says_nothing_new
    for name, value in (
        ("rack_id", "r"),
        ("rebalance_timeout_ms", 1),
        ("subscribed_topic_names", ()),
        ("subscribed_topic_regex", ""),
        ("server_assignor", "range"),
        ("topic_partitions", {}),
    ):
        assert not ConsumerGroupHeartbeatRequest("g", "m", 3)._replace(**{name: value}).says_nothing_new


@pytest.mark.parametrize("version", range(2))
def test_hostile_bytes_are_refused(version: int) -> None:
    topics = b"\x02" + bytes(16) + b"\x02\0\0\0\0\0"
    body = b"\x02g\x02m\0\0\0\x01\0\0\xff\xff\xff\xff\x02\x02t" + b"\0" * version + b"\0" + topics + b"\0"
    check_hostile(lambda buffer, offset, end: parse_consumer_group_heartbeat(buffer, version, offset, end), body)
