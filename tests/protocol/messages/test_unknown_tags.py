"""Unknown tagged fields in Produce and Fetch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

from rotunda.broker.protocol.messages import fetch, produce
from tests.protocol.kio_entities import entities, few, kio_bytes


@pytest.mark.parametrize(("parse", "api_key", "version"), [(produce.parse_produce, 0, 12), (fetch.read_fetch, 1, 17)])
@few
@given(data=st.data())
def test_unknown_tagged_fields_are_skipped(parse: Any, api_key: int, version: int, data: st.DataObject) -> None:
    strategy = entities(load_request_schema(api_key, version), left_out=frozenset({"cluster_id", "replica_state"}))
    body = kio_bytes(data.draw(strategy))
    tagged = body[:-1] + b"\x02\x62\x00\x63\x03abc"
    assert parse(tagged, version, 0, len(tagged)) == parse(body, version, 0, len(body))
