"""Facts of a request for the request log: its first partition, the number of partitions, and its parameters.

Runs in handler processes. Packed once for each request, or once for many equal ones, and copied into the envelope of
the response. Of records only their number, size and codec are recorded (``D20``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.schema.marks import Path, asked_partitions, error_paths
from rotunda.broker.records.record_batch import CODEC_MASK, BatchHeader
from rotunda.shm.layout import RESPONSE_ENVELOPE
from rotunda.shm.recorder_layout import MIXED_CODECS, NOT_REPORTED, THROTTLED_BY

if TYPE_CHECKING:
    from rotunda.broker.records.record_batch import RawHeader

#: Parts of an envelope from these fields to the end, which are copied whole.
_SUBJECT = RESPONSE_ENVELOPE.struct_from("partition_row")
_TAIL = RESPONSE_ENVELOPE.struct_from("api_key")

_MUTATION = 1 + THROTTLED_BY.index("controller_mutation_rate")

_ATTRIBUTES = BatchHeader._fields.index("attributes")
_RECORD_COUNT = BatchHeader._fields.index("record_count")

#: Facts of the records of a request: (how many, their bytes as batches, codec); -1 is unknown.
Records = tuple[int, int, int]
NO_RECORDS: Records = (-1, -1, -1)

#: Largest recorded count of records: parts of one request may claim more than the field can hold.
MOST_COUNTED = 2**31 - 1


def subject(
    partition_row: int = -1,
    partition_count: int = 0,
    *,
    min_bytes: int = -1,
    max_wait_ms: int = -1,
    acks: int = NOT_REPORTED,
    isolation_level: int = NOT_REPORTED,
) -> bytes:
    """Return a request's subject: the table row of its first partition, the number of partitions, its parameters."""
    return _SUBJECT.pack(partition_row, partition_count, min_bytes, max_wait_ms, acks, isolation_level, 0)


def tail(api_key: int, api_version: int, handler: int, about: bytes) -> bytes:
    """Return the end of the envelope of a response without error; ``about`` is a `subject`."""
    return _TAIL.pack(api_key, api_version, handler, 0, *_SUBJECT.unpack(about))


#: The subject of a request that names no partition.
NO_SUBJECT = subject()


def records_of(header: RawHeader, batch: memoryview) -> Records:
    """Return the facts of one batch of a Produce, by its header. HOT."""
    return header[_RECORD_COUNT], len(batch), header[_ATTRIBUTES] & CODEC_MASK


class RecordsCount:
    """The sum of the facts of a request's batches, by the claims of their headers."""

    __slots__ = ("_codecs", "_count", "_size_bytes")

    def __init__(self) -> None:
        self._count = self._size_bytes = 0
        self._codecs: set[int] = set()

    def add(self, header: RawHeader | None, size_bytes: int) -> None:
        """Add a client's data for a partition: a batch with its header, or incomplete data without one."""
        self._size_bytes += max(size_bytes, 0)
        if header is not None:
            self._count += max(header[_RECORD_COUNT], 0)
            self._codecs.add(header[_ATTRIBUTES] & CODEC_MASK)

    @property
    def records(self) -> Records:
        """The facts of all added batches."""
        codec = MIXED_CODECS if len(self._codecs) > 1 else next(iter(self._codecs), -1)
        return min(self._count, MOST_COUNTED), self._size_bytes, codec


_PARTITIONS = attrgetter("partitions")

#: Finds the row of a partition in the partition table by its topic's name, or by its id.
RowOf = Callable[[str | None, bytes | None, int], int]


def subject_of(request: Any, api_key: int, row_of: RowOf) -> bytes:
    """Return the subject of a decoded request, if it names partitions; ``row_of`` finds their table row."""
    declared = asked_partitions(api_key)
    if declared is None:
        return NO_SUBJECT
    # There may be ten thousand topics: no line of Python for each.
    topics = request.topics or ()
    count = sum(map(len, filter(None, map(_PARTITIONS, topics))))
    if not count:
        return NO_SUBJECT
    first_topic = next(filter(_PARTITIONS, topics))
    topic, first = getattr(first_topic, declared.topic), first_topic.partitions[0]
    partition = getattr(first, declared.partition) if declared.partition else first
    row = -1 if topic is None else row_of(topic, None, int(partition))
    isolation_level = int(request.isolation_level) if declared.has_isolation_level else NOT_REPORTED
    return subject(row, count, isolation_level=isolation_level)


class Changed(dict[str, Any]):
    """A response to a request that has created or deleted this number of ``partitions``."""

    def __init__(self, partitions: int, **fields: Any) -> None:
        """Store ``fields`` as those of the response."""
        super().__init__(fields)
        self.partitions = partitions


def about_of(about: bytes, response: Any) -> bytes:
    """Return the subject of a request after its response is known; ``about`` is the subject from the request itself."""
    return subject(-1, min(response.partitions, MOST_COUNTED)) if isinstance(response, Changed) else about


def first_error(response: Any, api_key: int) -> int:
    """Return the first error code in a response, outer ones before inner ones, or 0.

    MEMBER_ID_REQUIRED is none: it is the first step of each new member.
    """
    for path in error_paths(api_key):
        code = _first_error((response,), path)
        if code:
            return 0 if code == ErrorCode.MEMBER_ID_REQUIRED else code
    return 0


def _first_error(structures: Iterable[Any], path: Path) -> int:
    name, inner = path[0], path[1:]
    for structure in structures:
        found: Any = structure.get(name) if isinstance(structure, dict) else getattr(structure, name, None)
        if not found:
            continue
        code = _first_error(found, inner) if inner else int(found)
        if code:
            return code
    return 0


def throttle_of(response: Any) -> tuple[int, int]:
    """Return a response's throttle time in ms, and its quota: here only that of metadata changes."""
    throttle_ms = int(response.get("throttle_time_ms", 0)) if isinstance(response, dict) else 0
    return throttle_ms, _MUTATION if throttle_ms else 0
