"""Record batches that this program writes: transaction markers, the records of internal topics, and our producer's.

Coordinators, the owner of a partition and our producer build them; another client's batch is never rebuilt here. Magic
2. The base offset is 0 and the leader epoch -1 until the log appends the batch.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, CONTROL_BIT, TRANSACTIONAL_BIT, write_header

_MARKER_KEY: Final = struct.Struct(
    ">h"  # version
    "h"  # type
)
_MARKER_VALUE: Final = struct.Struct(
    ">h"  # version
    "i"  # coordinator epoch
)
_MARKER_KEY_AND_VALUE: Final = struct.Struct(
    ">2x"  # version of the key
    "h"  # type
    "3x"  # length and version of the value
    "i"  # coordinator epoch
)
_MARKER_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1

#: The bytes after a record's length: no attributes, no difference to the batch's time. And the bytes at its end.
ATTRIBUTES: Final = b"\x00"
RECORD_START: Final = ATTRIBUTES + b"\x00"
NO_HEADERS: Final = b"\x00"
#: The length of a key or a value that is null.
NULL: Final = b"\x01"

#: In a marker's batch: record length, attributes, timestamp delta, offset delta, key length and value length have a
#: byte each at least.
_SMALLEST_MARKER_BYTES: Final = BATCH_HEADER_BYTES + 6 + _MARKER_KEY.size + _MARKER_VALUE.size

#: The bytes before a marker's key where each of these has one byte, as it does unless compaction has seen the batch.
_MARKER_START: Final = b"\x20\x00\x00\x00\x08"
_MARKER_KEY_AT: Final = BATCH_HEADER_BYTES + len(_MARKER_START)


#: Names and values of a record's headers.
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class EndTransactionMarker(NamedTuple):
    """The content of a control batch: how the transaction ended, and the epoch of the coordinator that ended it."""

    commit: bool
    coordinator_epoch: int


class BatchBuilder:
    """A growing batch of (key, value): records are encoded as they are added, and all of them get the same time."""

    __slots__ = ("_pieces", "count", "size_bytes")

    def __init__(self, records: Iterable[tuple[bytes | None, bytes | None]] = ()) -> None:
        self._pieces = [bytes(BATCH_HEADER_BYTES)]
        self.count = 0
        #: Of the records.
        self.size_bytes = 0
        for key, value in records:
            self.add(key, value)

    def add(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        self.add_encoded(encode_record(self.count, key, value, headers_bytes(headers)), 1)

    def add_encoded(self, records: bytes, count: int) -> None:
        """Add encoded records: the first has the offset delta ``self.count``."""
        self._pieces.append(records)
        self.count += count
        self.size_bytes += len(records)

    def build(
        self,
        timestamp_ms: int,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytearray:
        """Return the batch. There must be at least one record."""
        batch = bytearray(b"".join(self._pieces))
        attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
        write_header(
            batch, attributes, self.count, (timestamp_ms, timestamp_ms), (producer_id, producer_epoch, base_sequence)
        )
        return batch


def encode_record(
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes = NO_HEADERS,
    timestamp_delta_ms: int = 0,
) -> bytes:
    """Return a record with its length; ``headers``: the result of `headers_bytes`. HOT."""
    rest = b"".join(
        (
            ATTRIBUTES, varint_bytes(timestamp_delta_ms), varint_bytes(offset_delta),
            NULL if key is None else varint_bytes(len(key)) + key,
            NULL if value is None else varint_bytes(len(value)) + value,
            headers,
        )
    )  # fmt: skip
    return varint_bytes(len(rest)) + rest


def headers_bytes(headers: Headers) -> bytes:
    """Return the headers of a record encoded. TypeError for a value of another type."""
    if not headers:
        return NO_HEADERS
    pieces = [varint_bytes(len(headers))]
    for name, value in headers:
        key = name.encode()
        pieces += (varint_bytes(len(key)), key)
        if value is None:
            pieces.append(NULL)
        elif isinstance(value, (bytes, bytearray)):
            pieces += (varint_bytes(len(value)), value)
        else:
            raise TypeError(f"the value of the header {name!r} is of type {type(value).__name__}")
    return b"".join(pieces)


def end_transaction_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool, timestamp_ms: int
) -> bytearray:
    """Return the control batch that ends a producer's transaction in one partition (KIP-98)."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, _COMMIT if commit else _ABORT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    return BatchBuilder([(key, value)]).build(
        timestamp_ms, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the content of a whole control batch; None if it ends no transaction.

    It may be a control record of another kind, or a batch emptied by compaction.
    """
    if len(batch) < _SMALLEST_MARKER_BYTES:
        return None
    if batch[BATCH_HEADER_BYTES:_MARKER_KEY_AT] == _MARKER_START:
        kind, coordinator_epoch = _MARKER_KEY_AND_VALUE.unpack_from(batch, _MARKER_KEY_AT)
        return EndTransactionMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
    try:
        # Record length, attributes; how long the timestamp delta is depends on whether compaction has seen the batch.
        at = _after_varint(batch, BATCH_HEADER_BYTES) + 1
        key_at = _after_varint(batch, _after_varint(batch, _after_varint(batch, at)))
        _, kind = _MARKER_KEY.unpack_from(batch, key_at)
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(batch, _after_varint(batch, key_at + _MARKER_KEY.size))
    except (IndexError, struct.error):
        return None  # not the coordinator's
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None


def _after_varint(batch: Buffer, at: int) -> int:
    while batch[at] & 0x80:
        at += 1
    return at + 1


def varint_bytes(value: int) -> bytes:
    """Return a signed integer, zigzag coded in bytes of 7 bits."""
    if 0 <= value < len(VARINTS):
        return VARINTS[value]
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


#: Of the numbers from 0 on, with one byte and with two.
VARINTS: Final = (
    *[bytes((2 * value,)) for value in range(64)],
    *[bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(64, 2048)],
)
