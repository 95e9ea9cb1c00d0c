"""Fetch sessions (KIP-227): a consumer's partitions, stored so that requests and responses have only changes.

Runs in handler processes. All requests of a connection are routed to one handler, which therefore has the session
created there. A session is in memory only and is lost when its handler dies; a client that uses it on another
connection may reach a handler without it. Both get FETCH_SESSION_ID_NOT_FOUND, and clients then send a full request. As
in Kafka, a session is evicted for a new one when it was not used for `EVICTED_NS`, or when it is older than that and
the new one has more partitions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from rotunda.broker.partitions.fetch.fetch_shape import FetchShape

if TYPE_CHECKING:
    from rotunda.broker.partitions.fetch.fetch_shape import FetchTerms
    from rotunda.broker.protocol.messages.fetch import ForgottenPart, PartFields

#: Kafka's min.incremental.fetch.session.eviction.ms, which is not configurable in Kafka either.
EVICTED_NS: Final = 120_000_000_000

#: Most partitions in all sessions of a handler.
MOST_PARTITIONS: Final = 200_000

_LARGEST: Final = 2**31 - 1
_FETCH_OFFSET: Final = 4
#: Indices in `PartFields` of the fields a session compares, besides the offset.
_EPOCH, _MAX_BYTES = 3, 7

#: The ends a client last received for a partition: log end and log start; None: none yet, or an error.
Ends = tuple[int, int] | None


class FetchSession:
    """One client's partitions, in the order in which they are read."""

    __slots__ = (
        "_metadata_version",
        "_shape",
        "created_ns",
        "epoch",
        "identity",
        "number",
        "offsets",
        "parts",
        "places",
        "sent_ends",
        "used_ns",
    )

    def __init__(self, number: int, parts: Sequence[PartFields], identity: tuple[int, ...], now_ns: int) -> None:
        """``identity`` identifies the request; a repeated request gets its response again."""
        self.number = number
        self.identity = identity
        #: The epoch of the next request.
        self.epoch = 1
        self.created_ns = self.used_ns = now_ns
        self.parts: list[PartFields] = []
        #: By index of the part. Except `sent_ends`, these lists are never changed in place: parked fetches refer to
        #: them.
        self.offsets: list[int] = []
        self.sent_ends: list[Ends] = []
        self.places: dict[tuple[str | None, bytes | None, int], int] = {}
        self._shape: FetchShape | None = None
        self._metadata_version = -1
        self.update(parts, [part[_FETCH_OFFSET] for part in parts], ())

    @property
    def last_epoch(self) -> int:
        """The epoch of the last request that created or continued the session."""
        return self.epoch - 1 or _LARGEST

    @property
    def is_new(self) -> bool:
        """Whether it has had only the request that created it."""
        return self.epoch == 1 and self.created_ns == self.used_ns

    @property
    def has_ids(self) -> bool:
        """Whether topics are identified by id."""
        return bool(self.parts) and self.parts[0][1] is not None

    def update(self, parts: Sequence[PartFields], offsets: Sequence[int], forgotten: Sequence[ForgottenPart]) -> None:
        """Apply a request's changes: changed partitions, added partitions, and forgotten ones."""
        places = self.places
        own = self.offsets = self.offsets.copy()
        changed: list[tuple[int, PartFields]] = []
        for part, offset in zip(parts, offsets, strict=True):
            at = places.setdefault(part[:3], len(own))
            if at == len(own):
                own.append(offset)
                changed.append((at, part))
                continue
            own[at] = offset
            if at < len(self.parts):
                known = self.parts[at]
                if part[_EPOCH] != known[_EPOCH] or part[_MAX_BYTES] != known[_MAX_BYTES]:
                    changed.append((at, part))
        if changed:
            self._change(changed)
        gone = {places.get((name, topic_id, partition)) for name, topic_id, partition in forgotten} - {None}
        if gone:
            self._arrange([at for at in range(len(own)) if at not in gone])

    def reset_sent_ends(self) -> None:
        """Make the next response complete: the last one was not sent."""
        self.sent_ends = [None] * len(self.parts)

    def rotate_to(self, index: int) -> None:
        """Rotate the order to start at another partition, for fairness when a response cannot hold all."""
        self._arrange([*range(index, len(self.parts)), *range(index)])

    def shape(self, terms: FetchTerms, metadata_version: int) -> FetchShape:
        """Return the shape of a fetch of all partitions."""
        shape = self._shape
        if shape is None or metadata_version != self._metadata_version or shape.terms != terms:
            self._metadata_version = metadata_version
            shape = self._shape = FetchShape(terms, self.parts)
        return shape

    def _change(self, changed: list[tuple[int, PartFields]]) -> None:
        """Replace the parts at these indices; indices after the last part append."""
        parts, more = self.parts.copy(), len(self.offsets) - len(self.parts)
        for at, part in changed:
            parts[at : at + 1] = [part]
        self.parts = parts
        self.sent_ends = self.sent_ends + [None] * more
        self._shape = None

    def _arrange(self, order: list[int]) -> None:
        """Retain the partitions at these indices, in this order."""
        self.parts = [self.parts[at] for at in order]
        self.offsets = [self.offsets[at] for at in order]
        self.sent_ends = [self.sent_ends[at] for at in order]
        self.places = {part[:3]: at for at, part in enumerate(self.parts)}
        self._shape = None


