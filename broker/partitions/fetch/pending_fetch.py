"""One Fetch request: what each of its partitions has for it so far, and the answer that is made of that.

Runs in handler processes. A partition's part of the answer is encoded when it is read and stays as it is until the
partition's row moves, so that an answer is put together from parts that are there already. Knows neither logs nor
rings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.ipc.request_facts import MOST_COUNTED
from broker.ipc.response_writer import AnswerFacts
from broker.protocol.messages.fetch import (
    EncodedTopic,
    FetchPartResponse,
    Gap,
    PlainParts,
    encode_part,
    frame_fetch_response,
    part_tags,
)

if TYPE_CHECKING:
    from broker.ipc.response_writer import ReplyTo
    from broker.log.log_reader import FileSlice
    from broker.protocol.messages.fetch import FetchRequest

#: File ranges in one answer; partitions beyond it wait for the consumer's next fetch.
MAX_RANGES: Final = 256

#: Stands for the index of a partition that a request names more than once.
NAMED_TWICE: Final = -1

_READ_COMMITTED: Final = 1

#: Where `PartFields` have these.
_PARTITION: Final = 2
_FETCH_OFFSET: Final = 4
_PARTITION_MAX_BYTES: Final = 7


class Found(NamedTuple):
    """Records that a partition has for an answer, and the row of that partition."""

    row: int
    slice: FileSlice
    tags: bytes


class PendingFetch:
    """A request, and its answer as far as it can be given now."""

    __slots__ = (
        "correlation_id",
        "errors",
        "found",
        "is_committed",
        "local_ns",
        "most_bytes",
        "moved",
        "parts",
        "plain",
        "records_bytes",
        "request",
        "rows",
        "to",
        "topics",
        "version",
        "wanted_bytes",
    )

    def __init__(self, request: FetchRequest, to: ReplyTo, plain: PlainParts, most_bytes: int) -> None:
        """``most_bytes``: what the broker lets one answer hold of records."""
        self.request = request
        self.to = to
        self.version, self.correlation_id = to[6], to[7]
        self.local_ns = 0
        self.is_committed = request.isolation_level == _READ_COMMITTED
        self.plain = plain
        self.most_bytes = min(request.max_bytes, most_bytes)
        #: As in Kafka, nobody waits for more than an answer may hold.
        self.wanted_bytes = min(request.min_bytes, self.most_bytes)
        #: By index of the part: encoded, with its tags unless it has records.
        self.parts: list[bytes] = []
        self.topics: list[EncodedTopic] = []
        #: By index of the part.
        self.found: dict[int, Found] = {}
        self.errors: dict[int, int] = {}
        self.records_bytes = 0
        #: The rows of the partitions, with the index of the part, or NAMED_TWICE.
        self.rows: dict[int, int] = {}
        #: Rows that have moved since they were read.
        self.moved: list[int] = []

    @property
    def is_enough(self) -> bool:
        """Whether there is no reason to wait: enough records, an error, or nothing to wait for."""
        return self.records_bytes >= self.wanted_bytes or bool(self.errors) or not self.rows

    def budget(self, index: int) -> tuple[int, bool]:
        """Return how many bytes of records a part may have, and whether its first batch may exceed them (KIP-74)."""
        if len(self.found) >= MAX_RANGES:
            return 0, False
        left_bytes = self.most_bytes - self.records_bytes
        return min(left_bytes, self.request.parts[index][_PARTITION_MAX_BYTES]), self.records_bytes == 0

    def add_topic(self, name: str | None, topic_id: bytes | None, partitions: int) -> None:
        """Go on with so many partitions of a topic; neighbouring parts of one topic share its entry."""
        if self.topics and self.topics[-1][:2] == (name, topic_id):
            self.topics[-1] = EncodedTopic(name, topic_id, self.topics[-1].partitions + partitions)
        elif partitions:
            self.topics.append(EncodedTopic(name, topic_id, partitions))

    def forget(self, index: int) -> None:
        """Take a part out of the answer, to be read again."""
        found = self.found.pop(index, None)
        if found is not None:
            self.records_bytes -= found.slice.length
        self.errors.pop(index, None)

    def put(self, index: int, response: FetchPartResponse, row: int, found: FileSlice | None) -> None:
        """Put a part into the answer, in the place of what was forgotten there."""
        encoded = encode_part(self.version, response)
        tags = part_tags(self.version, response)
        if found is not None and found.length:
            self.found[index] = Found(row, found, tags)
            self.records_bytes += found.length
            self.parts[index] = encoded
        else:
            self.parts[index] = encoded + tags
        if response.error_code:
            self.errors[index] = response.error_code

    def put_plain(self, index: int, offsets: tuple[int, int, int], row: int, found: FileSlice) -> None:
        """Put a part without an error or aborted transactions; ``offsets``: log end, stable, start. HOT."""
        plain, size = self.plain, found.length
        partition = self.request.parts[index][_PARTITION]
        if size:
            self.found[index] = Found(row, found, plain.tags)
            self.records_bytes += size
            self.parts[index] = plain.encode(partition, *offsets, size)
        else:
            self.parts[index] = plain.encode_empty(partition, *offsets)

    def in_order(self) -> list[tuple[int, Found]]:
        """Return what has been found, in the order of the parts."""
        return sorted(self.found.items())

    def chunks(self, in_order: list[tuple[int, Found]]) -> list[bytes]:
        """Return the answer around the records that have been found, from its size prefix on."""
        gaps = [Gap(index, found.slice.length, found.tags) for index, found in in_order]
        return frame_fetch_response(self.version, self.correlation_id, self.topics, self.parts, gaps)

    def first_row(self) -> int:
        """Return the row of the first partition, or -1 when there is none such."""
        for row, index in self.rows.items():
            return row if index <= 0 else -1
        return -1

    def facts(self, subject: bytes) -> AnswerFacts:
        """Return what the request log is told of the answer: the first error, and what it has of records."""
        error = self.errors[min(self.errors)] if self.errors else 0
        parts, records = self.request.parts, 0
        for index, (_, found, _) in self.found.items():
            records += found.next_offset - parts[index][_FETCH_OFFSET]
        return AnswerFacts(error, (min(records, MOST_COUNTED), self.records_bytes, -1), subject)
