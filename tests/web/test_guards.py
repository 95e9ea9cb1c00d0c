"""The Host header is checked before anything else sees a request (users.md row 23)."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from rotunda.web.http.access import OPEN, Access
from rotunda.web.http.guards import Guard, host_name


async def _served(_scope: MutableMapping[str, Any], _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


def _nobody(address: str) -> None:
    raise AssertionError(f"{address} gave no credentials")


def asked(guard: Guard, *hosts: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Return the status and headers of the response to a request with these Host headers."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def ask() -> None:
        scope = {"type": "http", "path": "/", "headers": [(b"host", host) for host in hosts]}
        await guard(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:8080", b"127.0.0.1:1", b"[::1]:80", b"broker.example."])
def test_names_of_ours_pass_and_carry_the_policy(host: bytes):
    """Row 23."""
    status, headers = asked(Guard(_served, ("Broker.example",), False, Access(OPEN), _nobody), host)
    assert status == 200
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize(
    "host", [b"evil.example", b"localhost.evil.example", b"10.0.0.1", b"", b"[::1", b"a:b:c", b"127.0.0.1.evil", b"[]x"]
)
def test_other_names_are_rejected(host: bytes):
    """Row 23: a page of another site cannot read ours under its own name (DNS rebinding)."""
    status, headers = asked(Guard(_served, (), False, Access(OPEN), _nobody), host)
    assert status == 421
    assert b"content-security-policy" in headers


def test_one_host_header_exactly():
    """Row 23."""
    guard = Guard(_served, (), False, Access(OPEN), _nobody)
    assert asked(guard)[0] == 421
    assert asked(guard, b"localhost", b"localhost")[0] == 421


def test_addresses_pass_where_other_machines_are_served():
    """Row 23: an address cannot be made to point elsewhere."""
    assert asked(Guard(_served, (), True, Access(OPEN), _nobody), b"10.0.0.1:8080")[0] == 200
    assert asked(Guard(_served, (), True, Access(OPEN), _nobody), b"evil.example")[0] == 421


def test_the_name_in_a_host_header():
    """Row 23."""
    assert host_name(" Example.COM:80 ") == "example.com"
    assert host_name("[fe80::1]:80") == "fe80::1"
    assert host_name("example.com:80x") == "example.com:80x"
