"""Error responses of every API in every version: only the given error, with the names from the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_responses import error_response
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.schema.marks import error_paths, values_at
from tests.support.large_requests import arrays_of, request_with

ERROR, MESSAGE = 31, "no"
SERVED = [(api.key, version) for api in API_TABLE for version in range(api.min_version, api.max_version + 1)]
#: Their first versions have no error field for the whole request, and none in their elements.
WITHOUT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def requests(key: ApiKey, version: int) -> Iterator[Any]:
    """Yield requests, each with several elements in another array."""
    for path in arrays_of(key, version) or [()]:
        frame = request_with(key, version, path, 12)
        yield codec.decode(key, version, frame, parse_header(frame, 0, len(frame)).body_offset, len(frame))


def rejected(key: ApiKey, version: int, request: Any) -> Any:
    """Return the response as a client reads it."""
    wire = codec.encode_response(key, version, 1, error_response(key, version, request, ERROR, MESSAGE))
    return codec.decode_response(key, version, wire, 4, len(wire))


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_the_error_is_in_every_response_and_no_other(key: ApiKey, version: int) -> None:
    for request in requests(key, version):
        response = rejected(key, version, request)
        found = {code for path in error_paths(key) for code in values_at(response, path)}
        assert found - {0} == (set() if (key, version) in WITHOUT else {ERROR}), response


def test_elements_are_named_as_in_the_request() -> None:
    partitions = [{"partition_index": 3}, {"partition_index": 5}]
    request = _read(ApiKey.DELETE_RECORDS, 2, {"topics": [{"name": "a", "partitions": partitions}]})
    (topic,) = rejected(ApiKey.DELETE_RECORDS, 2, request).topics
    assert (topic.name, [each.partition_index for each in topic.partitions]) == ("a", [3, 5])
    request = _read(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["a"]})
    (topic,) = rejected(ApiKey.DELETE_TOPICS, 5, request).responses
    assert (topic.name, topic.error_message) == ("a", MESSAGE)
    directories = [{"path": path, "topics": [{"name": path, "partitions": [0]}]} for path in "ab"]
    request = _read(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": directories})
    assert [each.topic_name for each in rejected(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request).results] == ["a", "b"]


def test_users_are_named_once_where_credentials_change_and_not_at_all_where_they_are_described() -> None:
    changes = {"deletions": [{"name": "b"}, {"name": "a"}], "upsertions": [{"name": "a"}]}
    request = _read(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, changes)
    results = rejected(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request).results
    assert [each.user for each in results] == ["a", "b"]
    request = _read(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "a"}]})
    response = rejected(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    assert (response.error_code, [each.user for each in response.results]) == (ERROR, [""])


def _read(key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    frame = codec.encode_request(key, version, 1, "client", values)
    return codec.decode(key, version, frame, parse_header(frame, 4, len(frame)).body_offset, len(frame))
