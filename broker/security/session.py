"""The session of a request: the authenticated user of its connection, and the client's address.

A processor packs the session of a connection once, when the client is authenticated, and sends these bytes after each
request (layout.REQUEST_ENVELOPE.session_bytes); targets map the same bytes to the same object. So no process keeps a
table of connections, and nothing is lost when one is killed. Without authentication and without ACLs there are no such
bytes, and every session is ANONYMOUS. If the broker advertises the address, or with TLS the host name, by which clients
have reached it (`C18`), that is included too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rotunda.shm.tables.client_hosts import host_text, packed_host

#: User name of unauthenticated clients (`H06`).
ANONYMOUS_USER: Final = "ANONYMOUS"

#: The type of every principal, as in Kafka: there are no groups of users.
USER_TYPE: Final = "User"

#: A longer user name is rejected at authentication: it is sent with each request.
MOST_USER_BYTES: Final = 4096

#: Limit of cached sessions; beyond it the cache is cleared.
MOST_KNOWN: Final = 10_000

_HOST_BYTES: Final = 16
_NO_HOST: Final = bytes(_HOST_BYTES)
#: Host names are shorter.
_MOST_REACHED_BYTES: Final = 255


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A user at an address.

    Sessions of the same bytes are one object within a process, so they are fast dictionary keys.

    ``host`` is an IP address, empty if it is not needed. ``reached`` is the address or the host name by which the
    client has reached the broker, empty if all clients receive the same.
    """

    #: Whether a test's injected fault applies to the request (`broker.faults`).
    is_faulty = False

    user: str
    host: str
    reached: str = ""

    def error_of(self, _topic: str) -> int:
        """Return the injected error for a topic; 0: none."""
        return 0

    @property
    def principal(self) -> str:
        """The user in ACLs and the request log: "User:alice"."""
        return principal_of(self.user)


ANONYMOUS: Final = Session(ANONYMOUS_USER, "")


def principal_of(user: str) -> str:
    """Return a user as a principal: its type, a colon, its name."""
    return f"{USER_TYPE}:{user}"


def pack_session(user: str, host: str, reached: str = "") -> bytes:
    """Encode a session. Raises ValueError for a name of more than MOST_USER_BYTES.

    A host name over the limit is omitted.
    """
    name, way = user.encode(), reached.encode()
    if len(name) > MOST_USER_BYTES:
        raise ValueError(f"the name of a user has {len(name)} bytes; {MOST_USER_BYTES} at most are accepted")
    if len(way) > _MOST_REACHED_BYTES:
        way = b""
    return b"".join((packed_host(host) if host else _NO_HOST, bytes((len(way),)), way, name))


class Sessions:
    """The cached sessions of one target."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Session] = {}

    def of(self, packed: bytes) -> Session:
        """Return the session encoded by `pack_session`. HOT."""
        try:
            return self._known[packed]
        except KeyError:
            return self._remember(packed)

    def _remember(self, packed: bytes) -> Session:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        host, way = packed[:_HOST_BYTES], _HOST_BYTES + 1
        name = way + packed[_HOST_BYTES]
        known_host = "" if host == _NO_HOST else host_text(host)
        session = Session(packed[name:].decode(), known_host, packed[way:name].decode())
        self._known[packed] = session
        return session
