"""The cache entry of a Produce request (`request_cache`): everything except the records of its only partition.

Runs in handler processes.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import RESPONSE_TO_KIND
from rotunda.broker.ipc.request_facts import subject, tail
from rotunda.broker.native import compiled
from rotunda.broker.partitions import intern_pool
from rotunda.broker.partitions.owned_partition import OwnedPartition
from rotunda.broker.partitions.produce_response import single_partition_response
from rotunda.broker.partitions.request_cache import PREFIX_START, CachedRequest
from rotunda.broker.protocol.messages.produce import FIRST_FLEXIBLE, Part
from rotunda.broker.protocol.primitives import read_unsigned_varint
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES

_INT32 = Struct(">i")

#: The bytes after the records of one partition from version 9: the tags of partition, topic and request.
_NO_TAGS = b"\x00\x00\x00"


class CachedProduce(CachedRequest):
    """The bytes before a request's records, and their meaning."""

    __slots__ = (
        "about",
        "acks",
        "flexible",
        "owned",
        "quotas",
        "records_at",
        "smallest_bytes",
        "staged",
        "tail",
        "template",
        "unpack",
    )

    entry_bytes = 1600

    def __init__(self, request: Request, part: Part, acks: int, owned: OwnedPartition, handler: int) -> None:
        version = request.api_version
        #: The quotas of its client: a request with other quotas does not match.
        self.quotas = quotas = request.quotas
        #: The list for the sizes of staged requests, which are charged at the commit; None: not charged there.
        self.staged = quotas.staged if quotas is not None and acks else None
        self.flexible = version >= FIRST_FLEXIBLE
        self.acks = acks
        self.owned = owned
        #: The facts for the request log of every matching request.
        self.about = subject(owned.row, 1, acks=acks)
        self.tail = tail(request.api_key, version, handler, self.about)
        self.template = single_partition_response(version, part.topic_name, part.topic_id, part.partition)
        size_bytes = _varint_bytes(part.records_size + 1) if self.flexible else _INT32.size
        prefix = bytes(request.view[request.start + PREFIX_START : part.records_offset - size_bytes])
        super().__init__(request, prefix)
        #: The bytes to compare and, where it has a fixed length, the size of the records after them.
        head = intern_pool.layout(f">{len(prefix)}s" if self.flexible else f">{len(prefix)}si")
        self.unpack = head.unpack_from
        self.records_at = PREFIX_START + head.size
        self.smallest_bytes = self.records_at + BATCH_HEADER_BYTES
        #: The same for compiled code; None: it does not handle these requests.
        self.known = None if compiled is None or quotas is not None or not acks else self._known()

    def _known(self) -> Any:
        offset_at = self.template.offset_at
        if offset_at is None:
            return None
        known, owned = self.known_request(self.template.fill(0, 0, 0, -1, 0), (0, 0, 0), self.tail), self.owned
        known.owned, known.log, known.appends, known.row = owned, owned.log, owned.ring_appends, owned.row
        known.is_flexible, known.offset_at = self.flexible, RESPONSE_TO_KIND.size + offset_at
        return known

    def varying(self, view: memoryview, start: int, end: int) -> memoryview | None:
        """Return the records of a request that equals this one in all else, or None. HOT."""
        if end - start < self.smallest_bytes:
            return None
        records_at = start + self.records_at
        if self.flexible:
            (prefix,) = self.unpack(view, start + PREFIX_START)
            size, records_at = read_unsigned_varint(view, records_at)
            # A compact size is one more than the length, and three empty tag sections follow the records.
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
    """Return the length of an unsigned varint in its shortest form, which clients use."""
    return max(1, -(-value.bit_length() // 7))
