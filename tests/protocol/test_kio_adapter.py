"""The adapter to kio: one description of a message for all versions, and no trust in what arrives."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey, request_header_version, response_header_version
from broker.protocol.kio import kio_adapter
from broker.protocol.steps import finished
from tests.protocol.kio_entities import entities, few, kio_bytes
from tests.protocol.messages.hostile import check_hostile

SERVED = {
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DELETE_TOPICS: range(1, 7),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    ApiKey.FIND_COORDINATOR: range(7),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.ALTER_CONFIGS: range(3),
    ApiKey.DESCRIBE_LOG_DIRS: range(1, 6),
    ApiKey.CREATE_PARTITIONS: range(4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.DESCRIBE_CLUSTER: range(3),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: range(1),
}
MESSAGES = [(api_key, version) for api_key, versions in SERVED.items() for version in versions]
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


@pytest.mark.parametrize("version", SERVED[ApiKey.CREATE_TOPICS])
def test_one_description_serves_every_version(version: int) -> None:
    wire = kio_adapter.encode_response(ApiKey.CREATE_TOPICS, version, 258, CREATED)
    assert wire[:8] == (len(wire) - 4).to_bytes(4, "big") + b"\x00\x00\x01\x02"
    answer = kio_adapter.decode_response(ApiKey.CREATE_TOPICS, version, wire, 4, len(wire))
    (topic,) = answer.topics
    assert answer.throttle_time == timedelta(milliseconds=5)
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
        assert topic.topic_id == uuid.UUID(bytes=b"0123456789abcdef")
        assert kio_adapter.uuid_bytes(topic.topic_id) == b"0123456789abcdef"


@pytest.mark.parametrize(
    "values", [{"topicz": []}, {"topics": [{"nmae": "x"}]}, {"topics": [{"configs": [{"valu": ""}]}]}]
)
@pytest.mark.parametrize("version", [2, 5, 7])
def test_typos_are_errors_unless_the_version_drops_the_place_they_are_in(version: int, values: dict[str, Any]) -> None:
    if version == 2 and "configs" in str(values):
        kio_adapter.build_response(ApiKey.CREATE_TOPICS, version, values)
    else:
        with pytest.raises(TypeError, match="no version"):
            kio_adapter.build_response(ApiKey.CREATE_TOPICS, version, values)


@pytest.mark.parametrize(("api_key", "version"), MESSAGES)
def test_an_empty_description_is_a_message_of_defaults(api_key: int, version: int) -> None:
    wire = kio_adapter.encode_response(api_key, version, 1, {})
    tags = response_header_version(api_key, version) > 0
    assert kio_bytes(kio_adapter.decode_response(api_key, version, wire, 4, len(wire))) == bytes(wire[8 + tags :])
    wire = kio_adapter.encode_request(api_key, version, 1, "cli", {})
    tags = request_header_version(api_key, version) > 1
    assert kio_bytes(kio_adapter.decode(api_key, version, wire, 17 + tags, len(wire))) == bytes(wire[17 + tags :])


@pytest.mark.parametrize(("api_key", "version"), MESSAGES)
@few
@given(data=st.data())
def test_requests_come_back_as_they_were_sent(api_key: int, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(kio_adapter.request_class(api_key, version)))
    body = kio_bytes(entity)
    wire = memoryview(b"??" + body + b"?")
    assert kio_adapter.decode(api_key, version, wire, 2, 2 + len(body)) == entity
    assert finished(kio_adapter.decode_in_steps(api_key, version, wire, 2, 2 + len(body))) == entity


@pytest.mark.parametrize(("api_key", "version"), MESSAGES)
def test_hostile_requests_are_invalid_and_nothing_worse(api_key: int, version: int) -> None:
    """C07: a count that kio would believe, and end the process over, is refused first."""
    examples = []

    @few
    @given(entity=entities(kio_adapter.request_class(api_key, version)))
    def collect(entity: Any) -> None:
        examples.append(kio_bytes(entity))

    collect()
    check_hostile(
        lambda buffer, offset, end: kio_adapter.decode(api_key, version, buffer, offset, end),
        max(examples, key=len),
    )
    check_hostile(
        lambda buffer, offset, end: finished(kio_adapter.decode_in_steps(api_key, version, buffer, offset, end)),
        max(examples, key=len),
    )


def test_unknown_tagged_fields_are_skipped() -> None:
    body = kio_bytes(kio_adapter.build_request(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "a"}]}))
    tagged = body[:-1] + b"\x02\x05\x00\x63\x03abc"
    whole = kio_adapter.decode(ApiKey.CREATE_TOPICS, 7, tagged, 0, len(tagged))
    assert whole == kio_adapter.decode(ApiKey.CREATE_TOPICS, 7, body, 0, len(body))


def test_versions_that_kio_does_not_know_are_invalid() -> None:
    with pytest.raises(InvalidReceive):
        kio_adapter.decode(ApiKey.CREATE_TOPICS, 99, b"", 0, 0)
    with pytest.raises(InvalidReceive):
        kio_adapter.response_class(12345, 0)


def test_durations_and_times_go_by_kafkas_name() -> None:
    request = kio_adapter.build_request(ApiKey.CREATE_TOPICS, 7, {"timeout_ms": 1500})
    assert kio_adapter.milliseconds(request.timeout) == 1500
    assert kio_adapter.uuid_bytes(None) == bytes(16)
