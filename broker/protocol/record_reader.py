"""The records inside a batch: the slow way, for the few answers that cannot be read off batch headers.

Handlers use it for one batch at a time, to find the record at a timestamp; never on the way of Produce or
Fetch.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker.errors import ApiError
from broker.protocol.primitives import Buffer
from broker.protocol.records import BATCH_HEADER_BYTES, CODECS, BatchHeader, read_header

_CORRUPT_MESSAGE: Final = 2
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_VARLONG_MAX_BITS: Final = 63
_unpack_int32 = struct.Struct(">i").unpack_from


class Record(NamedTuple):
    """One record. `headers` are pairs of key and value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def iterate_records(batch: Buffer) -> Iterator[Record]:
    """Yield the records of one whole batch in order. ApiError 2 when they cannot be read."""
    header = read_header(batch)
    if header is None or header.size_bytes > len(batch):
        raise ApiError(_CORRUPT_MESSAGE, "batch is cut off")
    try:
        data = _decompress(header.codec, bytes(batch[BATCH_HEADER_BYTES : header.size_bytes]))
        offset = 0
        for _ in range(header.record_count):
            length, offset = _read_varlong(data, offset)
            stop = offset + length
            if length < 0 or stop > len(data):
                left = len(data) - offset
                raise ApiError(_CORRUPT_MESSAGE, f"record of {length} bytes where {left} are left")
            yield _read_record(header, data, offset)
            offset = stop
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"malformed record: {error}") from error


def _read_record(header: BatchHeader, data: bytes, offset: int) -> Record:
    offset += 1  # the record's attributes, of which none is defined
    timestamp_delta, offset = _read_varlong(data, offset)
    offset_delta, offset = _read_varlong(data, offset)
    key, offset = _read_bytes(data, offset)
    value, offset = _read_bytes(data, offset)
    count, offset = _read_varlong(data, offset)
    headers = []
    for _ in range(count):
        header_key, offset = _read_bytes(data, offset)
        header_value, offset = _read_bytes(data, offset)
        headers.append(((header_key or b"").decode(), header_value))
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _read_varlong(data: bytes, offset: int) -> tuple[int, int]:
    """Return a signed integer, zigzag coded in bytes of 7 bits."""
    raw = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), offset
        shift += 7
        if shift > _VARLONG_MAX_BITS:
            raise ApiError(_CORRUPT_MESSAGE, "varint longer than 10 bytes")


def _read_bytes(data: bytes, offset: int) -> tuple[bytes | None, int]:
    length, offset = _read_varlong(data, offset)
    if length < 0:
        return None, offset
    stop = offset + length
    if stop > len(data):
        raise ApiError(_CORRUPT_MESSAGE, f"field of {length} bytes where {len(data) - offset} are left")
    return data[offset:stop], stop


def _decompress(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    decompressors: Mapping[str, Callable[[bytes], Any]] = {
        "gzip": cramjam.gzip.decompress,
        "snappy": _decompress_snappy,
        "lz4": cramjam.lz4.decompress,
        "zstd": cramjam.zstd.decompress,
    }
    if codec >= len(CODECS):
        raise ApiError(_CORRUPT_MESSAGE, f"unknown compression codec {codec}")
    try:
        return bytes(decompressors[CODECS[codec]](data))
    except cramjam.DecompressionError as error:
        raise ApiError(_CORRUPT_MESSAGE, f"{CODECS[codec]}: {error}") from error


def _decompress_snappy(data: bytes) -> bytes:
    """Raw snappy, or the chunks that Java's and other clients wrap around it."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    offset = _XERIAL_HEADER_BYTES
    while offset < len(data):
        (length,) = _unpack_int32(data, offset)
        offset += 4
        if length < 0:
            raise ApiError(_CORRUPT_MESSAGE, f"snappy chunk of {length} bytes")
        out += cramjam.snappy.decompress_raw(data[offset : offset + length])
        offset += length
    return bytes(out)
