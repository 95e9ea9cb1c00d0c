"""The codec of every row of the registry is compared with kio in every served version.

Compiled codecs are tested for all messages (`test_compile`). A hand-tuned codec has its own test, which is listed here
and must cover every version; a row with neither fails `test_no_row_escapes`.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol.api_keys import FLEXIBLE_FROM, ApiKey, is_flexible
from rotunda.broker.protocol.schema.definitions import request
from tests.partitions import test_responses
from tests.protocol import test_codec
from tests.protocol.messages import test_fetch, test_produce

#: Tests of the hand-tuned codecs: of requests and of responses, which may be one test.
HAND_TESTED: dict[ApiKey, tuple[Callable[..., None], ...]] = {
    ApiKey.PRODUCE: (
        test_produce.test_requests_are_read_as_kio_writes_them,
        test_produce.test_responses_are_written_as_kio_writes_them,
    ),
    ApiKey.FETCH: (
        test_fetch.test_requests_are_read_as_kio_writes_them,
        test_responses.test_responses_are_written_as_kio_writes_them,
    ),
    ApiKey.SHARE_FETCH: (test_codec.test_a_response_around_records_is_that_with_them,),
}

BY_HAND = [api for api in API_TABLE if api.function is None]


def test_no_row_escapes() -> None:
    """Every row is in one of the two lists, and the test of a hand-tuned codec covers every served version."""
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
            assert (version in request(api.key).flexible) == is_flexible(api.key, version), (api.key, version)
    assert {int(api.key) for api in API_TABLE} <= set(FLEXIBLE_FROM)
