"""The session of a request: the user that its connection has authenticated as, and the address that it comes from.

A processor packs the session of a connection once, when the client is authenticated, and sends these bytes behind each
request (layout.REQUEST_ENVELOPE.session_bytes); targets turn the same bytes into the same object. So no process keeps
a table of connections, and nothing is lost when one is killed. Without authentication and without ACLs there are no
such bytes, and every session is ANONYMOUS. Where clients are given the address, or with TLS the host name, by which
they have reached the broker (`C18`), that travels too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rotunda.shm.tables.client_hosts import host_text, packed_host

#: The user of who has not authenticated (`H06`).
ANONYMOUS_USER: Final = "ANONYMOUS"

#: The type of every principal, as in Kafka: there are no groups of users.
USER_TYPE: Final = "User"

#: A longer name of a user is refused at authentication: it travels with each request.
MOST_USER_BYTES: Final = 4096

#: Sessions that are known; when there are more, all are made anew.
MOST_KNOWN: Final = 10_000

_HOST_BYTES: Final = 16
_NO_HOST: Final = bytes(_HOST_BYTES)
#: Names of hosts are shorter.
_MOST_REACHED_BYTES: Final = 255


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A user at an address. Sessions of the same bytes are the same object within a process, so they are quick keys.

    ``host`` is an IP address, empty where nobody asks for it. ``reached`` is the address or the host name by which the
    client has reached the broker, empty where each is given the same.
    """

    #: Whether a fault that a test injects strikes the request (`broker.faults`).
    is_faulty = False

    user: str
    host: str
    reached: str = ""

    def error_of(self, _topic: str) -> int:
        """Return the error that is injected for a topic; 0: none."""
        return 0

    @property
    def principal(self) -> str:
        """The user as ACLs and the request log write it: "User:alice"."""
        return principal_of(self.user)


ANONYMOUS: Final = Session(ANONYMOUS_USER, "")


def principal_of(user: str) -> str:
    """Return a user as a principal: its type, a colon, its name."""
    return f"{USER_TYPE}:{user}"


def pack_session(user: str, host: str, reached: str = "") -> bytes:
    """Return what travels of a session. Raises ValueError for a name of more than MOST_USER_BYTES.

    A host name that is longer than any is left out.
    """
    name, way = user.encode(), reached.encode()
    if len(name) > MOST_USER_BYTES:
        raise ValueError(f"the name of a user has {len(name)} bytes; {MOST_USER_BYTES} at most are accepted")
    if len(way) > _MOST_REACHED_BYTES:
        way = b""
    return b"".join((packed_host(host) if host else _NO_HOST, bytes((len(way),)), way, name))


class Sessions:
    """The sessions that one target has met."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Session] = {}

    def of(self, packed: bytes) -> Session:
        """Return the session that `pack_session` has packed. HOT."""
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
