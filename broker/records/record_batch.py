"""The record batch, magic 2: its header, its checks, and the fields that a broker writes into it. HOT.

Handlers validate every produced batch here, the log walks its files with it. Nothing looks inside the batch: the
records after the header are opaque, compressed or not. The CRC-32C covers everything from the attributes on, so the
base offset and the leader epoch can be set without touching it.

    bytes   field               who sets it      bytes   field               who sets it
     0- 7   base offset         broker           27-34   base timestamp      producer
     8-11   batch length        producer         35-42   max timestamp       producer, or broker
    12-15   leader epoch        broker           43-50   producer id         producer
       16   magic               producer         51-52   producer epoch      producer
    17-20   CRC of 21 onward    producer         53-56   base sequence       producer
    21-22   attributes          producer         57-60   record count        producer
    23-26   last offset delta   producer         61-     records             producer

The batch length counts the bytes from 12 on.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.crc import crc32c

BATCH_HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length: the bytes not counted by the batch length."""
CRC_START: Final = 21
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1
"""Timestamp of a record without one."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Compression codecs by their number in the attributes."""

SMALLEST_RECORD_BYTES: Final = 7
"""Size of a record without key, value and headers: length, attributes, two deltas, three lengths, a byte each."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

_HEADER: Final = struct.Struct(
    ">"
    "q"  # base_offset
    "i"  # batch_length
    "i"  # leader_epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last_offset_delta
    "q"  # base_timestamp
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # record_count
)
_NO_LEADER_EPOCH: Final = -1
_NO_CRC: Final = 0
_LENGTH_OFFSET: Final = 8
_MAGIC_OFFSET: Final = 16
_ATTRIBUTES_OFFSET: Final = 21
_MAX_TIMESTAMP_OFFSET: Final = 35
_unpack_header = _HEADER.unpack_from
_unpack_length = struct.Struct(">8xi").unpack_from
_pack_int64_into = struct.Struct(">q").pack_into
_pack_int32_into = struct.Struct(">i").pack_into
_pack_int16_into = struct.Struct(">h").pack_into
_pack_crc_into = struct.Struct(">I").pack_into

_NONE: Final = 0
_CORRUPT_MESSAGE: Final = 2
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
_UNSUPPORTED_COMPRESSION_TYPE: Final = 76
_INVALID_RECORD: Final = 87
_LZ4: Final = 3
_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_OFFSET: Final = BATCH_HEADER_BYTES + len(_LZ4_FRAME)
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_ZSTD: Final = 4
_ZSTD_FROM_PRODUCE: Final = 7
#: By codec, the maximum expansion of a byte; unknown codecs are rejected before.
_MOST_EXPANSION: Final = (1, 1032, 22, 255, 32768, 0, 0, 0)
_LEAST_BATCH_LENGTH: Final = 14  # Kafka's least batch length of any magic


class BatchHeader(NamedTuple):
    """The header's fields in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Number of the compression codec; an index into `CODECS` if it is a known one."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


