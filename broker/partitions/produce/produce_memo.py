"""The memo of a Produce (`request_memo`): all but the records of its only partition.

Runs in handler processes.
"""

from __future__ import annotations

from struct import Struct

from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import subject, tail
from rotunda.broker.partitions.owned_partition import OwnedPartition
from rotunda.broker.partitions.request_memo import PREFIX_START
from rotunda.broker.protocol.messages.produce import FIRST_FLEXIBLE, Part, single_partition_response
from rotunda.broker.protocol.primitives import read_unsigned_varint
from rotunda.broker.protocol.records import BATCH_HEADER_BYTES

#: Connections whose last request is remembered, and requests that differ in front of their records.
MAX_REMEMBERED = 10_000

#: What stands before the records of a request that is remembered: a client id may be 32 KB long.
MOST_REMEMBERED_BYTES = 1024

_INT32 = Struct(">i")

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
        "quotas",
        "records_at",
        "session",
        "smallest_bytes",
        "staged",
        "tail",
        "template",
        "unpack",
        "version",
    )

    def __init__(self, request: Request, part: Part, acks: int, owned: OwnedPartition, handler: int) -> None:
        self.version = version = request.api_version
        self.session = request.session
        #: The quotas that hold for its client: where another's hold, a request is not like this one.
        self.quotas = quotas = request.quotas
        #: Where the size of such a request is put to be charged for when it is committed, if it is then.
        self.staged = quotas.staged if quotas is not None and acks else None
        self.flexible = version >= FIRST_FLEXIBLE
        self.acks = acks
        self.owned = owned
        #: The facts for the request log of every request like this one.
        self.about = subject(owned.row, 1, acks=acks)
        self.tail = tail(request.api_key, version, handler, self.about)
        self.template = single_partition_response(version, part.topic_name, part.topic_id, part.partition)
        size_bytes = _varint_bytes(part.records_size + 1) if self.flexible else _INT32.size
        self.prefix = prefix = bytes(request.view[request.start + PREFIX_START : part.records_offset - size_bytes])
        #: The bytes to compare and, where it has a fixed length, the size of the records behind them.
        head = Struct(f">{len(prefix)}s" if self.flexible else f">{len(prefix)}si")
        self.unpack = head.unpack_from
        self.records_at = PREFIX_START + head.size
        self.smallest_bytes = self.records_at + BATCH_HEADER_BYTES

    def varying(self, view: memoryview, start: int, end: int) -> memoryview | None:
        """Return the records of a request that is like this one in all else, or None. HOT."""
        if end - start < self.smallest_bytes:
            return None
        records_at = start + self.records_at
        if self.flexible:
            (prefix,) = self.unpack(view, start + PREFIX_START)
            size, records_at = read_unsigned_varint(view, records_at)
            # A compact size counts one more than there is, and three empty tag sections follow the records.
            records_end = records_at + size - 1
            fits = records_end + len(_NO_TAGS) == end and view[records_end:end] == _NO_TAGS
        else:
            prefix, size = self.unpack(view, start + PREFIX_START)
            records_end = records_at + size
            fits = records_end == end
        if not fits or prefix != self.prefix or size < BATCH_HEADER_BYTES:
            return None
        return view[records_at:records_end]


def _varint_bytes(value: int) -> int:
    """Bytes of an unsigned varint in its shortest form, which is the form that clients write."""
    return max(1, -(-value.bit_length() // 7))
