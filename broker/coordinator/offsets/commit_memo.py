"""A cache of commits: a member's last OffsetCommit, so that a similar one need not be parsed. HOT.

Runs in handler processes. A member repeats the same bytes except for the offsets. Two requests with equal bytes
everywhere else have the same meaning, as long as the topics and settings do not change; the group validates the member
for every request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.coordinator.offsets.commits import Committer, RepeatedCommit
from rotunda.broker.partitions.request_memo import PREFIX_START
from rotunda.broker.protocol import intern_pool
from rotunda.broker.protocol.api_keys import ApiKey, is_flexible
from rotunda.broker.protocol.compile import write

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.security.session import Session

#: Longer requests are always parsed, and so are those with a retention time for their offsets.
_LONGEST_BYTES: Final = 8192
_FIRST_WITHOUT_RETENTION: Final = 5

_REQUEST: Final = "OffsetCommitRequest"
_OFFSET_BYTES: Final = 8
_INVERTED_OFFSET: Final = re.compile(rb"\xff{8}")

#: A response starts with its size and the correlation id; the rest is constant.
_SIZE_BYTES: Final = 4
_BODY: Final = 8


class CommitPlaces(NamedTuple):
    """The positions in a request of its topics, and of each offset in them."""

    topics: int
    offsets: Sequence[int]


class RememberedCommit:
    """A member's cached commit of certain partitions, all of which ``shard`` has accepted."""

    __slots__ = (
        "_answer",
        "_fixed",
        "_layout",
        "_response",
        "answer_bytes",
        "commit",
        "committer",
        "facts",
        "prefix",
        "session",
        "shard",
        "topics",
        "version",
    )

    def __init__(
        self,
        whose: tuple[Session, Committer],
        shard: GroupShard,
        commit: RepeatedCommit,
        said: tuple[Any, bytes],
        frame: tuple[bytes, CommitPlaces],
        facts: tuple[bytes, bytes],
    ) -> None:
        """Use ``said`` for the topics and response of the request, ``frame`` for its bytes from the client id on."""
        self.session, committer = whose
        self.committer = committer
        self.version = committer.api_version
        self.shard = shard
        self.commit = commit
        self.topics, answer = said
        #: The facts for the request log of every matching request.
        self.facts = facts
        response = answer[_BODY:]
        self._response = intern_pool.text(response)
        self._answer = intern_pool.layout(f">ii{len(response)}s")
        #: Size of a response, with its size field and header.
        self.answer_bytes = self._answer.size
        data, places = frame
        #: The bytes of the request before its topics.
        self.prefix = data[: places.topics]
        edges = [places.topics, *(edge for at in places.offsets for edge in (at, at + _OFFSET_BYTES)), len(data)]
        gaps = [f"{after - before}s" for before, after in zip(edges[::2], edges[1::2], strict=True)]
        layout = intern_pool.layout(">" + "q".join(gaps))
        self._layout = layout
        self._fixed = tuple(intern_pool.text(text) for text in layout.unpack_from(data, places.topics)[::2])

    def varying(self, view: memoryview, start: int, end: int) -> tuple[int, ...] | None:
        """Return the offsets of a request that equals this one in all else, or None. HOT."""
        client_id_at = start + PREFIX_START
        topics_at = client_id_at + len(self.prefix)
        if end - topics_at != self._layout.size or view[client_id_at:topics_at] != self.prefix:
            return None
        fields = self._layout.unpack_from(view, topics_at)
        return fields[1::2] if fields[::2] == self._fixed else None

    def answer(self, correlation_id: int) -> bytes:
        """Return the response to a matching request, with its size field and header."""
        return self._answer.pack(self.answer_bytes - _SIZE_BYTES, correlation_id, self._response)

    def answer_into(self, view: memoryview, at: int, correlation_id: int) -> None:
        """Write the response to a matching request. HOT."""
        self._answer.pack_into(view, at, self.answer_bytes - _SIZE_BYTES, correlation_id, self._response)


def places_in(version: int, request: Any, data: bytes, body_at: int) -> CommitPlaces | None:
    """Return the positions of the topics and offsets in a request; None if it has to be parsed every time.

    Offsets are the bytes that change when the request is encoded with every bit of its offsets inverted. ``data`` is
    the request from its client id on, with the body at ``body_at``.
    """
    body = data[body_at:]
    if version < _FIRST_WITHOUT_RETENTION or len(body) > _LONGEST_BYTES or write(_REQUEST, version, request) != body:
        return None
    inverted = [
        topic.replaced(partitions=[part.replaced(committed_offset=~part.committed_offset) for part in topic.partitions])
        for topic in request.topics
    ]
    other = write(_REQUEST, version, request.replaced(topics=inverted))
    changed = int.from_bytes(body, "big") ^ int.from_bytes(other, "big")
    offsets = [body_at + found.start() for found in _INVERTED_OFFSET.finditer(changed.to_bytes(len(body), "big"))]
    # Subtract the array's count and, in flexible versions, the number of tagged fields.
    end_bytes = 2 if is_flexible(ApiKey.OFFSET_COMMIT, version) else 4
    return CommitPlaces(body_at + len(write(_REQUEST, version, request.replaced(topics=()))) - end_bytes, offsets)
