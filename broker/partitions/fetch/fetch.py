"""One Fetch request: the data found so far for each of its partitions, and the response built from it.

Runs in handler processes. A partition's part of the response is encoded when it is read and stays unchanged until the
partition's row moves, so that the response is assembled from encoded parts. `fetches` serves all requests. Must not
know logs or rings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rotunda.broker.ipc.request_facts import MOST_COUNTED, Records
from rotunda.broker.ipc.response_writer import ResponseFacts
from rotunda.broker.partitions.fetch.fetch_response import (
    Gap,
    encode_part,
    encode_topics,
    frame_fetch_response,
    tags_of,
)
from rotunda.broker.partitions.fetch.fetch_shape import FetchShape
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.fetch import FetchPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rotunda.broker.ipc.request import Request
    from rotunda.broker.log.log_reader import FileSlice
    from rotunda.broker.partitions.fetch.fetch_sessions import FetchSession

#: Most file ranges in one response; further partitions wait for the consumer's next fetch.
MAX_RANGES: Final = 256

#: Its index in `PartFields`.
_PARTITION: Final = 2

#: Records of a partition for a response: (row, location of the records, the tags that follow them). A plain tuple: one
#: is created for most responses.
FoundRecords: TypeAlias = "tuple[int, FileSlice, bytes]"


class Fetch:
    """A request, and the current state of its response."""

    __slots__ = (
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
        "sent_ends",
        "session",
        "shape",
        "terms",
        "uncounted",
    )

    def __init__(
        self, shape: FetchShape, offsets: Sequence[int], request: Request, session: FetchSession | None = None
    ) -> None:
        """``session``: include only changes since the client's last response."""
        self.shape = shape
        self.session = session
        #: By index of the part, the ends the client received in earlier responses; None: include everything.
        self.sent_ends = None if session is None else session.sent_ends
        #: By index of the part, the ends in this response.
        self.ends: dict[int, tuple[int, int]] = {}
        #: Whether records did not fit into the response.
        self.is_cut = False
        self.terms = shape.terms
        self.offsets = offsets
        self.request = request
        self.local_ns = 0
        #: By index of the part: the encoded part, with its tags unless records follow.
        self.parts: list[bytes] = [b""] * len(shape.parts)
        #: By index of the part.
        self.found: dict[int, FoundRecords] = {}
        self.errors: dict[int, int] = {}
        self.records_bytes = 0
        #: By index of the part: bytes not sent because the slice was cut; they count towards the wait.
        self.uncounted: dict[int, int] = {}
        #: Rows that have moved since they were read.
        self.moved: list[int] = []
        #: The authorizer's change count when the fetch began.
        self.rights = 0

    def anew(self) -> Fetch:
        """Return the same request with no partition looked up or read."""
        again = Fetch(FetchShape(self.terms, self.shape.parts), self.offsets, self.request, self.session)
        # The session may have continued meanwhile.
        again.sent_ends = self.sent_ends
        return again

    @property
    def rows(self) -> dict[int, int]:
        """Rows of the partitions, with the index of the part, or NAMED_TWICE."""
        return self.shape.rows

    @property
    def is_enough(self) -> bool:
        """Whether the response is due: enough records, an error, or nothing to wait for.

        As in Kafka, where slices end in the middle of a batch, a cut slice counts as all the bytes it may have.
        """
        wanted_bytes = self.terms.wanted_bytes
        if self.records_bytes >= wanted_bytes or self.errors or not self.shape.rows:
            return True
        return bool(self.uncounted) and self.records_bytes + sum(self.uncounted.values()) >= wanted_bytes

    def part(self, index: int) -> FetchPart:
        """Return the request's part for one partition."""
        return FetchPart(*self.shape.parts[index])._replace(fetch_offset=self.offsets[index])

    def budget(self, partition_max_bytes: int) -> tuple[int, bool]:
        """Return the byte budget of a part, and whether its first batch may exceed it (KIP-74)."""
        if len(self.found) >= MAX_RANGES:
            return 0, False
        return min(self.terms.most_bytes - self.records_bytes, partition_max_bytes), not self.records_bytes

    def forget(self, index: int) -> None:
        """Remove a part from the response, so that it is read again."""
        found = self.found.pop(index, None)
        if found is not None:
            self.records_bytes -= found[1].length
        self.uncounted.pop(index, None)
        self.errors.pop(index, None)
        self.ends.pop(index, None)

    def empty(self, index: int, end: int, stable: int, start: int) -> bytes:
        """Return a part without records; empty bytes if the client already has its ends."""
        if self.sent_ends is not None:
            if self.sent_ends[index] == (end, start):
                return b""
            self.ends[index] = end, start
        return self.terms.plain.encode_empty(self.shape.fields[index][1], end, stable, start)

    def fail(self, index: int, error: int) -> None:
        """Add an error to the response, without offsets as in Kafka."""
        version, partition = self.terms.version, self.shape.parts[index][_PARTITION]
        self.parts[index] = encode_part(version, partition, error) + tags_of(version)
        self.errors[index] = error

    def put_aborted(
        self,
        index: int,
        offsets: tuple[int, int, int],
        row: int,
        found: FileSlice,
        aborted: tuple[tuple[int, int], ...],
    ) -> None:
        """Add records to the response with the aborted transactions among them."""
        version, partition = self.terms.version, self.shape.parts[index][_PARTITION]
        end, _, start = offsets
        self.found[index] = row, found, tags_of(version)
        self.records_bytes += found.length
        self.parts[index] = encode_part(version, partition, 0, offsets, found.length, aborted)
        self.ends[index] = end, start

    def put_plain(self, index: int, offsets: tuple[int, int, int], row: int, found: FileSlice) -> None:
        """Add a part without an error or aborted transactions; ``offsets``: log end, stable, start. HOT."""
        end, stable, start = offsets
        size = found.length
        if not size:
            self.parts[index] = self.empty(index, end, stable, start)
            return
        plain = self.terms.plain
        self.found[index] = row, found, plain.tags
        self.records_bytes += size
        self.parts[index] = plain.encode(self.shape.fields[index][1], end, stable, start, size)
        if self.sent_ends is not None:
            self.ends[index] = end, start

    def count_cut(self, index: int, found: FileSlice, allowed_bytes: int, ends: tuple[int, int]) -> None:
        """Count the bytes missing from a cut slice; ``ends``: of readable records, and the base of the last segment.

        A slice of an older segment cannot grow: it counts as all the bytes waited for.
        """
        readable_offset, last_segment = ends
        is_cut = found.next_offset < readable_offset
        if self.offsets[index] < last_segment:
            # Compaction may have left no records there; an immediate response would then be requested in a loop.
            if is_cut or (found.length and last_segment <= readable_offset):
                self.uncounted[index] = self.terms.wanted_bytes
        elif is_cut:
            self.uncounted[index] = max(allowed_bytes - found.length, 0)

    def in_order(self) -> list[tuple[int, FoundRecords]]:
        """Return the found records, in the order of the parts."""
        return sorted(self.found.items())

    def chunks(self, in_order: list[tuple[int, FoundRecords]]) -> list[bytes]:
        """Return the response around the found records, starting with its size prefix."""
        version, correlation_id = self.terms.version, self.request.correlation_id
        if self.session is None:
            gaps: list[Gap] = [(index, found.length, tags) for index, (_, found, tags) in in_order]
            return frame_fetch_response(version, correlation_id, self.shape.topics(), self.parts, gaps)
        sent = self._parts_to_send()
        place = {index: number for number, index in enumerate(sent)}
        gaps = [(place[index], found.length, tags) for index, (_, found, tags) in in_order]
        topics = encode_topics(version, [self.shape.parts[index][:2] for index in sent])
        status = 0, 0, self.session.number
        return frame_fetch_response(version, correlation_id, topics, [self.parts[i] for i in sent], gaps, status)

    def note_sent(self) -> None:
        """Record in the session the ends that this response sends."""
        if self.session is None or self.sent_ends is None:
            return
        for index in self._parts_to_send():
            self.sent_ends[index] = self.ends.get(index)
        if self.is_cut and self.found and self.session.sent_ends is self.sent_ends:
            self.session.rotate_to(max(self.found) + 1)

    def _parts_to_send(self) -> list[int]:
        return [index for index, part in enumerate(self.parts) if part]

    def facts(self) -> ResponseFacts:
        """Return the response's facts for the request log: the first error, and its records."""
        error = self.errors[min(self.errors)] if self.errors else 0
        denial = self.shape.denial if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED else 0
        return ResponseFacts(error, self.records(), self.shape.about, denial=denial)

    def records(self) -> Records:
        """Return the facts of the response's records. HOT."""
        records, offsets = 0, self.offsets
        for index, (_, found, _) in self.found.items():
            records += found.next_offset - offsets[index]
        return min(MOST_COUNTED, records), self.records_bytes, -1
