"""The shape of fetches: the parameters, the partitions, and the partitions' rows in the partition table.

Runs in handler processes. Two polls of a consumer differ in little but the offsets. So the rest is interpreted once,
and is valid until the metadata changes (`request_cache`).
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.ipc.request_facts import NO_SUBJECT, RowOf, subject, tail
from rotunda.broker.partitions.fetch.fetch_response import EncodedTopic, encode_topics
from rotunda.broker.partitions.request_cache import CachedFields
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.messages.fetch import FetchRequest, PartFields
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection

if TYPE_CHECKING:
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.fetch.fetch_response import PlainParts
    from rotunda.broker.security.session import Session

#: Memory of a partition of a cached fetch.
_PART_BYTES: Final = 256

#: Row value of a nonexistent partition, and of one the client may not read.
NOWHERE: Final = -1
FORBIDDEN: Final = -2

#: Index value of a partition that a request lists more than once.
NAMED_TWICE: Final = -1

READ_COMMITTED: Final = 1

_topic_of = itemgetter(0, 1)


class FetchTerms(NamedTuple):
    """The parameters of a fetch, except its partitions; ``plain`` encodes its response."""

    version: int
    max_wait_ms: int
    min_bytes: int
    #: Most bytes of records in the response, by the request, the settings and the quotas.
    most_bytes: int
    isolation_level: int
    client_id: str
    session: Session
    plain: PlainParts
    is_committed: bool
    #: As in Kafka, a fetch never waits for more than a response can hold.
    wanted_bytes: int
    #: The handler that sends the response.
    handler: int


class FetchShape:
    """The partitions that a fetch reads; their rows are looked up as they are read."""

    __slots__ = ("_topics", "about", "denial", "fields", "parts", "rows", "tail", "terms")

    def __init__(self, terms: FetchTerms, parts: list[PartFields]) -> None:
        """Ignore the offsets in ``parts``: they belong to one fetch."""
        self.terms = terms
        self.parts = parts
        #: Row (or NOWHERE, or FORBIDDEN), partition and leader epoch of each part looked up so far.
        self.fields: list[tuple[int, int, int]] = []
        #: The rows, with the index of their part, or NAMED_TWICE.
        self.rows: dict[int, int] = {}
        #: The facts for the request log, alone and as the `tail` of a response.
        self.about = self.tail = NO_SUBJECT
        self.denial = 0
        self._topics: list[EncodedTopic] | None = None

    def look_up(self, metadata: MetadataCache, stop: int) -> None:
        """Look up the rows of the remaining parts before ``stop``."""
        fields, rows, parts = self.fields, self.rows, self.parts
        start = len(fields)
        topic: tuple[str | None, bytes | None] | None = None
        for index in range(start, stop):
            name, topic_id, partition, epoch, _, _, _, _ = parts[index]
            if (name, topic_id) != topic:
                topic = name, topic_id
                found = metadata.topic(name) if name is not None else metadata.topic_by_id(topic_id or b"")
                infos = () if found is None else found.partitions
                asked = name if found is None else found.name
                is_forbidden = asked is not None and self._is_forbidden(metadata, asked)
            row = FORBIDDEN if is_forbidden else infos[partition].row if 0 <= partition < len(infos) else NOWHERE
            if row >= 0:
                rows[row] = NAMED_TWICE if row in rows else index
            fields.append((row, partition, epoch))
        if not start:
            terms = self.terms
            self.about = subject(
                max(fields[0][0], NOWHERE) if fields else NOWHERE,
                len(parts),
                min_bytes=terms.min_bytes,
                max_wait_ms=terms.max_wait_ms,
                isolation_level=terms.isolation_level,
            )
            self.tail = tail(int(ApiKey.FETCH), terms.version, terms.handler, self.about)

    def look_up_again(self, index: int, row_of: RowOf) -> None:
        """Look up the row of a part again: its topic may have been deleted and recreated."""
        row, partition, epoch = self.fields[index]
        if row != FORBIDDEN:
            name, topic_id = self.parts[index][:2]
            self.fields[index] = row_of(name, topic_id, partition), partition, epoch

    def _is_forbidden(self, metadata: MetadataCache, topic: str) -> bool:
        authorizer, session = metadata.authorizer, self.terms.session
        if session.is_faulty and session.error_of(topic):
            return True
        if authorizer is None or not rejection(authorizer, session, int(ApiKey.FETCH), ResourceType.TOPIC, topic):
            return False
        self.denial = self.denial or authorizer.last_denial
        return True

    def topics(self) -> list[EncodedTopic]:
        """Return the topic entries of a response with all parts."""
        topics = self._topics
        if topics is None:
            topics = self._topics = encode_topics(self.terms.version, map(_topic_of, self.parts))
        return topics


class CachedFetch(CachedFields):
    """A cached fetch; its offsets vary, and in a session before them the session epoch."""

    __slots__ = ("body", "shape", "terms")

    entry_bytes = 1920

    def __init__(
        self,
        request: Request,
        body: FetchRequest,
        terms: FetchTerms,
        shape: FetchShape | None,
    ) -> None:
        """``shape``: its partitions, unless it continues a session, which has more of them."""
        places = body.places
        # Without a session its epoch does not vary.
        super().__init__(request, places if shape is None else places[len(places) - len(body.parts) :])
        self.body, self.terms, self.shape = body, terms, shape

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return super().size_bytes + _PART_BYTES * len(self.body.parts)
