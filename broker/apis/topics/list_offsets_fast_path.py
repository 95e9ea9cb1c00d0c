"""The fast path of ListOffsets: the ends of logs, requested again in the same bytes. HOT.

Runs in handler processes, in the request loop. Tools and consumers that watch their lag send the same request each
time, so its decoded form is cached (`request_cache`); the response is packed from the owners' published offsets.
Searches and errors are left to the general path (`list_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.apis.topics.list_offsets import EARLIEST, LATEST, READ_COMMITTED, parts_of
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import subject, tail
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter, with_correlation_id
from rotunda.broker.partitions.request_cache import CachedFields, RequestCache, RequestCaches
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.partitions.partition_manager import PartitionManager

#: Longer requests use the general path.
_LONGEST: Final = 1024

_LIST_OFFSETS: Final = int(ApiKey.LIST_OFFSETS)
_OLDEST, _NEWEST = 1, 11
_LEADER_EPOCH_FROM: Final = 4

#: Memory of a partition of a cached request.
_PART_BYTES: Final = 512

#: A response begins with its size and the correlation id.
_BODY: Final = 8


class _Asked(NamedTuple):
    """The request for one partition."""

    row: int
    topic: str
    part: Any


class OffsetsTemplate:
    """The response for the same partitions each time, without errors: its constant parts.

    Offsets and epochs vary. They are adjacent, and are located by encoding the response with two values that differ in
    every byte.
    """

    __slots__ = ("_has_epochs", "_literals", "_pack", "size_bytes")

    def __init__(self, version: int, parts: Sequence[tuple[str, int]]) -> None:
        """``parts``: (topic, partition)."""
        self._has_epochs = version >= _LEADER_EPOCH_FROM
        varying = "qi" if self._has_epochs else "q"
        varying_bytes = calcsize(f">{varying}")
        wire, other = (_response_of(version, parts, value) for value in (0, -1))
        layout, before, at = ">", 0, _BODY
        while at < len(wire):
            if wire[at] == other[at]:
                at += 1
                continue
            layout += f"{at - before}s{varying}"
            before = at = at + varying_bytes
        whole = Struct(f"{layout}{len(wire) - before}s")
        self._literals = [value for value in whole.unpack(wire) if isinstance(value, bytes)]
        self._pack = whole.pack
        self.size_bytes = len(wire)

    def encode(self, found: Iterable[tuple[int, int]]) -> bytes:
        """Return the whole response; ``found``: (offset, leader epoch) of each partition. HOT."""
        values: list[bytes | int] = []
        for literal, (offset, epoch) in zip(self._literals, found, strict=False):
            values += (literal, offset, epoch) if self._has_epochs else (literal, offset)
        return self._pack(*values, self._literals[-1])


def _response_of(version: int, parts: Sequence[tuple[str, int]], value: int) -> bytes:
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": partition, "offset": value, "leader_epoch": value} for _, partition in some
            ],
        }
        for name, some in groupby(parts, itemgetter(0))
    ]
    return codec.encode_response(_LIST_OFFSETS, version, 0, {"topics": topics})


class CachedListOffsets(CachedFields):
    """A cached request: only its correlation id varies."""

    __slots__ = ("about", "asked", "is_committed", "tail", "template")

    entry_bytes = 1600

    def __init__(self, request: Request, body: Any, rows: list[int], handler: int) -> None:
        super().__init__(request)
        version = request.api_version
        self.is_committed = body.isolation_level == READ_COMMITTED
        parts = parts_of(body)
        self.asked = [_Asked(row, *part) for row, part in zip(rows, parts, strict=True)]
        self.about = subject(rows[0], len(rows), isolation_level=body.isolation_level)
        self.tail = tail(_LIST_OFFSETS, version, handler, self.about)
        self.template = OffsetsTemplate(version, [(name, part.partition_index) for name, part in parts])

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return super().size_bytes + _PART_BYTES * len(self.asked)


class ListOffsetsFastPath:
    """The fast path of one handler."""

    def __init__(
        self,
        partitions: PartitionManager,
        responses: ResponseWriter,
        is_in_slices: Callable[[int], bool],
        caches: RequestCaches,
    ) -> None:
        """``is_in_slices``: a task of the connection is in progress, and its later requests are queued."""
        self._partitions = partitions
        self._responses = responses
        self._is_in_slices = is_in_slices
        self._now_ns = partitions.clock.monotonic_ns
        self.cache: RequestCache[CachedListOffsets] = caches.open(is_whole=True)

    def try_fast(self, request: Request) -> bool:
        """Handle a request; False if it needs the general path. Raises InvalidReceive. HOT."""
        connection = request.connection_id
        found = self.cache.find(request)
        cached = self._read(request) if found is None else found[0]
        if cached is None or self._is_in_slices(connection):
            return False
        wire = self._encode(cached.asked, cached.template, is_committed=cached.is_committed)
        if wire is None:
            return False
        if found is None:
            self.cache.keep(connection, cached)
        elif cached.known is None:
            cached.repeat(wire, cached.tail, partial(self._again, cached.asked, cached.template, cached.is_committed))
        now_ns, responses = self._now_ns(), self._responses
        if not responses.try_repeat(request, now_ns, wire, cached.tail):
            wire = with_correlation_id(wire, request.correlation_id)
            responses.send(request, now_ns, now_ns, wire, ResponseFacts(about=cached.about))
        return True

    def _encode(self, asked: list[_Asked], template: OffsetsTemplate, *, is_committed: bool) -> bytes | None:
        """Return the response at this time, or None if it needs the general path. HOT."""
        offsets: list[tuple[int, int]] = []
        for each in asked:
            offset = self._offset_of(each, is_committed=is_committed)
            if offset is None:
                return None
            offsets.append(offset)
        return template.encode(offsets)

    def _again(
        self, asked: list[_Asked], template: OffsetsTemplate, is_committed: bool, response: bytes
    ) -> bytes | None:
        """Return the response at this time (`CachedFields.repeat`). HOT."""
        wire = self._encode(asked, template, is_committed=is_committed)
        return None if wire is None else response[: -template.size_bytes] + wire

    def _offset_of(self, asked: _Asked, *, is_committed: bool) -> tuple[int, int] | None:
        """Return (offset, leader epoch) as the general path does, or None if it needs that path."""
        row, topic, part = asked
        state, epoch, stable, end, start = self._partitions.table.read_fetched(row)
        if state != STATE_OPEN or (part.current_leader_epoch >= 0 and part.current_leader_epoch != epoch):
            return None
        if part.timestamp == LATEST:
            return (stable if is_committed else end), epoch
        if start == end:
            return start, epoch
        return start, self._partitions.reader(row, topic, part.partition_index).epoch_for_offset(start)

    def _read(self, request: Request) -> CachedListOffsets | None:
        """Return a request's parsed form, or None if it is too long or needs more than published offsets."""
        version, view, start, end = request.api_version, request.view, request.start, request.end
        if not _OLDEST <= version <= _NEWEST or end - start > _LONGEST:
            return None
        header = parse_header(view, start, end)
        body = codec.decode(_LIST_OFFSETS, version, view, header.body_offset, end)
        parts = parts_of(body)
        places = {(name, part.partition_index) for name, part in parts}
        rows = [self._partitions.row_of(name, None, part.partition_index) for name, part in parts]
        if not rows or len(places) < len(rows) or min(rows) < 0:
            return None
        if any(part.timestamp not in (LATEST, EARLIEST) for _, part in parts):
            return None
        authorizer = self._partitions.metadata.authorizer
        if authorizer is not None and any(
            rejection(authorizer, request.session, _LIST_OFFSETS, ResourceType.TOPIC, name) for name, _ in parts
        ):
            return None
        return CachedListOffsets(request, body, rows, self._partitions.index)