class FetchSessions:
    """The sessions of one handler, least recently used first."""

    def __init__(self, most: int, now_ns: Callable[[], int]) -> None:
        self._most = most
        self._now_ns = now_ns
        self._sessions: dict[int, FetchSession] = {}
        #: Number of partitions in all sessions.
        self.partitions = 0
        #: Number of evicted sessions.
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, parts: Sequence[PartFields], identity: tuple[int, ...]) -> FetchSession | None:
        """Create a session, or return None if there is no room for it."""
        now_ns = self._now_ns()
        if not parts or not self._has_room(len(parts), now_ns):
            return None
        number = 1 + secrets.randbelow(_LARGEST)
        while number in self._sessions:
            number = 1 + secrets.randbelow(_LARGEST)
        session = self._sessions[number] = FetchSession(number, parts, identity, now_ns)
        self.partitions += len(session.parts)
        return session

    def find(self, number: int) -> FetchSession | None:
        """Return a session, or None if it does not exist."""
        return self._sessions.get(number)

    def advance(
        self,
        session: FetchSession,
        parts: Sequence[PartFields],
        offsets: Sequence[int],
        forgotten: Sequence[ForgottenPart],
        identity: tuple[int, ...],
    ) -> bool:
        """Apply the next request of a session; False if the session was closed because it has grown too large."""
        before = len(session.parts)
        session.update(parts, offsets, forgotten)
        session.epoch = session.epoch + 1 if session.epoch < _LARGEST else 1
        session.identity = identity
        session.used_ns = self._now_ns()
        self._sessions[session.number] = self._sessions.pop(session.number)
        self.partitions += len(session.parts) - before
        if self.partitions > MOST_PARTITIONS and len(session.parts) > before:
            self.end(session.number)
            return False
        return True

    def end(self, number: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(number, None)
        if session is not None:
            self.partitions -= len(session.parts)

    def _has_room(self, parts: int, now_ns: int) -> bool:
        """Return whether a session of ``parts`` partitions fits, after evicting another if allowed."""
        if not self._most:
            return False
        if len(self._sessions) >= self._most or self.partitions + parts > MOST_PARTITIONS:
            before_ns = now_ns - EVICTED_NS
            oldest = next(iter(self._sessions.values()), None)
            if oldest is not None and oldest.used_ns >= before_ns:
                settled = (each for each in self._sessions.values() if each.created_ns < before_ns)
                oldest = min(settled, key=lambda each: len(each.parts), default=None)
                if oldest is not None and len(oldest.parts) >= parts:
                    oldest = None
            if oldest is None:
                return False
            self.end(oldest.number)
            self.evicted += 1
        return self.partitions + parts <= MOST_PARTITIONS
