"""Requests to a real broker by description: kio encodes them and decodes the responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.wire_client import WireClient, sized

_CORRELATION_ID = 77


def send_request(wire: WireClient, key: ApiKey | int, version: int, fields: Mapping[str, Any]) -> None:
    """Send a request of any API in any version."""
    wire.send(codec.encode_request(key, version, _CORRELATION_ID, "test", fields))


def receive_answer(wire: WireClient, key: ApiKey | int, version: int) -> Any:
    """Return kio's object of the next response; AssertionError if there is none, or if it is another request's."""
    answer = sized(wire.receive_frame())
    assert int.from_bytes(answer[4:8], "big") == _CORRELATION_ID
    return codec.decode_response(key, version, answer, 4, len(answer))


def ask(wire: WireClient, key: ApiKey | int, version: int, fields: Mapping[str, Any]) -> Any:
    """Send a request and return its response."""
    send_request(wire, key, version, fields)
    return receive_answer(wire, key, version)
