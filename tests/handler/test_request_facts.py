"""The facts of requests and responses for the request log."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rotunda.broker.ipc.request_facts import NO_SUBJECT, first_error, subject, subject_of, throttle_of
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Encoded, Lazily
from rotunda.shm.recorder_layout import THROTTLED_BY


class Topic(NamedTuple):
    """One topic of a request."""

    name: str
    partitions: list[Any]


class Part(NamedTuple):
    """One partition of a request."""

    partition_index: int


class Request(NamedTuple):
    """A request about topics."""

    topics: list[Topic] | None
    isolation_level: int = 0


@pytest.mark.parametrize(
    ("key", "response", "error"),
    [
        (ApiKey.FIND_COORDINATOR, {"error_code": 15}, 15),
        (ApiKey.FIND_COORDINATOR, {"coordinators": [{"error_code": 0}, {"error_code": 69}]}, 69),
        (ApiKey.LEAVE_GROUP, {"error_code": 35, "members": [{"error_code": 25}]}, 35),
        (ApiKey.JOIN_GROUP, {"error_code": ErrorCode.MEMBER_ID_REQUIRED, "members": []}, 0),
        (ApiKey.DELETE_RECORDS, {"topics": []}, 0),
        (ApiKey.DELETE_RECORDS, {"topics": [{"partitions": []}, {"partitions": [{"error_code": 6}]}]}, 6),
        (ApiKey.OFFSET_FETCH, {"groups": [{"error_code": 0, "topics": [{"partitions": [{"error_code": 7}]}]}]}, 7),
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {"results_by_topic_v3_and_below": [{"results_by_partition": [{"partition_error_code": 48}]}]},
            48,
        ),
        (ApiKey.DESCRIBE_GROUPS, {"groups": [Encoded(b"", 0), Encoded(b"", 69)]}, 69),
        (ApiKey.DESCRIBE_GROUPS, {"groups": Lazily([0, 16], lambda code: {"error_code": code})}, 16),
        (ApiKey.LIST_GROUPS, {"error_code": 0, "groups": [{"error_code": 1}], "names": ["a"]}, 0),
    ],
)
def test_the_first_error_is_found_where_it_is_declared(key: ApiKey, response: Any, error: int) -> None:
    assert first_error(response, key) == error


def row_of(topic: str | None, topic_id: bytes | None, partition: int) -> int:
    assert topic_id is None
    return {("a", 3): 7, ("b", 0): 9}.get((topic or "", partition), -1)


@pytest.mark.parametrize(
    ("key", "request_", "expected"),
    [
        (ApiKey.HEARTBEAT, Request([Topic("a", [Part(3)])]), NO_SUBJECT),
        (ApiKey.DELETE_RECORDS, Request(None), NO_SUBJECT),
        (ApiKey.DELETE_RECORDS, Request([Topic("a", [])]), NO_SUBJECT),
        (ApiKey.DELETE_RECORDS, Request([Topic("a", [Part(3), Part(4)]), Topic("b", [Part(0)])]), subject(7, 3)),
        (ApiKey.DELETE_RECORDS, Request([Topic("a", []), Topic("b", [Part(0)])]), subject(9, 1)),
        (ApiKey.DELETE_RECORDS, Request([Topic("unknown", [Part(0)])]), subject(-1, 1)),
        (
            ApiKey.LIST_OFFSETS,
            Request([Topic("a", [Part(3)]), Topic("b", [Part(0)])], isolation_level=1),
            subject(7, 2, isolation_level=1),
        ),
    ],
)
def test_a_request_is_about_the_first_partition_that_it_names(key: ApiKey, request_: Any, expected: bytes) -> None:
    assert subject_of(request_, key, row_of) == expected


def test_the_throttle_time_of_a_response_and_its_quota() -> None:
    mutation = 1 + THROTTLED_BY.index("controller_mutation_rate")
    assert throttle_of({"throttle_time_ms": 5}) == (5, mutation)
    assert throttle_of({}) == (0, 0)
