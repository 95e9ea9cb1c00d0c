"""The guards of every request and response: check the Host header, then the credentials, and block foreign scripts.

A page of another site can make a browser send requests here under a name of its own (DNS rebinding); a name that is
neither localhost nor configured is therefore rejected. Pure ASGI: it sees each request before anything else does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from rotunda.web.http.access import CHALLENGES, Access

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)

_OTHER_NAME = (
    b"This page is not served under that host name. Ask for localhost, or add the name to status.allowed.hosts.\n"
)
_STRANGER = (
    b"This page wants a token (status.token; for /metrics also metrics.token) as a Bearer token or as the password, "
    b"or a user who may describe the cluster.\n"
)


class Guard:
    """Wraps the application. `any_address`: a configured address is not loopback.

    `on_stranger` is called with the address of a client that is rejected for its credentials.
    """

    def __init__(
        self,
        app: App,
        allowed_hosts: tuple[str, ...],
        any_address: bool,
        access: Access,
        on_stranger: Callable[[str], None],
    ) -> None:
        self._app = app
        self._access = access
        self._on_stranger = on_stranger
        self._names = {"localhost", *(name.lower().rstrip(".") for name in allowed_hosts)}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on admitted HTTP requests, and nothing but HTTP."""
        if scope["type"] != "http":
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self.allows(hosts[0]):
            await _refuse(send, 421, _OTHER_NAME)
            return
        authorization = [value for name, value in scope["headers"] if name == b"authorization"]
        client = str((scope.get("client") or ("a client",))[0])
        if not await self._access.allows(scope["path"], authorization, client):
            if authorization:
                self._on_stranger(client)
            await _refuse(send, 401, _STRANGER, CHALLENGES)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name for name, _ in own}
                message["headers"] = [*own, *(each for each in HEADERS if each[0] not in names)]
            await send(message)

        await self._app(scope, receive, send_guarded)

    def allows(self, host: str) -> bool:
        """Return whether a Host header names this page."""
        name = host_name(host)
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address cannot be rebound by DNS, so it was intended.
        return address.is_loopback or self._any_address


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port and brackets; a malformed one is returned unchanged."""
    host = host.strip().lower()
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return address if bracket and (not port or port.startswith(":")) else host
    name, _, port = host.partition(":")
    return name.rstrip(".") if not port or port.isdecimal() else host


async def _refuse(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"text/plain; charset=utf-8"), length, *HEADERS, *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
