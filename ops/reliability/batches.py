"""Record batches, valid and lying, written apart from the broker's code that reads them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import cramjam
from crc32c import crc32c

NOW_SHIFT_MS = 2 * 3600 * 1000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)


def record(number: int, key: bytes | None, value: bytes | None, delta_ms: int = 0) -> bytes:
    """Return one record, the `number`th of its batch."""
    return sized(b"\0" + varint(delta_ms) + varint(number) + sized(key) + sized(value) + b"\0")


def records(values: Sequence[bytes], key: bytes | None = None) -> bytes:
    return b"".join(record(number, key, value) for number, value in enumerate(values))


def batch(payload: bytes, count: int, timestamp_ms: int, **lies: int) -> bytes:
    """Return a batch with a right checksum around any payload.

    `lies` may name attributes (the codec is in them), last_offset_delta, max_timestamp_ms, producer_id, producer_epoch,
    base_sequence; the payload is compressed by the caller.
    """
    tail = struct.pack(
        ">hiqqqhii",
        lies.get("attributes", 0),
        lies.get("last_offset_delta", count - 1),
        timestamp_ms,
        lies.get("max_timestamp_ms", timestamp_ms),
        lies.get("producer_id", -1),
        lies.get("producer_epoch", -1),
        lies.get("base_sequence", -1),
        count,
    )
    tail += payload
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def compressed(payload: bytes, codec: int) -> bytes:
    if codec == LZ4:
        packer = cramjam.lz4.Compressor(level=1, block_linked=False)
        packer.compress(payload)
        return bytes(packer.finish())
    packers = {0: bytes, GZIP: cramjam.gzip.compress, SNAPPY: cramjam.snappy.compress_raw, ZSTD: cramjam.zstd.compress}
    return bytes(packers[codec](payload))


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def sized(data: bytes | None) -> bytes:
    """Return bytes with their length as prefix; -1 for None."""
    return varint(-1) if data is None else varint(len(data)) + data
