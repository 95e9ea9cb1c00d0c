"""The codec of every row of the registry, in every version it serves, held against kio's: requests in, responses out.

Rows that go through ``kio_adapter`` are tested here, whichever they are. A hand-tuned codec has a test of its own,
which is named here and must take every version; a row with neither fails `test_no_row_escapes`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from broker.apis.table import API_TABLE, Api
from broker.protocol.api_keys import FLEXIBLE_FROM, ApiKey, is_flexible
from broker.protocol.headers import response_header
from broker.protocol.kio import kio_adapter
from broker.protocol.kio.kio_writer import write_message
from tests.protocol.kio_entities import described, entities, kio_bytes, kio_read
from tests.protocol.messages import (
    test_consumer_group_heartbeat,
    test_fetch,
    test_group_messages,
    test_produce,
    test_small_messages,
)

#: Tests of the hand-tuned codecs: of requests and of responses, which may be one test.
HAND_TESTED: dict[ApiKey, tuple[Callable[..., None], ...]] = {
    ApiKey.PRODUCE: (
        test_produce.test_requests_are_read_as_kio_writes_them,
        test_produce.test_responses_are_written_as_kio_writes_them,
    ),
    ApiKey.FETCH: (
        test_fetch.test_requests_are_read_as_kio_writes_them,
        test_fetch.test_responses_are_written_as_kio_writes_them,
    ),
    ApiKey.LIST_OFFSETS: (test_small_messages.test_list_offsets_both_ways,),
    ApiKey.METADATA: (
        test_small_messages.test_metadata_requests_are_read_as_kio_writes_them,
        test_small_messages.test_metadata_responses_are_written_as_kio_writes_them,
    ),
    ApiKey.INIT_PRODUCER_ID: (test_small_messages.test_init_producer_id_both_ways,),
    ApiKey.OFFSET_COMMIT: (test_group_messages.test_offset_commit_both_ways,),
    ApiKey.HEARTBEAT: (test_group_messages.test_heartbeat_both_ways,),
    ApiKey.API_VERSIONS: (test_small_messages.test_api_versions_both_ways,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        test_consumer_group_heartbeat.test_requests_are_read_as_kio_writes_them,
        test_consumer_group_heartbeat.test_responses_are_written_as_kio_writes_them,
    ),
}

SEED = random.randrange(2**32)

#: Few examples of each: there are hundreds of versions. What a failure shows is not made smaller, which takes long.
few_each = settings(
    max_examples=8,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def versions_of(apis: Iterable[Api]) -> list[Any]:
    """Return a test parameter for each version of these rows."""
    return [
        pytest.param(api, version, id=f"{api.key.name}-{version}")
        for api in apis
        for version in range(api.min_version, api.max_version + 1)
    ]


def is_by_kio(api: Api) -> bool:
    """Return whether the messages of a row are read and written by kio's schemas."""
    return isinstance(api.encode, partial) and api.encode.func is kio_adapter.encode_response


BY_KIO = [api for api in API_TABLE if is_by_kio(api)]
BY_HAND = [api for api in API_TABLE if not is_by_kio(api)]
WITH_DECODER = [api for api in BY_HAND if api.decode is not None]


def test_no_row_escapes() -> None:
    """Every row is in one of the two lists, and the test of a hand-tuned codec takes every version served."""
    assert {api.key for api in BY_HAND} == set(HAND_TESTED), "name the test of each hand-tuned codec in HAND_TESTED"
    for api in BY_HAND:
        served = set(range(api.min_version, api.max_version + 1))
        tests = HAND_TESTED[api.key]
        assert tests, f"no test of {api.key.name}"
        for test in tests:
            assert served <= versions_tested(test), f"{test.__name__} leaves out versions of {api.key.name}"


def versions_tested(test: Callable[..., None]) -> set[int]:
    """Return the versions with which a test is parametrised."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    return {version for mark in marks if mark.args[0] == "version" for version in mark.args[1]}


def test_flexible_versions_are_those_of_the_schemas() -> None:
    for api in API_TABLE:
        for version in range(api.min_version, api.max_version + 1):
            schema = kio_adapter.request_class(api.key, version)
            assert schema.__flexible__ == is_flexible(api.key, version), (api.key, version)
    assert {int(api.key) for api in API_TABLE} <= set(FLEXIBLE_FROM)


@pytest.mark.parametrize(("api", "version"), versions_of(BY_KIO))
def test_requests_are_read_and_written_as_kio_writes_them(api: Api, version: int) -> None:
    print(f"seed {SEED}")

    @seed(SEED)
    @few_each
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        entity = data.draw(entities(kio_adapter.request_class(api.key, version)))
        body = kio_bytes(entity)
        assert api.decode is not None
        assert api.decode(memoryview(b"??" + body + b"?"), version, 2, 2 + len(body)) == entity
        assert write_message(entity) == body

    check()


@pytest.mark.parametrize(("api", "version"), versions_of(BY_KIO))
def test_responses_are_written_as_kio_reads_them(api: Api, version: int) -> None:
    print(f"seed {SEED}")

    @seed(SEED)
    @few_each
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        schema = kio_adapter.response_class(api.key, version)
        entity = data.draw(entities(schema))
        assert api.encode is not None
        wire = api.encode(version, 258, described(entity))
        header = response_header(api.key, version, 258)
        assert wire[:4] == (len(wire) - 4).to_bytes(4, "big")
        assert wire[4 : 4 + len(header)] == header
        assert kio_read(schema, wire[4 + len(header) :]) == entity

    check()


@pytest.mark.parametrize(("api", "version"), versions_of(WITH_DECODER))
def test_hand_tuned_decoders_take_any_request_that_kio_writes(api: Api, version: int) -> None:
    print(f"seed {SEED}")

    @seed(SEED)
    @few_each
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        body = kio_bytes(data.draw(entities(kio_adapter.request_class(api.key, version))))
        assert api.decode is not None
        assert api.decode(memoryview(b"??" + body + b"?"), version, 2, 2 + len(body)) is not None

    check()
