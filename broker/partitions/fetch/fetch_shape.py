"""The shape of fetches: what is asked for, of which partitions, and where those stand in the partition table.

Runs in handler processes. Of two polls of a consumer little but the offsets differs. So what the rest means is worked
out once, and holds until the metadata change (`request_memo`).
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.ipc.request_facts import NO_SUBJECT, RowOf, subject, tail
from rotunda.broker.partitions.request_memo import PREFIX_START
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.messages.fetch import EncodedTopic, FetchRequest, PartFields, encode_topics, varying_places
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import refusal

if TYPE_CHECKING:
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.protocol.messages.fetch import PlainParts
    from rotunda.broker.security.session import Session

#: Fetches that others are compared with, twice as many at most; no longer ones.
MOST_REMEMBERED: Final = 1_000
MOST_REMEMBERED_BYTES: Final = 4096

#: Stands for the row of a partition that there is not, and of one that its client may not read.
NOWHERE: Final = -1
FORBIDDEN: Final = -2

#: Stands for the index of a partition that a request names more than once.
NAMED_TWICE: Final = -1

READ_COMMITTED: Final = 1

_topic_of = itemgetter(0, 1)


class FetchTerms(NamedTuple):
    """What a fetch asks for, whatever its partitions; ``plain`` encodes its answer."""

    version: int
    max_wait_ms: int
    min_bytes: int
    #: Records in the answer, as the broker allows.
    most_bytes: int
    isolation_level: int
    client_id: str
    session: Session
    plain: PlainParts
    is_committed: bool
    #: As in Kafka, nobody waits for more than an answer may hold.
    wanted_bytes: int
    #: Who answers.
    handler: int


class FetchShape:
    """The partitions that a fetch reads; their rows are looked up as they are read."""

    __slots__ = ("_topics", "about", "denial", "fields", "parts", "rows", "tail", "terms")

    def __init__(self, terms: FetchTerms, parts: list[PartFields]) -> None:
        """``parts`` have offsets, which are those of one fetch: of no interest here."""
        self.terms = terms
        self.parts = parts
        #: Row (or NOWHERE, or FORBIDDEN), partition and leader epoch of each part, as far as they have been looked up.
        self.fields: list[tuple[int, int, int]] = []
        #: The rows, with the index of their part, or NAMED_TWICE.
        self.rows: dict[int, int] = {}
        #: The facts for the request log, by themselves and as the `tail` of an answer.
        self.about = self.tail = NO_SUBJECT
        self.denial = 0
        self._topics: list[EncodedTopic] | None = None

    def look_up(self, metadata: MetadataCache, stop: int) -> None:
        """Look up the rows of the parts before ``stop`` that have not been looked up yet."""
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
        """Look up the row of a part anew: its topic may have been deleted, and created again."""
        row, partition, epoch = self.fields[index]
        if row != FORBIDDEN:
            name, topic_id = self.parts[index][:2]
            self.fields[index] = row_of(name, topic_id, partition), partition, epoch

    def _is_forbidden(self, metadata: MetadataCache, topic: str) -> bool:
        authorizer, session = metadata.authorizer, self.terms.session
        if session.is_faulty and session.error_of(topic):
            return True
        if authorizer is None or not refusal(authorizer, session, int(ApiKey.FETCH), ResourceType.TOPIC, topic):
            return False
        self.denial = self.denial or authorizer.last_denial
        return True

    def topics(self) -> list[EncodedTopic]:
        """Return the entries of an answer that has all parts."""
        topics = self._topics
        if topics is None:
            topics = self._topics = encode_topics(self.terms.version, map(_topic_of, self.parts))
        return topics


class RememberedFetch:
    """A fetch as it lay in memory, with what it meant."""

    __slots__ = ("_literals", "_size", "_unpack", "body", "prefix", "session", "shape", "terms", "version")

    def __init__(
        self, request: Request, places: list[int], body: FetchRequest, terms: FetchTerms, shape: FetchShape | None
    ) -> None:
        """``places``: where its session epoch is, if it goes on with a session, and where its fetch offsets are.

        ``shape``: of its partitions, unless it goes on with a session, which has more of them.
        """
        self.version = request.api_version
        self.session = request.session
        self.body = body
        self.terms = terms
        self.shape = shape
        self._size = request.end - request.start
        layout = ">"
        start = request.start + PREFIX_START
        before = start
        for number, place in enumerate(places):
            is_epoch = shape is None and not number
            layout += f"{place - before}s{'i' if is_epoch else 'q'}"
            before = place + (4 if is_epoch else 8)
        unpack = Struct(f"{layout}{request.end - before}s").unpack_from
        self._unpack = unpack
        self._literals = unpack(request.view, start)[::2]
        self.prefix: bytes = self._literals[0]

    def varying(self, view: memoryview, start: int, end: int) -> tuple[int, ...] | None:
        """Return the session epoch, if there is a session, and the offsets of a fetch like this one, or None. HOT."""
        if end - start != self._size:
            return None
        values = self._unpack(view, start + PREFIX_START)
        return values[1::2] if values[::2] == self._literals else None


def remembered(
    request: Request, body_offset: int, body: FetchRequest, terms: FetchTerms, shape: FetchShape | None
) -> RememberedFetch | None:
    """Return what later fetches are compared with, or None if this one is too long or too strange for that."""
    if request.end - request.start > MOST_REMEMBERED_BYTES:
        return None
    found = varying_places(request.view, request.api_version, body_offset, request.end)
    if found is None:
        return None
    epoch_at, places = found
    if shape is None:
        places = [epoch_at, *places]
    return RememberedFetch(request, places, body, terms, shape) if places else None
