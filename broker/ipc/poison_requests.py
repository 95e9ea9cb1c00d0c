"""Poison requests: those that a process of this target has died in, dropped after the fourth death.

Runs in handler processes and the controller. A target publishes its current request (`shm.tables.current_request`), and
its replacement counts a death against that request before it reads anything again. A request that four processes have
died in is not run a fifth time: its connection is closed without a response, and a log line names it. The same holds
for messages of other targets.

Clients retry requests that got no response. So a request with the same bytes and address as two dropped requests is
dropped as well for a while, without a death: a killing request costs eight deaths of a target in each
process.restart.window.ms. Fewer deaths would be too few. A replacement first handles its predecessor's current request,
so processes that are killed at random in quick succession die in the same harmless request, and that must not cost a
connection. One dropped request would be too few, since many clients send the same bytes.

A death outside any single request, such as in a commit, is counted against none. The requests read again after it are
committed one by one, so that the next such death can be attributed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import REQUEST
from rotunda.broker.ipc.response_writer import ResponseFacts
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.messages.produce import parse_produce
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES
from rotunda.shm.layout import REQUEST_ENVELOPE

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.shm.tables.current_request import Dropped, Identity

logger = logging.getLogger(__name__)

#: Processes that may die in a request before it is dropped.
MOST_DEATHS = 4

#: Requests of the same bytes dropped for deaths before others are dropped for being like them.
MOST_ALIKE = 2

#: The facts of a dropped request.
DROPPED = ResponseFacts(int(ErrorCode.UNKNOWN_SERVER_ERROR))

#: The owner of a batch rewrites its first fields: base offset, length and leader epoch.
_REWRITTEN_BYTES = 16

#: Offset in a request after its correlation id.
_CORRELATED = 8
_CAUSE = Struct(">hh")

_FIELDS = [each.name for each in REQUEST_ENVELOPE.fields]
_CONNECTION_ID, _SEQUENCE = _FIELDS.index("connection_id"), _FIELDS.index("sequence")


class PoisonRequests:
    """The requests in which a target died, and its current request."""

    def __init__(self, context: ProcessContext, target: int, generation: int, most_deaths: int = MOST_DEATHS) -> None:
        """Count the death of the predecessor, if there was one, against its current request."""
        self.generation = generation
        self.current = context.current[target]
        self._context = context
        self._most_deaths = most_deaths
        self._name = f"handler {target}" if target < context.handlers else "the controller"
        if generation > 1:
            self._count_death()
        self._condemned = {identity for identity, deaths in self.current.deaths().items() if deaths >= most_deaths}
        self._window_ns = context.config.process_restart_window_ms * 1_000_000
        #: Number of requests that this process has dropped.
        self.count = 0
        #: By size, then by fingerprint: number of requests dropped for deaths, and the time of the last one.
        self._dropped: dict[int, dict[int, tuple[int, int]]] = {}
        self._last_dropped_ns = 0
        #: Called when a request is dropped: similar ones may follow.
        self.on_dropped: Callable[[], None] = lambda: None
        for dropped in sorted(self.current.dropped(), key=itemgetter(2)):
            self._remember(dropped)

    @property
    def may_arrive(self) -> bool:
        """Whether a request like a dropped one may arrive; those that killed were sent to predecessors."""
        return bool(self._dropped)

    def is_condemned(self, identity: Identity) -> bool:
        """Return whether a request, or a peer's message, must not be executed again."""
        return identity in self._condemned

    def is_dropped(self, request: Request, now_ns: int) -> bool:
        """Return whether a request must not be executed, and log it with its known details."""
        if request.identity in self._condemned:
            self.drop(request, now_ns)
            return True
        if now_ns - self._last_dropped_ns >= self._window_ns:
            self._dropped.clear()
        alike = self._dropped.get(request.size_bytes)
        if alike is None:
            return False
        known = (alike[each] for each in self._fingerprints(request) if each in alike)
        count, dropped_ns = next(known, (0, 0))
        if count < MOST_ALIKE or now_ns - dropped_ns >= self._window_ns:
            return False
        ago_s = (now_ns - dropped_ns) // 1_000_000_000
        self._report(request, f"equals {count} dropped requests, the last {ago_s} s ago; it is rejected")
        return True

    def drop(self, request: Request, now_ns: int, owner: int | None = None) -> None:
        """Record and log a dropped request; ``owner``: another handler that has died in it."""
        for fingerprint in islice(self._fingerprints(request), 1):
            dropped = request.size_bytes, fingerprint, now_ns
            self._remember(dropped)
            self.current.note_dropped(request.identity, dropped)
        self._condemned.discard(request.identity)
        self.on_dropped()
        place = self._name if owner is None else f"handler {owner}"
        self._report(request, f"has killed {place} {self._most_deaths} times; it is dropped")

    def _remember(self, dropped: Dropped) -> None:
        size, fingerprint, dropped_ns = dropped
        alike = self._dropped.setdefault(size, {})
        self._last_dropped_ns = max(self._last_dropped_ns, dropped_ns)
        count, before_ns = alike.get(fingerprint, (0, dropped_ns))
        alike[fingerprint] = count + 1 if dropped_ns - before_ns < self._window_ns else 1, dropped_ns

    def _fingerprints(self, request: Request) -> Iterator[int]:
        """Yield hashes of a request that stay the same when its client retries it with another correlation id.

        One is of all its bytes, unless they contain notes of owners; a Produce also has one without notes. That one is
        computed last, and for a dropped request only if it has been parsed before.
        """
        view, start, end = request.view, request.start, request.end
        cause = (
            _CAUSE.pack(request.api_key, request.api_version)
            + self._context.client_hosts.of(request.connection_id).encode()
        )
        if not request.is_noted:
            yield _hash(cause, view[start + _CORRELATED : end])
        if request.api_key == ApiKey.PRODUCE:
            with suppress(InvalidReceive):
                yield _hash(cause, *_without_notes(request.api_version, view, start, end))

    def _report(self, request: Request, why: str) -> None:
        self.count += 1
        try:
            client = parse_header(request.view, request.start, request.end).client_id
        except InvalidReceive:
            client = ""
        name = next((key.text for key in ApiKey if key == request.api_key), f"api key {request.api_key}")
        host = self._context.client_hosts.of(request.connection_id).removeprefix("/") or "an unknown address"
        text = "%s version %d of client %r at %s (%d bytes) %s, and its connection is closed"
        logger.error(text, name, request.api_version, client, host, request.size_bytes, why)

    def report_message(self, source: int, name: str) -> None:
        """Log that a message of another target, or of the cleaner, is rejected."""
        peers = {self._context.controller: "the controller", self._context.cleaner: "the cleaner"}
        sender = peers.get(source, f"handler {source}")
        logger.error("%s from %s has killed %s %d times; it is rejected", name, sender, self._name, self._most_deaths)

    def _count_death(self) -> None:
        request_at, identity = self.current.interrupted()
        # First, so that a death from here on is not counted twice.
        self.current.clear()
        if identity is None and request_at:
            fields = REQUEST.unpack_from(self._context.rings.view, request_at)
            identity = fields[_CONNECTION_ID], fields[_SEQUENCE]
        if identity is not None:
            self.current.count_death(identity)


def _without_notes(version: int, view: memoryview, start: int, end: int) -> list[memoryview]:
    """Return the parts of a Produce between the owners' rewritten fields. Raises InvalidReceive."""
    pieces, at = [], start + _CORRELATED
    for part in parse_produce(view, version, parse_header(view, start, end).body_offset, end).parts:
        if part.records_size >= BATCH_HEADER_BYTES:
            pieces.append(view[at : part.records_offset])
            at = part.records_offset + _REWRITTEN_BYTES
    return [*pieces, view[at:end]]


def _hash(*pieces: bytes | memoryview) -> int:
    digest = blake2b(digest_size=8)
    for piece in pieces:
        digest.update(piece)
    return int.from_bytes(digest.digest(), "big", signed=True)
