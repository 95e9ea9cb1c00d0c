"""What the request log is told of a request's contents: which partition, how many, and what was asked of them.

Runs in handler processes. Packed once for each request, or once for many that are alike, and copied into the envelope
of the answer as it is. Nothing of records but their number, their size and their codec is ever told (``D20``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from broker.protocol.kio_slices import Lazily
from broker.protocol.records import BATCH_HEADER_BYTES, CODEC_MASK, BatchHeader, read_header
from shm.layout import RESPONSE_ENVELOPE
from shm.recorder_layout import MIXED_CODECS, NOT_TOLD

if TYPE_CHECKING:
    from broker.protocol.records import RawHeader

#: From these fields on an envelope is copied whole from here.
_SUBJECT = RESPONSE_ENVELOPE.struct_from("partition_row")
_TAIL = RESPONSE_ENVELOPE.struct_from("api_key")

_ATTRIBUTES = BatchHeader._fields.index("attributes")
_RECORD_COUNT = BatchHeader._fields.index("record_count")

#: So many elements of a tuple are looked at to find out what it holds.
_MOST_FIELDS = 8

#: What is told of the records of a request: (how many, their bytes as batches, codec); -1 is not known.
Records = tuple[int, int, int]
NO_RECORDS: Records = (-1, -1, -1)

#: What stands for as many records and for more: parts of one request may claim more than the field can say.
MOST_COUNTED = 2**31 - 1


def subject(
    partition_row: int = -1,
    partition_count: int = 0,
    *,
    min_bytes: int = -1,
    max_wait_ms: int = -1,
    acks: int = NOT_TOLD,
    isolation_level: int = NOT_TOLD,
) -> bytes:
    """Return what a request is about: the table row of its first partition, how many it names, what it asks for."""
    return _SUBJECT.pack(partition_row, partition_count, min_bytes, max_wait_ms, acks, isolation_level, 0)


def tail(api_key: int, api_version: int, handler: int, about: bytes) -> bytes:
    """Return the end of the envelope of an answer without error; ``about`` is a `subject`."""
    return _TAIL.pack(api_key, api_version, handler, 0, *_SUBJECT.unpack(about))


#: Of a request that names no partition.
NO_SUBJECT = subject()


def records_of(header: RawHeader, batch: memoryview) -> Records:
    """Return what is told of one batch of a Produce, by its header. HOT."""
    return header[_RECORD_COUNT], len(batch), header[_ATTRIBUTES] & CODEC_MASK


def records_of_all(view: memoryview, places: Iterable[tuple[int, int]]) -> Records:
    """Return what is told of the batches at (offset, size) of a request, by what their headers claim."""
    count = size_bytes = 0
    codecs = set()
    for offset, size in places:
        size_bytes += max(size, 0)
        header = read_header(view, offset) if size >= BATCH_HEADER_BYTES else None
        if header is not None:
            count += max(header.record_count, 0)
            codecs.add(header.codec)
    codec = MIXED_CODECS if len(codecs) > 1 else next(iter(codecs), -1)
    return min(count, MOST_COUNTED), size_bytes, codec


#: Finds the row of a partition in the partition table by its topic's name, or by its id.
RowOf = Callable[[str | None, bytes | None, int], int]


def subject_of(request: Any, row_of: RowOf) -> bytes:
    """Return what a decoded request is about, if it names topics with partitions; ``row_of`` finds their table row."""
    topics: Sequence[Any] = getattr(request, "topics", None) or ()
    partitions: list[Any] = []
    for topic in topics:
        found = getattr(topic, "partitions", None)
        if found:
            partitions.extend(found)
    if not partitions:
        return NO_SUBJECT
    index = _first_of(partitions[0], ("partition_index", "partition"), partitions[0])
    name = _first_of(topics[0], ("name", "topic"), None)
    row = -1
    if isinstance(index, int) and isinstance(name, str):
        row = row_of(name, None, index)
    isolation_level = getattr(request, "isolation_level", NOT_TOLD)
    return subject(row, len(partitions), isolation_level=int(isolation_level))


def first_error(response: Any) -> int:
    """Return the first error code in a response before it is encoded, outer fields before inner ones, or 0."""
    waiting = deque((response,))
    while waiting:
        value = waiting.popleft()
        if isinstance(value, (list, tuple, Lazily)) and not hasattr(value, "_fields"):
            waiting.extend(value)
            continue
        fields = _fields(value)
        code = fields.get("error_code")
        if code:
            return int(code)
        waiting.extend(each for each in fields.values() if _may_hold_error(each))
    return 0


def _may_hold_error(value: Any) -> bool:
    """Return whether there are structures in a field: of a list, all elements are as the first one is."""
    if isinstance(value, dict) or hasattr(value, "_fields"):
        return True
    if isinstance(value, Lazily):
        return True
    if isinstance(value, list):
        return bool(value) and _may_hold_error(value[0])
    if isinstance(value, tuple):
        # A sequence like a list, or a few fields of different kinds.
        return any(_may_hold_error(each) for each in value[:_MOST_FIELDS])
    return hasattr(value, "__dataclass_fields__") or isinstance(value, Mapping)


def throttle_of(response: Any) -> int:
    """Return the throttle time that a response tells its client, in ms."""
    throttle = _fields(response).get("throttle_time_ms", 0)
    return throttle if isinstance(throttle, int) else 0


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of one structure of a response: a mapping, a named tuple or a data class."""
    if isinstance(value, Mapping):
        return value
    names: Sequence[str] = getattr(value, "_fields", ()) or getattr(value, "__dataclass_fields__", ())
    return {name: getattr(value, name) for name in names}


def _first_of(value: Any, names: tuple[str, ...], otherwise: Any) -> Any:
    return next((getattr(value, name) for name in names if hasattr(value, name)), otherwise)
