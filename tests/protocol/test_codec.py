"""Framed requests and responses from plain values, in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE, Api
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey, request_header_version, response_header_version

CREATED = {
    "throttle_time_ms": 5,
    "topics": [
        {
            "name": "orders",
            "topic_id": b"0123456789abcdef",
            "error_code": 36,
            "error_message": "there",
            "num_partitions": 3,
            "configs": [{"name": "retention.ms", "value": "1", "config_source": 5}],
        }
    ],
}


@pytest.mark.parametrize("version", range(2, 8))
def test_one_description_serves_every_version(version: int) -> None:
    wire = codec.encode_response(ApiKey.CREATE_TOPICS, version, 258, CREATED)
    assert wire[:8] == (len(wire) - 4).to_bytes(4, "big") + b"\x00\x00\x01\x02"
    response = codec.decode_response(ApiKey.CREATE_TOPICS, version, wire, 4, len(wire))
    (topic,) = response.topics
    assert response.throttle_time_ms == 5
    assert (topic.name, topic.error_code, topic.error_message) == ("orders", 36, "there")
    if version >= 5:
        (config,) = topic.configs
        assert (topic.num_partitions, topic.replication_factor) == (3, -1)
        assert (config.name, config.value, config.config_source, config.read_only) == (
            "retention.ms",
            "1",
            5,
            False,
        )
    if version >= 7:
        assert topic.topic_id == b"0123456789abcdef"


@pytest.mark.parametrize(
    "values", [{"topicz": []}, {"topics": [{"nmae": "x"}]}, {"topics": [{"configs": [{"valu": ""}]}]}]
)
@pytest.mark.parametrize("version", [2, 5, 7])
def test_typos_are_errors_unless_the_version_drops_the_place_they_are_in(version: int, values: dict[str, Any]) -> None:
    if version == 2 and "configs" in str(values):
        codec.encode_response(ApiKey.CREATE_TOPICS, version, 1, values)
    else:
        with pytest.raises(TypeError, match=r"topicz|nmae|valu"):
            codec.encode_response(ApiKey.CREATE_TOPICS, version, 1, values)


@pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.key.name)
def test_an_empty_mapping_is_a_message_of_defaults(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        wire = codec.encode_response(api.key, version, 1, {})
        assert wire[4:8] == b"\0\0\0\1"
        assert (
            codec.encode_response(api.key, version, 1, codec.decode_response(api.key, version, wire, 4, len(wire)))
            == wire
        )
        tags = response_header_version(api.key, version) > 0
        assert wire[8 : 8 + tags] == b"\0" * tags
        wire = codec.encode_request(api.key, version, 1, "cli", {})
        body = 17 + (request_header_version(api.key, version) > 1)
        assert (
            codec.encode_request(api.key, version, 1, "cli", codec.decode(api.key, version, wire, body, len(wire)))
            == wire
        )


def test_versions_and_apis_without_a_schema_are_invalid() -> None:
    with pytest.raises(InvalidReceive):
        codec.decode(ApiKey.CREATE_TOPICS, 99, b"", 0, 0)
    with pytest.raises(InvalidReceive):
        codec.decode_response(ApiKey.CREATE_TOPICS, 99, bytes(9), 0, 9)
    with pytest.raises(InvalidReceive):
        codec.decode(12345, 0, b"", 0, 0)


@pytest.mark.parametrize("version", range(1, 3))
def test_a_response_around_records_is_that_with_them(version: int) -> None:
    """S01, S48."""
    ranges = [{"first_offset": 5, "last_offset": 2**40, "delivery_count": count} for count in (1, 3)]

    def response(records: Callable[[int], Any]) -> dict[str, Any]:
        topics = [
            [{"partition_index": 0, "records": records(0), "acknowledge_error_code": 121}],
            [
                {"partition_index": 1, "records": records(300), "acquired_records": ranges},
                {"partition_index": 2, "records": records(0), "error_code": 3},
                {"partition_index": 3, "records": records(1), "acquired_records": ranges[:1]},
            ],
        ]
        responses = [{"topic_id": bytes(16), "partitions": partitions} for partitions in topics]
        return {"throttle_time_ms": 7, "acquisition_lock_timeout_ms": 30000, "responses": responses}

    chunks = codec.encode_around_records(ApiKey.SHARE_FETCH, version, 99, response(codec.RecordsGap))
    assert len(chunks) == 3
    wire = chunks[0] + b"x" * 300 + chunks[1] + b"x" + chunks[2]
    assert wire == codec.encode_response(ApiKey.SHARE_FETCH, version, 99, response(lambda size: b"x" * size))
