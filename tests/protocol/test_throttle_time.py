"""The position of the throttle time in responses, for every API and served version."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.apis.cluster.api_versions import unsupported_version_response
from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.definitions import response
from rotunda.broker.protocol.schema.marks import throttle_place, with_throttle_time

SERVED = [(int(api.key), version) for api in API_TABLE for version in range(api.min_version, api.max_version + 1)]
THROTTLE_MS = 0x01020304


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_e16_the_throttle_time_is_put_where_clients_read_it(api_key: int, version: int) -> None:
    """E16: all other bytes are unchanged."""
    wire = codec.encode_response(api_key, version, 7, {})
    changed = with_throttle_time(api_key, version, wire, THROTTLE_MS)
    before, after = (_read(api_key, version, each) for each in (wire, changed))
    if throttle_place(api_key, version, wire) < 0:
        assert changed == wire
        assert "throttle_time_ms" not in fields_of(api_key, version)
        return
    assert after == before.replaced(throttle_time_ms=THROTTLE_MS)


def fields_of(api_key: int, version: int) -> set[str]:
    return {field.name for field in response(api_key).structure.fields if version in field.versions}


def _read(api_key: int, version: int, wire: bytes) -> Any:
    return codec.decode_response(api_key, version, wire, 4, len(wire))


def test_e16_c08_a_response_that_says_which_versions_there_are_stays_as_it_is() -> None:
    """C08: it is version 0 for any requested version, without a field for a throttle time."""
    wire = unsupported_version_response(7, 0, 4)
    for version in (5, 99):
        assert with_throttle_time(ApiKey.API_VERSIONS, version, wire, THROTTLE_MS) == wire
