"""One Fetch request: what each of its partitions has for it so far, and the response that is made of that.

Runs in handler processes. A partition's part of the response is encoded when it is read and stays as it is until the
partition's row moves, so that a response is put together from parts that are there already. `fetches` serves all of
them. Knows neither logs nor rings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rotunda.broker.ipc.request_facts import MOST_COUNTED, Records
from rotunda.broker.ipc.response_writer import AnswerFacts
from rotunda.broker.partitions.fetch.fetch_shape import FetchShape
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.fetch import (
    FetchPart,
    FetchPartResponse,
    Gap,
    encode_part,
    encode_topics,
    frame_fetch_response,
    part_tags,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rotunda.broker.ipc.request import Request
    from rotunda.broker.log.log_reader import FileSlice
    from rotunda.broker.partitions.fetch.fetch_sessions import FetchSession

#: File ranges in one answer; partitions beyond it wait for the consumer's next fetch.
MAX_RANGES: Final = 256

#: Where `PartFields` has it.
_PARTITION: Final = 2

#: Records that a partition has for an answer: (the row of that partition, where they lie, the tags that follow them).
#: A plain tuple: one is made for most answers.
FoundRecords: TypeAlias = "tuple[int, FileSlice, bytes]"


class Fetch:
    """A request, and its answer as far as it can be given now."""

    __slots__ = (
        "answered",
        "ends",
        "errors",
        "found",
        "is_cut",
        "local_ns",
        "moved",
        "offsets",
        "parts",
        "records_bytes",
        "request",
        "rights",
        "session",
        "shape",
        "terms",
        "uncounted",
    )

    def __init__(
        self, shape: FetchShape, offsets: Sequence[int], request: Request, session: FetchSession | None = None
    ) -> None:
        """``session``: only what is new to its client is answered."""
        self.shape = shape
        self.session = session
        #: By index of the part, what the client has got by earlier answers; None: it gets everything.
        self.answered = None if session is None else session.answered
        #: By index of the part, what it gets by this one.
        self.ends: dict[int, tuple[int, int]] = {}
        #: Whether there are records for which there was no room.
        self.is_cut = False
        self.terms = shape.terms
        self.offsets = offsets
        self.request = request
        self.local_ns = 0
        #: By index of the part: encoded, with its tags unless it has records.
        self.parts: list[bytes] = [b""] * len(shape.parts)
        #: By index of the part.
        self.found: dict[int, FoundRecords] = {}
        self.errors: dict[int, int] = {}
        self.records_bytes = 0
        #: By index of the part, bytes that count for the wait without being sent, because its slice has been cut.
        self.uncounted: dict[int, int] = {}
        #: Rows that have moved since they were read.
        self.moved: list[int] = []
        #: How often ACLs had changed when it was begun.
        self.rights = 0

    def anew(self) -> Fetch:
        """Return the same request, of whose partitions nothing has been looked up or read."""
        again = Fetch(FetchShape(self.terms, self.shape.parts), self.offsets, self.request, self.session)
        # The session may have gone on meanwhile.
        again.answered = self.answered
        return again

    @property
    def rows(self) -> dict[int, int]:
        """The rows of the partitions, with the index of the part, or NAMED_TWICE."""
        return self.shape.rows

    @property
    def is_enough(self) -> bool:
        """Whether there is no reason to wait: enough records, an error, or nothing to wait for.

        As in Kafka, whose slices end in the middle of a batch, a slice that is cut counts as all that it may have.
        """
        wanted_bytes = self.terms.wanted_bytes
        if self.records_bytes >= wanted_bytes or self.errors or not self.shape.rows:
            return True
        return bool(self.uncounted) and self.records_bytes + sum(self.uncounted.values()) >= wanted_bytes

    def part(self, index: int) -> FetchPart:
        """Return what is asked of one partition."""
        return FetchPart(*self.shape.parts[index])._replace(fetch_offset=self.offsets[index])

    def budget(self, partition_max_bytes: int) -> tuple[int, bool]:
        """Return how many bytes of records a part may have, and whether its first batch may exceed them (KIP-74)."""
        if len(self.found) >= MAX_RANGES:
            return 0, False
        return min(self.terms.most_bytes - self.records_bytes, partition_max_bytes), not self.records_bytes

    def forget(self, index: int) -> None:
        """Take a part out of the answer, to be read again."""
        found = self.found.pop(index, None)
        if found is not None:
            self.records_bytes -= found[1].length
        self.uncounted.pop(index, None)
        self.errors.pop(index, None)
        self.ends.pop(index, None)

    def empty(self, index: int, end: int, stable: int, start: int) -> bytes:
        """Return a part without records; nothing, if the client has got all that is in it."""
        if self.answered is not None:
            if self.answered[index] == (end, start):
                return b""
            self.ends[index] = end, start
        return self.terms.plain.encode_empty(self.shape.fields[index][1], end, stable, start)

    def fail(self, index: int, error: int) -> None:
        """Put an error into the response, without offsets as in Kafka."""
        version, partition = self.terms.version, self.shape.parts[index][_PARTITION]
        response = FetchPartResponse(partition, error, -1, -1, -1, 0)
        self.parts[index] = encode_part(version, response) + part_tags(version, response)
        self.errors[index] = error

    def put_aborted(
        self,
        index: int,
        offsets: tuple[int, int, int],
        row: int,
        found: FileSlice,
        aborted: tuple[tuple[int, int], ...],
    ) -> None:
        """Put records into the response with the transactions among them that were aborted."""
        version, partition = self.terms.version, self.shape.parts[index][_PARTITION]
        end, _, start = offsets
        response = FetchPartResponse(partition, 0, *offsets, found.length, aborted_transactions=aborted)
        self.found[index] = row, found, part_tags(version, response)
        self.records_bytes += found.length
        self.parts[index] = encode_part(version, response)
        self.ends[index] = end, start

    def put_plain(self, index: int, offsets: tuple[int, int, int], row: int, found: FileSlice) -> None:
        """Put a part without an error or aborted transactions; ``offsets``: log end, stable, start. HOT."""
        end, stable, start = offsets
        size = found.length
        if not size:
            self.parts[index] = self.empty(index, end, stable, start)
            return
        plain = self.terms.plain
        self.found[index] = row, found, plain.tags
        self.records_bytes += size
        self.parts[index] = plain.encode(self.shape.fields[index][1], end, stable, start, size)
        if self.answered is not None:
            self.ends[index] = end, start

    def count_cut(self, index: int, found: FileSlice, allowed_bytes: int, ends: tuple[int, int]) -> None:
        """Count the bytes that a cut slice lacks; ``ends``: of readable records, and where the last segment begins.

        A slice of an older segment cannot grow: it counts as all that is waited for.
        """
        readable_offset, last_segment = ends
        is_cut = found.next_offset < readable_offset
        if self.offsets[index] < last_segment:
            # Compaction may have left nothing there, of which an answer would be asked for again and again.
            if is_cut or (found.length and last_segment <= readable_offset):
                self.uncounted[index] = self.terms.wanted_bytes
        elif is_cut:
            self.uncounted[index] = max(allowed_bytes - found.length, 0)

    def in_order(self) -> list[tuple[int, FoundRecords]]:
        """Return what has been found, in the order of the parts."""
        return sorted(self.found.items())

    def chunks(self, in_order: list[tuple[int, FoundRecords]]) -> list[bytes]:
        """Return the answer around the records that have been found, from its size prefix on."""
        version, correlation_id = self.terms.version, self.request.correlation_id
        if self.session is None:
            gaps: list[Gap] = [(index, found.length, tags) for index, (_, found, tags) in in_order]
            return frame_fetch_response(version, correlation_id, self.shape.topics(), self.parts, gaps)
        answered = self._answered_now()
        place = {index: number for number, index in enumerate(answered)}
        gaps = [(place[index], found.length, tags) for index, (_, found, tags) in in_order]
        topics = encode_topics(version, [self.shape.parts[index][:2] for index in answered])
        status = 0, 0, self.session.number
        return frame_fetch_response(version, correlation_id, topics, [self.parts[i] for i in answered], gaps, status)

    def note_told(self) -> None:
        """Note in the session what the client gets with this answer."""
        if self.session is None or self.answered is None:
            return
        for index in self._answered_now():
            self.answered[index] = self.ends.get(index)
        if self.is_cut and self.found and self.session.answered is self.answered:
            self.session.turn_to(max(self.found) + 1)

    def _answered_now(self) -> list[int]:
        return [index for index, part in enumerate(self.parts) if part]

    def facts(self) -> AnswerFacts:
        """Return the facts for the request log of the answer: the first error, and what it has of records."""
        error = self.errors[min(self.errors)] if self.errors else 0
        denial = self.shape.denial if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED else 0
        return AnswerFacts(error, self.records(), self.shape.about, denial=denial)

    def records(self) -> Records:
        """Return the facts of the records in the answer. HOT."""
        records, offsets = 0, self.offsets
        for index, (_, found, _) in self.found.items():
            records += found.next_offset - offsets[index]
        return min(MOST_COUNTED, records), self.records_bytes, -1
