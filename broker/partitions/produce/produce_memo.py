"""The memo of Produce: what requests look like, so that the next one like them need not be parsed.

Runs in handler processes. A producer sends the same bytes again and again in front of its records: client id, acks,
timeout, topic, partition. Two requests with equal bytes there mean the same, as long as the topics do not change,
whichever connection they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from broker.ipc.frame import Frame
from broker.ipc.request_facts import subject, tail
from broker.partitions.owned_partition import OwnedPartition
from broker.partitions.produce.recently_used import RecentlyUsed
from broker.protocol.messages.produce import FIRST_FLEXIBLE, Part, single_partition_response
from broker.protocol.primitives import read_unsigned_varint
from broker.protocol.records import BATCH_HEADER_BYTES

#: Connections whose last request is remembered, and requests that differ in front of their records.
MAX_REMEMBERED = 10_000

#: A request is remembered at least so long after the last one like it, and at most twice as long.
REMEMBERED_NS = 30_000_000_000

#: What stands before the records of a request that is remembered: a client id may be 32 KB long.
MOST_REMEMBERED_BYTES = 1024

_INT32 = Struct(">i")

#: Api key, version and correlation id are looked at elsewhere or differ in every request.
_PREFIX_START = 8

#: What follows the records of one partition from version 9 on: the tags of partition, topic and request.
_NO_TAGS = b"\x00\x00\x00"


class RememberedRequest:
    """What stood before the records in a request, and what that meant."""

    __slots__ = (
        "about",
        "acks",
        "flexible",
        "owned",
        "prefix",
        "records_at",
        "smallest_bytes",
        "tail",
        "template",
        "unpack",
        "version",
    )

    def __init__(self, frame: Frame, part: Part, acks: int, owned: OwnedPartition, handler: int) -> None:
        self.version = version = frame.api_version
        self.flexible = version >= FIRST_FLEXIBLE
        self.acks = acks
        self.owned = owned
        #: What the request log is told of every request like this one.
        self.about = subject(owned.row, 1, acks=acks)
        self.tail = tail(frame.api_key, version, handler, self.about)
        self.template = single_partition_response(version, part.topic_name, part.topic_id, part.partition)
        size_bytes = _varint_bytes(part.records_size + 1) if self.flexible else _INT32.size
        self.prefix = prefix = bytes(frame.view[frame.start + _PREFIX_START : part.records_offset - size_bytes])
        #: The bytes to compare and, where it has a fixed length, the size of the records behind them.
        head = Struct(f">{len(prefix)}s" if self.flexible else f">{len(prefix)}si")
        self.unpack = head.unpack_from
        self.records_at = _PREFIX_START + head.size
        self.smallest_bytes = self.records_at + BATCH_HEADER_BYTES

    def key_of(self, view: memoryview, start: int) -> tuple[int, bytes]:
        """Return what finds a request of this version with as many bytes before its records. HOT."""
        at = start + _PREFIX_START
        return self.version, bytes(view[at : at + len(self.prefix)])

    def records(self, view: memoryview, start: int, end: int) -> memoryview | None:
        """Return the records of a request that is like this one in all else, or None. HOT."""
        if end - start < self.smallest_bytes:
            return None
        records_at = start + self.records_at
        if self.flexible:
            (prefix,) = self.unpack(view, start + _PREFIX_START)
            size, records_at = read_unsigned_varint(view, records_at)
            # A compact size counts one more than there is, and three empty tag sections follow the records.
            records_end = records_at + size - 1
            fits = records_end + len(_NO_TAGS) == end and view[records_end:end] == _NO_TAGS
        else:
            prefix, size = self.unpack(view, start + _PREFIX_START)
            records_end = records_at + size
            fits = records_end == end
        if not fits or prefix != self.prefix or size < BATCH_HEADER_BYTES:
            return None
        return view[records_at:records_end]


class ProduceMemo:
    """The last request of each connection, and each request by its version and what stands before its records."""

    __slots__ = ("_alike", "_is_judged", "_last")

    def __init__(self, is_judged: Callable[[tuple[int, int]], bool]) -> None:
        """``is_judged`` returns whether a batch of a (connection, row) is being judged: nothing may overtake that."""
        self._last: RecentlyUsed[int, RememberedRequest] = RecentlyUsed(MAX_REMEMBERED, REMEMBERED_NS)
        self._alike: RecentlyUsed[tuple[int, bytes], RememberedRequest] = RecentlyUsed(MAX_REMEMBERED, REMEMBERED_NS)
        self._is_judged = is_judged

    def __len__(self) -> int:
        """Return of how many connections the last request is remembered."""
        return len(self._last)

    def find(
        self, connection: int, version: int, view: memoryview, place: tuple[int, int, int]
    ) -> tuple[RememberedRequest, memoryview] | None:
        """Return what a request is like in all but its records, and those; None if that is not known. HOT.

        It may be like the last one of its connection, or like one for another partition that has as many bytes before
        its records. ``place`` begins with the request's start and end in ``view``.
        """
        remembered = self._last.recent.get(connection) or self._last.recall(connection)
        if remembered is None or remembered.version != version:
            return None
        records = remembered.records(view, place[0], place[1])
        if records is not None:
            return remembered, records
        key = remembered.key_of(view, place[0])
        other = self._alike.recent.get(key) or self._alike.recall(key)
        if other is None or self._is_judged((connection, other.owned.row)):
            return None
        records = other.records(view, place[0], place[1])
        if records is None:
            return None
        self._last.put(connection, other)
        return other, records

    def keep(self, connection: int, remembered: RememberedRequest) -> None:
        """Remember the last request of a connection."""
        self._last.put(connection, remembered)
        self._alike.put((remembered.version, remembered.prefix), remembered)

    def forget(self, connection: int) -> None:
        """Forget the last request of a connection: its next one is parsed."""
        self._last.forget(connection)

    def clear(self) -> None:
        """Forget everything: topics have changed."""
        self._last.clear()
        self._alike.clear()

    def forget_unused(self, now_ns: int) -> None:
        """Forget what was not used for a while: connections may have closed. Called now and then."""
        self._last.forget_unused(now_ns)
        self._alike.forget_unused(now_ns)


def _varint_bytes(value: int) -> int:
    """Bytes of an unsigned varint in its shortest form, which is the form that clients write."""
    return max(1, -(-value.bit_length() // 7))
