"""The cache entry of an OffsetCommit request (`request_cache`): everything except its offsets. HOT.

Runs in handler processes. A member repeats the same bytes except for the offsets. The group validates the member for
every request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.offsets.offsets import OFFSET_BYTES
from rotunda.broker.partitions import intern_pool
from rotunda.broker.partitions.request_cache import CachedFields

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Committer
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.offsets.commits import RepeatedCommit
    from rotunda.broker.ipc.request import Request

#: A response starts with its size and the correlation id; the rest is constant.
_SIZE_BYTES: Final = 4
_BODY: Final = 8


class CachedCommit(CachedFields):
    """A member's cached commit of certain partitions, all of which ``shard`` has accepted."""

    __slots__ = ("_layout", "_response", "committer", "facts", "repeated", "response_bytes", "shard", "topics")

    def __init__(
        self,
        request: Request,
        places: Iterable[tuple[int, str]],
        committer: Committer,
        shard: GroupShard,
        sent: tuple[Any, bytes],
        facts: tuple[bytes, bytes],
    ) -> None:
        """Use ``sent`` for the topics and response of the request, ``places`` for the offsets in its memory."""
        super().__init__(request, places)
        # Behind their ids, members commit in the same bytes.
        self._literals = (self.prefix, *map(intern_pool.text, self._literals[1:]))
        self.committer, self.shard = committer, shard
        self.topics, payload = sent
        #: The records of its repetitions; made by the first one, as many members commit once.
        self.repeated: RepeatedCommit | None = None
        #: The facts for the request log of every matching request.
        self.facts = facts
        response = payload[_BODY:]
        self._response = intern_pool.text(response)
        self._layout = intern_pool.layout(f">ii{len(response)}s")
        #: Size of a response, with its size field and header.
        self.response_bytes = self._layout.size

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return super().size_bytes + OFFSET_BYTES * sum([len(topic.partitions) for topic in self.topics])

    def encode(self, correlation_id: int) -> bytes:
        """Return the response to a matching request, with its size field and header."""
        return self._layout.pack(self.response_bytes - _SIZE_BYTES, correlation_id, self._response)

    def encode_into(self, view: memoryview, at: int, correlation_id: int) -> None:
        """Write the response to a matching request. HOT."""
        self._layout.pack_into(view, at, self.response_bytes - _SIZE_BYTES, correlation_id, self._response)
