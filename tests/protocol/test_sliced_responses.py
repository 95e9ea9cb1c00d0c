"""Responses encoded in slices: identical bytes to one pass, and never above the size limit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.definitions import response
from rotunda.broker.protocol.sliced_responses import (
    AnswerTooLargeError,
    Lazily,
    MemorySink,
    SlicedEncoder,
    encoded_elements,
)
from tests.protocol.random_messages import random_mapping, random_message

SERVED = {
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.DESCRIBE_GROUPS: range(7),
    ApiKey.LIST_GROUPS: range(6),
    ApiKey.OFFSET_FETCH: range(1, 11),
    ApiKey.CONSUMER_GROUP_DESCRIBE: range(2),
    ApiKey.DESCRIBE_PRODUCERS: range(1),
    ApiKey.DELETE_RECORDS: range(3),
}
MESSAGES = [(api_key, version) for api_key, versions in SERVED.items() for version in versions]
PLENTY = 1 << 30
SEED = random.randrange(2**32)


def written(
    api_key: int, version: int, values: Mapping[str, Any], most_bytes: int = PLENTY
) -> tuple[bytes, SlicedEncoder, int]:
    """Return the bytes, the encoder and the number of slices."""
    sink = MemorySink()
    encoder = SlicedEncoder(api_key, version, sink, most_bytes)
    pieces = sum(1 for _ in encoder.encode(258, values))
    return bytes(sink.data), encoder, pieces + 1


@pytest.mark.parametrize(("api_key", "version"), MESSAGES)
def test_the_bytes_are_those_of_one_go(api_key: int, version: int) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(20):
        value = random_message(chance, response(api_key), version)
        mapping = random_mapping(chance, response(api_key).structure, version)
        for values in (value, mapping):
            assert written(api_key, version, values)[0] == codec.encode_response(api_key, version, 258, values)


def groups(count: int, members: int = 0) -> dict[str, Any]:
    def described(number: int) -> dict[str, Any]:
        made.append(number)
        each = [{"member_id": str(member), "member_metadata": bytes(100)} for member in range(members)]
        return {"error_code": 0, "group_id": f"group-{number}", "members": each}

    made: list[int] = []
    reject = lambda number: {"error_code": 44, "group_id": f"group-{number}"}  # noqa: E731
    return {"throttle_time_ms": 0, "groups": Lazily(range(count), described, reject), "made": made}


def decoded(data: bytes) -> Any:
    return codec.decode_response(ApiKey.DESCRIBE_GROUPS, 4, data, 4, len(data))


def without_made(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "made"}


def test_elements_are_made_as_they_are_written() -> None:
    values = groups(1000)
    encoder = SlicedEncoder(ApiKey.DESCRIBE_GROUPS, 4, MemorySink(), PLENTY)
    pieces: Iterator[None] = encoder.encode(1, without_made(values))
    next(pieces)
    assert 0 < len(values["made"]) < 200


@pytest.mark.parametrize(("count", "members"), [(2000, 0), (1, 3000), (40, 100)])
def test_a_piece_is_small_however_the_response_is_made_up(count: int, members: int) -> None:
    _, _, pieces = written(ApiKey.DESCRIBE_GROUPS, 4, without_made(groups(count, members)))
    assert pieces >= count * max(members, 1) // 64


def test_what_does_not_fit_is_rejected_and_what_is_smaller_still_fits() -> None:
    """A group of 5 members has about 600 bytes; an error entry does not count towards the limit."""
    values = without_made(groups(100, members=5))
    data, encoder, _ = written(ApiKey.DESCRIBE_GROUPS, 4, values, most_bytes=6000)
    responses = decoded(data).groups
    codes = [group.error_code for group in responses]
    assert codes == [0] * 9 + [44] * 91
    assert [len(group.members) for group in responses] == [5] * 9 + [0] * 91
    assert [group.group_id for group in responses] == [f"group-{number}" for number in range(100)]
    assert encoder.error_code == 44


def test_a_response_without_a_place_for_the_rejection_is_too_large() -> None:
    listed = {"groups": [{"group_id": f"group-{number}"} for number in range(1000)]}
    with pytest.raises(AnswerTooLargeError):
        written(ApiKey.LIST_GROUPS, 3, listed, most_bytes=5000)


def test_an_outer_error_counts_before_an_inner_one() -> None:
    inner = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 9}]}]}
    assert written(ApiKey.DELETE_RECORDS, 2, inner)[1].error_code == 9
    outer = {"groups": [{"group_id": "a", "error_code": 0}, {"group_id": "b", "error_code": 15}]}
    assert written(ApiKey.DESCRIBE_GROUPS, 4, outer)[1].error_code == 15


def test_a_name_that_no_version_has_is_an_error() -> None:
    with pytest.raises(TypeError, match="grops"):
        written(ApiKey.DESCRIBE_GROUPS, 4, {"grops": []})
    with pytest.raises(TypeError, match="gruop_id"):
        written(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [{"gruop_id": ""}]})


def test_elements_written_elsewhere_are_in_a_response_as_they_are() -> None:
    """Such elements are responses of other coordinators for their groups; each error code remains with its element."""
    values = without_made(groups(40, members=3))
    work = encoded_elements((ApiKey.DESCRIBE_GROUPS, 4, "groups"), values["groups"], 6000)
    try:
        while True:
            next(work)
    except StopIteration as stop:
        elements = stop.value
    assert {each.error_code for each in elements} == {0, 44}
    data, encoder, _ = written(ApiKey.DESCRIBE_GROUPS, 4, {"groups": elements})
    assert [group.error_code for group in decoded(data).groups] == [each.error_code for each in elements]
    assert encoder.error_code == 44
