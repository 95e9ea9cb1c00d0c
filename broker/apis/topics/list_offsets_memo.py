"""The fast path of ListOffsets: where logs begin and end, asked again in the same bytes. HOT.

Runs in handler processes, in the request loop. Tools and consumers that watch their lag ask the same each time, so what
is asked of which row is worked out once (`request_memo`); the answer is packed from what owners have published. What
takes a search, and what has an error, is left to the general path (`list_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.apis.topics.list_offsets import EARLIEST, LATEST, READ_COMMITTED
from broker.ipc.request import Request
from broker.ipc.request_facts import NO_RECORDS, subject, tail
from broker.ipc.response_writer import AnswerFacts, ResponseWriter
from broker.partitions.request_memo import PREFIX_START, RequestMemo
from broker.protocol.api_keys import ApiKey
from broker.protocol.headers import parse_header
from broker.protocol.messages.list_offsets import (
    ListOffsetsPart,
    ListOffsetsRequest,
    OffsetsTemplate,
    parse_list_offsets,
)
from broker.security.acl.acls import ResourceType
from broker.security.acl.checks import refusal
from shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from broker.partitions.partition_manager import PartitionManager
    from broker.security.session import Session

#: Requests that are remembered, twice as many at most; bytes of each.
MOST_REMEMBERED: Final = 1_000
MOST_REMEMBERED_BYTES: Final = 1024

_LIST_OFFSETS: Final = int(ApiKey.LIST_OFFSETS)
_OLDEST, _NEWEST = 1, 11


class _Asked(NamedTuple):
    """What is asked of one partition."""

    row: int
    part: ListOffsetsPart


class RememberedQuestion:
    """A request: nothing in it varies but its correlation id."""

    __slots__ = ("about", "asked", "is_committed", "prefix", "session", "tail", "template", "version")

    def __init__(
        self, version: int, session: Session, prefix: bytes, request: ListOffsetsRequest, rows: list[int], handler: int
    ) -> None:
        self.version = version
        self.session = session
        self.prefix = prefix
        self.is_committed = request.isolation_level == READ_COMMITTED
        self.asked = [_Asked(*each) for each in zip(rows, request.parts, strict=True)]
        self.about = subject(rows[0], len(rows), isolation_level=request.isolation_level)
        self.tail = tail(_LIST_OFFSETS, version, handler, self.about)
        self.template = OffsetsTemplate(version, [(part.topic_name, part.partition) for part in request.parts])

    def varying(self, view: memoryview, start: int, end: int) -> tuple[()] | None:
        """Return nothing for the same request, None for any other. HOT."""
        return () if bytes(view[start + PREFIX_START : end]) == self.prefix else None


class ListOffsetsMemo:
    """The fast path through one handler."""

    def __init__(
        self,
        partitions: PartitionManager,
        responses: ResponseWriter,
        is_in_slices: Callable[[int], bool],
    ) -> None:
        """``is_in_slices``: something that a connection has sent is under way, and what it sends stands in line."""
        self._partitions = partitions
        self._responses = responses
        self._is_in_slices = is_in_slices
        self._now_ns = partitions.clock.monotonic_ns
        self._memo: RequestMemo[RememberedQuestion] = RequestMemo(MOST_REMEMBERED)

    def forget_metadata(self) -> None:
        """Parse the next request of every connection anew: topics have changed."""
        self._memo.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Forget what was not asked again for a while. Called now and then."""
        self._memo.forget_unused(now_ns)

    def answer(self, request: Request) -> bool:
        """Answer a request; False if it is to take the general path. Raises InvalidReceive. HOT."""
        connection = request.connection_id
        found = self._memo.find(request)
        known = self._read(request) if found is None else found[0]
        if known is None or self._is_in_slices(connection):
            return False
        offsets = [self._offset_of(asked, is_committed=known.is_committed) for asked in known.asked]
        if None in offsets:
            return False
        if found is None:
            self._memo.keep(connection, known)
        self._send(request, known, [each for each in offsets if each is not None])
        return True

    def _send(self, request: Request, known: RememberedQuestion, offsets: list[tuple[int, int]]) -> None:
        now_ns, responses, template = self._now_ns(), self._responses, known.template
        at = responses.try_begin(request, now_ns, template.size_bytes, NO_RECORDS, known.tail)
        if at >= 0:
            template.fill_into(responses.view, at, request.correlation_id, offsets)
            return
        payload = bytearray(template.size_bytes)
        template.fill_into(payload, 0, request.correlation_id, offsets)
        responses.send(request, now_ns, now_ns, bytes(payload), AnswerFacts(about=known.about))

    def _offset_of(self, asked: _Asked, *, is_committed: bool) -> tuple[int, int] | None:
        """Return (offset, leader epoch) as the general path does, or None if that is to say it."""
        row, (topic, partition, wanted_epoch, timestamp) = asked
        state, epoch, stable, end, start = self._partitions.table.read_fetched(row)
        if state != STATE_OPEN or (wanted_epoch >= 0 and wanted_epoch != epoch):
            return None
        if timestamp == LATEST:
            return (stable if is_committed else end), epoch
        if start == end:
            return start, epoch
        return start, self._partitions.reader(row, topic, partition).epoch_for_offset(start)

    def _read(self, request: Request) -> RememberedQuestion | None:
        """Return what a request asks for, or None if it is too long or asks for more than what is published."""
        version, view, start, end = request.api_version, request.view, request.start, request.end
        if not _OLDEST <= version <= _NEWEST or end - start > MOST_REMEMBERED_BYTES:
            return None
        header = parse_header(view, start, end)
        body = parse_list_offsets(view, version, header.body_offset, end)
        places = {(part.topic_name, part.partition) for part in body.parts}
        rows = [self._partitions.row_of(part.topic_name, None, part.partition) for part in body.parts]
        if not rows or len(places) < len(rows) or min(rows) < 0:
            return None
        if any(part.timestamp not in (LATEST, EARLIEST) for part in body.parts):
            return None
        authorizer = self._partitions.metadata.authorizer
        if authorizer is not None and any(
            refusal(authorizer, request.session, _LIST_OFFSETS, ResourceType.TOPIC, part.topic_name)
            for part in body.parts
        ):
            return None
        return RememberedQuestion(
            version, request.session, bytes(view[start + PREFIX_START : end]), body, rows, self._partitions.index
        )