RawHeader: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The tuple that `_HEADER` unpacks; `BatchHeader` is the same with names, at twice the cost."""

_make_header = BatchHeader._make


def unpack_header(batch: Buffer, offset: int = 0) -> RawHeader:
    """Return the header at `offset`, followed by at least BATCH_HEADER_BYTES, not validated."""
    header: RawHeader = _unpack_header(batch, offset)
    return header


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader | None:
    """Return the header at `offset`, not validated; None when fewer bytes than a header are there."""
    if len(buffer) - offset < BATCH_HEADER_BYTES:
        return None
    return _make_header(_unpack_header(buffer, offset))


def validate(batch: Buffer, header: RawHeader | None, produce_version: int) -> int:
    """Return 0 or the error code for one partition's records in a Produce request (`C14`).

    `batch` has all the client's bytes for the partition and `header` is its `read_header`. Exactly one whole batch of
    magic 2 with its first offset 0, an intact checksum and counts that agree is accepted, unless the bytes after its
    header cannot hold as many records as it claims; record contents, size limits and the age of timestamps are
    validated by the topic. A batch of a transaction is rejected, as in a request without transactional id; in one with
    such an id it is validated without that bit.
    """
    if header is None:
        return _validate_fragment(batch)
    (
        base_offset,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        _,
        producer_id,
        _,
        base_sequence,
        record_count,
    ) = header
    size = batch_length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or size != len(batch) or base_offset != 0:
        return _validate_shape(_make_header(header), len(batch))
    if crc32c(batch[CRC_START:]) != crc:
        return _CORRUPT_MESSAGE
    if attributes:
        error = _validate_attributes(batch, attributes, produce_version)
        if error:
            return error
    if (
        record_count <= 0
        or last_offset_delta + 1 != record_count
        or (producer_id >= 0 and base_sequence < 0)
        or record_count * SMALLEST_RECORD_BYTES > (size - BATCH_HEADER_BYTES) * _MOST_EXPANSION[attributes & CODEC_MASK]
    ):
        return _INVALID_RECORD
    return _NONE


def _validate_fragment(batch: Buffer) -> int:
    """Return the error code for records too short for a header: none at all, or a torn batch."""
    if len(batch) <= _MAGIC_OFFSET:
        return _INVALID_RECORD
    (length,) = _unpack_length(batch)
    return _CORRUPT_MESSAGE if length < _LEAST_BATCH_LENGTH else _INVALID_RECORD


def _validate_shape(header: BatchHeader, size_bytes: int) -> int:
    """Return why a batch has the wrong magic, does not fill its place exactly, or starts above offset 0."""
    if not 0 <= header.magic <= MAGIC or header.batch_length < _LEAST_BATCH_LENGTH:
        return _CORRUPT_MESSAGE
    if header.magic == MAGIC and header.size_bytes < BATCH_HEADER_BYTES <= size_bytes:
        return _CORRUPT_MESSAGE
    return _INVALID_RECORD


def _validate_attributes(batch: Buffer, attributes: int, produce_version: int) -> int:
    codec = attributes & CODEC_MASK
    if codec >= len(CODECS) or (codec == _ZSTD and produce_version < _ZSTD_FROM_PRODUCE):
        return _UNSUPPORTED_COMPRESSION_TYPE
    if attributes & CONTROL_BIT or (codec == _LZ4 and _has_dependent_blocks(batch)):
        return _INVALID_RECORD
    if attributes & TRANSACTIONAL_BIT:
        return _TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _NONE


def _has_dependent_blocks(batch: Buffer) -> bool:
    """Return whether LZ4's blocks depend on earlier ones. Kafka's clients cannot read such, and Kafka rejects them."""
    frame = bytes(batch[BATCH_HEADER_BYTES : _LZ4_FLAGS_OFFSET + 1])
    return frame[:-1] == _LZ4_FRAME and not frame[-1] & _LZ4_INDEPENDENT_BLOCKS


def crc_ok(batch: Buffer, header: BatchHeader) -> bool:
    """Return whether the checksum of one whole batch (and nothing after it) is right."""
    return bool(crc32c(batch[CRC_START:]) == header.crc)


def write_header(
    batch: bytearray, attributes: int, count: int, times_ms: tuple[int, int], producer: tuple[int, int, int]
) -> None:
    """Fill in the header of a batch that has its records already, compressed or not; its first offset is 0.

    `times_ms`: that of the first record and the latest; `producer`: its id, its epoch and the base sequence.
    """
    length = len(batch) - LOG_OVERHEAD_BYTES
    fields = attributes, count - 1, *times_ms, *producer, count
    _HEADER.pack_into(batch, 0, 0, length, _NO_LEADER_EPOCH, MAGIC, _NO_CRC, *fields)
    _write_crc(batch)


def _write_crc(batch: bytearray | memoryview) -> None:
    _pack_crc_into(batch, _MAGIC_OFFSET + 1, crc32c(memoryview(batch)[CRC_START:]))


def patch_base_offset(batch: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Set the base offset and leader epoch of the batch at `position`, in place; the checksum stays right."""
    _pack_int64_into(batch, position, base_offset)
    _pack_int32_into(batch, position + LOG_OVERHEAD_BYTES, leader_epoch)


def patch_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Make `timestamp_ms` the time of every record of one whole batch, in place, and update its checksum.

    Readers of a batch with the attribute bit set use its maximum timestamp for each of its records.
    """
    attributes = int.from_bytes(batch[_ATTRIBUTES_OFFSET : _ATTRIBUTES_OFFSET + 2], "big", signed=True)
    patch_header(batch, attributes | LOG_APPEND_TIME_BIT, timestamp_ms)


def patch_header(batch: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Set attributes and maximum timestamp of one whole batch, in place, and update length and checksum."""
    _pack_int32_into(batch, _LENGTH_OFFSET, len(batch) - LOG_OVERHEAD_BYTES)
    _pack_int16_into(batch, _ATTRIBUTES_OFFSET, attributes)
    _pack_int64_into(batch, _MAX_TIMESTAMP_OFFSET, max_timestamp)
    _write_crc(batch)


def batch_headers(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the whole batches in [start, end), whatever their checksums.

    Stops before a batch that is torn, of another magic, or too short to be one.
    """
    limit = len(buffer) if end is None else min(end, len(buffer))
    while limit - start >= BATCH_HEADER_BYTES:
        header = _make_header(_unpack_header(buffer, start))
        stop = start + header.batch_length + LOG_OVERHEAD_BYTES
        if header.magic != MAGIC or stop - start < BATCH_HEADER_BYTES or stop > limit:
            return
        yield start, header
        start = stop
