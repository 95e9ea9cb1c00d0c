"""The codecs of record batches: reading every form that clients write, and writing such that every client reads it.

Pure; only for the few batches whose records the broker must look into or pack anew. Java's client reads LZ4 only in
independent blocks, and Java's own producers put snappy in chunks behind a header.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

from broker.errors import ApiError
from broker.protocol.records import CODECS

_CORRUPT_MESSAGE: Final = 2

#: Magic, version 1 with independent blocks and no checksums, blocks of 64 KiB, checksum of these two bytes.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_END: Final = bytes(4)
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_SIZE_MASK: Final = 0x7FFF_FFFF
_lz4_size = struct.Struct("<I")

#: Magic, version 1, compatible with version 1.
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_CHUNK_BYTES: Final = 32 * 1024
_snappy_size = struct.Struct(">i")


def decompress(codec: int, data: bytes) -> bytes:
    """Return the records behind the header of a batch as if it were not compressed. ApiError 2 if they cannot be."""
    if codec == 0:
        return data
    if codec >= len(CODECS):
        raise ApiError(_CORRUPT_MESSAGE, f"unknown compression codec {codec}")
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    try:
        return _DECOMPRESSORS[CODECS[codec]](data)
    except (cramjam.DecompressionError, struct.error) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"{CODECS[codec]}: {error}") from error


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Return `data` in the codec of this number, which must be a known one, at its own default level if None."""
    return _COMPRESSORS[CODECS[codec]](data, level)


def _compress_gzip(data: bytes, level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    return bytes(cramjam.gzip.compress(data, level=level))


def _compress_snappy(data: bytes, _level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    parts = [_SNAPPY_HEADER]
    for start in range(0, len(data), _SNAPPY_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_CHUNK_BYTES]))
        parts += [_snappy_size.pack(len(chunk)), chunk]
    return b"".join(parts)


def _decompress_snappy(data: bytes) -> bytes:
    """Raw snappy, or the chunks that Java's and other clients wrap around it."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    if not data.startswith(_SNAPPY_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    offset = len(_SNAPPY_HEADER)
    while offset < len(data):
        (length,) = _snappy_size.unpack_from(data, offset)
        offset += _snappy_size.size
        if length < 0:
            raise ApiError(_CORRUPT_MESSAGE, f"snappy chunk of {length} bytes")
        out += cramjam.snappy.decompress_raw(data[offset : offset + length])
        offset += length
    return bytes(out)


def _compress_lz4(data: bytes, level: int | None) -> bytes:
    """Return a frame of independent blocks, each taken from a frame of its own: the library makes dependent ones."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    parts: list[bytes | memoryview] = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        frame = memoryview(bytes(cramjam.lz4.compress(data[start : start + _LZ4_BLOCK_BYTES], level=level)))
        first = len(_LZ4_HEADER)
        (size,) = _lz4_size.unpack_from(frame, first)
        # The highest bit says that the block is not compressed; it stays.
        parts.append(frame[first : first + _lz4_size.size + (size & _LZ4_SIZE_MASK)])
    return b"".join([*parts, _LZ4_END])


def _compress_zstd(data: bytes, level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    return bytes(cramjam.zstd.compress(data, level=level))


def _decompress_with(name: str) -> Callable[[bytes], bytes]:
    def decompress_with(data: bytes) -> bytes:
        import cramjam  # noqa: PLC0415 - only compressed batches need it

        return bytes(getattr(cramjam, name).decompress(data))

    return decompress_with


_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": _decompress_with("gzip"),
    "snappy": _decompress_snappy,
    "lz4": _decompress_with("lz4"),
    "zstd": _decompress_with("zstd"),
}
_COMPRESSORS: Final[Mapping[str, Callable[[bytes, int | None], bytes]]] = {
    "none": lambda data, _: data,
    "gzip": _compress_gzip,
    "snappy": _compress_snappy,
    "lz4": _compress_lz4,
    "zstd": _compress_zstd,
}
