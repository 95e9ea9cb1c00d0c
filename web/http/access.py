"""Access to the page: clients with its token, and users that may describe the cluster.

Runs in the web process, before every route. Probes need no credentials: their responses only show that processes run.
The metrics have a token of their own, so that Prometheus need not have the page's. Users are checked by a function from
the broker, on a thread, because a password check takes milliseconds of the shared loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

#: Paths that need no credentials.
_PROBES = frozenset({"/healthz", "/readyz"})
_METRICS = "/metrics"

#: Authentication challenges. A browser prompts its user for a name and a password.
CHALLENGES = (
    (b"www-authenticate", b'Basic realm="Rotunda", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="Rotunda"'),
)

#: Called with a name and a password.
IsUser = Callable[[str, str], bool]
#: Called with a name and an address.
MayLook = Callable[[str, str], bool]


def _everybody(_name: str, _host: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rules of admission. Without `token` and `is_user` (by name and password) the page is open to all.

    The metrics require `metrics_token`, if it is set. `is_user` is called on a thread, `may_look`, whether a user at an
    address may describe the cluster, in the loop.
    """

    token: str = ""
    metrics_token: str = ""
    is_user: IsUser | None = None
    may_look: MayLook = _everybody


OPEN = Admission()


class Access:
    """Checks requests one by one."""

    def __init__(self, admission: Admission) -> None:
        self._tokens = [admission.token] if admission.token else []
        own = admission.metrics_token
        self._metrics_tokens = [*self._tokens, own] if own else self._tokens
        self._is_user = admission.is_user
        self._may_look = admission.may_look
        # One thread: a client that tries many passwords waits for each.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords") if self._is_user else None

    async def allows(self, path: str, authorization: Sequence[bytes], host: str) -> bool:
        """Return whether a request for a path, with these Authorization headers, from an address is admitted."""
        tokens = self._metrics_tokens if path == _METRICS else self._tokens
        if path in _PROBES or not (tokens or self._is_user):
            return True
        if len(authorization) != 1:
            return False
        scheme, _, credentials = authorization[0].strip().partition(b" ")
        if scheme.lower() == b"bearer":
            return _is_one_of(credentials.strip(), tokens)
        name, password = basic_credentials(authorization[0])
        if not password:
            return False
        # A browser can send a token only as a password; the name is ignored.
        return _is_one_of(password.encode(), tokens) or await self._is_a_user(name, password, host)

    async def _is_a_user(self, name: str, password: str, host: str) -> bool:
        if self._is_user is None or not name:
            return False
        is_user = await asyncio.get_running_loop().run_in_executor(self._thread, self._is_user, name, password)
        return is_user and self._may_look(name, host)


def _is_one_of(given: bytes, tokens: Sequence[str]) -> bool:
    """Return whether a token matches, in constant time."""
    matches = [hmac.compare_digest(given, token.encode()) for token in tokens]
    return any(matches)


def basic_credentials(authorization: bytes) -> tuple[str, str]:
    """Return the name and password of an Authorization header as in RFC 7617; empty ones if it has none."""
    scheme, _, credentials = authorization.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    name, _, password = text.partition(":")
    return name, password
