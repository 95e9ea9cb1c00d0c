"""The memo of commits: a member's last OffsetCommit, so that the next one like it is not parsed. HOT.

Runs in handler processes. As it reads on, a member sends the same bytes again and again but for the offsets in them.
Two requests with equal bytes everywhere else mean the same, as long as the topics and settings do not change; whether
the member may commit is asked of its group each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.coordinator.offsets.commits import Committer, RepeatedCommit
from broker.partitions.request_memo import PREFIX_START
from broker.protocol import intern_pool
from broker.protocol.messages.offset_commit import (
    FIRST_FLEXIBLE,
    INSTANCE_FROM,
    RETENTION_BEFORE,
    OffsetCommitRequest,
    OffsetCommitResponse,
    encode_offset_commit_response,
)
from broker.protocol.primitives import MALFORMED

if TYPE_CHECKING:
    from broker.coordinator.group_shard import GroupShard
    from broker.security.session import Session

#: Requests of other lengths are parsed each time.
_SHORTEST_BYTES: Final = 16
_LONGEST_BYTES: Final = 8192

_GENERATION_BYTES: Final = 4
_OFFSET_BYTES: Final = 8

#: The length of a compact string has more than one byte from here on.
_LONG_STRING: Final = 0x80

#: An answer begins with its size and the correlation id; what follows is the same every time.
_SIZE_BYTES: Final = 4
_BODY: Final = 8
_unpack_int16 = Struct(">h").unpack_from


class CommitFrame(NamedTuple):
    """A request in ``view``: its client's name, its topics, its end, and the offset of each partition."""

    view: memoryview
    client_id_at: int
    topics_at: int
    end: int
    places: Sequence[int]


class RememberedCommit:
    """A member's commit for certain partitions, all of which were taken by ``shard``."""

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
        judged: tuple[OffsetCommitRequest, OffsetCommitResponse],
        frame: CommitFrame,
        facts: tuple[bytes, bytes],
    ) -> None:
        self.session, committer = whose
        self.committer = committer
        self.version = committer.api_version
        self.shard = shard
        self.commit = commit
        self.topics = judged[0].topics
        #: The facts for the request log of every request like this one.
        self.facts = facts
        response = encode_offset_commit_response(committer.api_version, 0, judged[1])[_BODY:]
        self._response = intern_pool.text(response)
        self._answer = intern_pool.layout(f">ii{len(response)}s")
        #: Of an answer, size and header included.
        self.answer_bytes = self._answer.size
        view, client_id_at, start, end, places = frame
        #: What the member says in front of its topics.
        self.prefix = bytes(view[client_id_at:start])
        edges = [start, *(edge for place in places for edge in (place, place + _OFFSET_BYTES)), end]
        gaps = [f"{after - before}s" for before, after in zip(edges[::2], edges[1::2], strict=True)]
        layout = intern_pool.layout(">" + "q".join(gaps))
        self._layout = layout
        self._fixed = tuple(intern_pool.text(text) for text in layout.unpack_from(view, start)[::2])

    def varying(self, view: memoryview, start: int, end: int) -> tuple[int, ...] | None:
        """Return the offsets of a request that is like this one in all else, or None. HOT."""
        client_id_at = start + PREFIX_START
        topics_at = client_id_at + len(self.prefix)
        if end - topics_at != self._layout.size or view[client_id_at:topics_at] != self.prefix:
            return None
        fields = self._layout.unpack_from(view, topics_at)
        return fields[1::2] if fields[::2] == self._fixed else None

    def answer(self, correlation_id: int) -> bytes:
        """Return the answer to a request like this one, size and header included."""
        return self._answer.pack(self.answer_bytes - _SIZE_BYTES, correlation_id, self._response)

    def answer_into(self, view: memoryview, at: int, correlation_id: int) -> None:
        """Write the answer to a request like this one. HOT."""
        self._answer.pack_into(view, at, self.answer_bytes - _SIZE_BYTES, correlation_id, self._response)


def topics_at(version: int, view: memoryview, start: int, end: int) -> int:
    """Return where the topics of a request begin, or -1 where that takes a closer look."""
    if version < RETENTION_BEFORE or not _SHORTEST_BYTES <= end - start <= _LONGEST_BYTES:
        return -1
    is_flexible = version >= FIRST_FLEXIBLE
    step = _compact_string if is_flexible else _string
    try:
        at = _string(view, start + PREFIX_START)
        if is_flexible:
            if view[at]:
                return -1
            at += 1
        at = step(view, at) + _GENERATION_BYTES
        at = step(view, at)
        if version >= INSTANCE_FROM:
            at = step(view, at)
    except MALFORMED:
        return -1
    return at if start < at < end else -1


def _string(view: memoryview, at: int) -> int:
    """Return the end of a string."""
    length: int = _unpack_int16(view, at)[0]
    return at + 2 + length if length > 0 else at + 2


def _compact_string(view: memoryview, at: int) -> int:
    """Return the end of a compact string, which is before its start if it is a long one."""
    size = view[at]
    return at + (size or 1) if size < _LONG_STRING else -len(view)
