"""Poison requests: those that a process of this target has died in, and which are dropped after the second death.

Runs in handler processes and the controller. A target publishes which request it is in (`shm.current_request`), and its
replacement counts a death against it before anything is read again. What two processes have died in is not run a third
time: its connection is closed without an answer, with a line that names it. The same holds for what other targets ask.
A death that struck when no single request was being done, such as in a commit, is nobody's; what is read again after it
is taken one by one, so that the next such death has a name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode
from broker.protocol.headers import parse_header
from broker.request_channel import REQUEST
from broker.server.response_writer import ReplyTo, Told
from shm.layout import REQUEST_ENVELOPE

if TYPE_CHECKING:
    from broker.heritage import Heritage
    from shm.current_request import Identity

logger = logging.getLogger(__name__)

#: Processes that may die in a request before it is dropped.
MOST_DEATHS = 2

#: What the request log is told of a request that is dropped.
DROPPED = Told(int(ErrorCode.UNKNOWN_SERVER_ERROR))

_FIELDS = [each.name for each in REQUEST_ENVELOPE.fields]
_CONNECTION_ID, _SEQUENCE = _FIELDS.index("connection_id"), _FIELDS.index("sequence")


class PoisonRequests:
    """What a target died in before, and what it is doing now."""

    def __init__(self, heritage: Heritage, target: int, generation: int, most_deaths: int = MOST_DEATHS) -> None:
        """Count the death of the predecessor, if there was one, against what it was doing."""
        self.current = heritage.current[target]
        self._heritage = heritage
        self._most_deaths = most_deaths
        self._name = f"handler {target}" if target < heritage.handlers else "the controller"
        if generation > 1:
            self._count_death()
        self._condemned = {identity for identity, deaths in self.current.deaths().items() if deaths >= most_deaths}

    def is_condemned(self, identity: Identity) -> bool:
        """Return whether a request, or a peer's message, is not to be done again."""
        return identity in self._condemned

    def report(self, to: ReplyTo, view: memoryview, start: int, end: int, owner: int | None = None) -> None:
        """Log that a request is dropped, with what is known of it; ``owner``: another handler that has died in it."""
        _, connection, _, _, _, api_key, version, _, size = to
        try:
            client = parse_header(view, start, end).client_id
        except InvalidReceive:
            client = ""
        name = next((key.text for key in ApiKey if key == api_key), f"api key {api_key}")
        host = self._heritage.client_hosts.of(connection).removeprefix("/") or "an unknown address"
        whom = self._name if owner is None else f"handler {owner}"
        logger.error(
            "%s version %d of client %r at %s (%d bytes) has ended %s %d times; "
            "it is not tried again, and its connection is closed",
            name, version, client, host, size, whom, self._most_deaths,
        )  # fmt: skip

    def report_message(self, source: int, what: str) -> None:
        """Log that what another target, or the cleaner, has asked for is not done."""
        peers = {self._heritage.handlers: "the controller", self._heritage.cleaner: "the cleaner"}
        sender = peers.get(source, f"handler {source}")
        logger.error("%s from %s has ended %s %d times; it is refused", what, sender, self._name, self._most_deaths)

    def _count_death(self) -> None:
        request_at, identity = self.current.interrupted()
        # First, so that a death from here on is not counted twice.
        self.current.clear()
        if identity is None and request_at:
            fields = REQUEST.unpack_from(self._heritage.rings.view, request_at)
            identity = fields[_CONNECTION_ID], fields[_SEQUENCE]
        if identity is not None:
            self.current.count_death(identity)
