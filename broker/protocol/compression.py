"""The codecs of record batches: reading every form that clients write, and writing such that every client reads it.

Pure; only for the few batches whose records the broker must look into or pack anew. A few bytes may stand for
gigabytes, so every caller names the most bytes that it has a use for, and nothing beyond them is ever set aside: a
batch is unpacked into room for a prefix of its records, and into four times as much as long as that was too little.
Java's client reads LZ4 only in independent blocks, and Java's own producers put snappy in chunks behind a header.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.errors import ApiError
from broker.protocol.primitives import Buffer
from broker.protocol.records import CODECS

_CORRUPT_MESSAGE: Final = 2
_MESSAGE_TOO_LARGE: Final = 10

#: Room for the first prefix: for most batches enough to hold all of their records.
_LEAST_ROOM_BYTES: Final = 16 * 1024
_USUAL_RATIO: Final = 4
_GROWTH: Final = 4
#: What the library raises when its output is full; what it has unpacked until then stands there.
_NO_ROOM: Final = "failed to write whole buffer"

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
#: Three bytes stand for 64 at most.
_SNAPPY_EXPANSION: Final = 22
_snappy_size = struct.Struct(">i")


#: Members of gzip, or short chunks of snappy, in one batch. Clients write one member, and chunks of 32 KiB or more.
#: Each takes time, even if nothing is in it.
MOST_PIECES: Final = 4096
_SHORT_CHUNK_BYTES: Final = 1024
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_SMALLEST_GZIP_BYTES: Final = 18


class Prefix(NamedTuple):
    """The first bytes of a batch's records, uncompressed; all of them if it `is_whole`."""

    data: bytes
    is_whole: bool


_Prefixes: TypeAlias = Callable[[Buffer, int], Iterator[Prefix]]
"""(compressed bytes, the most that they may become) -> prefixes, each longer than the one before."""


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Return the records behind the header of a batch as if it were not compressed.

    ApiError 2 if they cannot be read, 10 if they are compressed and take more than `max_bytes`.
    """
    return deque(prefixes(codec, data, max_bytes), maxlen=1).pop().data


def prefixes(codec: int, data: Buffer, max_bytes: int) -> Iterator[Prefix]:
    """Yield ever more of the records behind the header of a batch, the last time all of them.

    For callers that may have found what they look for before the end. Raises as `decompress`; if the records take more
    than `max_bytes`, then behind a prefix that is not much shorter, but for snappy without chunks.
    """
    if codec == 0:
        yield Prefix(bytes(data), True)
        return
    if codec >= len(CODECS):
        raise ApiError(_CORRUPT_MESSAGE, f"unknown compression codec {codec}")
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    try:
        yield from _PREFIXES[CODECS[codec]](data, max_bytes)
    except (cramjam.DecompressionError, struct.error) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"{CODECS[codec]}: {error}") from error


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(_MESSAGE_TOO_LARGE, f"records of more than {max_bytes} bytes uncompressed")


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


def _snappy_prefixes(data: Buffer, max_bytes: int) -> Iterator[Prefix]:
    """Unpack raw snappy, or the chunks that Java's and other clients wrap around it; each says how long it is."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    snappy = cramjam.snappy
    out = bytearray()
    shown_from = _LEAST_ROOM_BYTES
    short = 0
    for chunk in _snappy_chunks(data):
        size_bytes = snappy.decompress_raw_len(chunk)
        if size_bytes > _SNAPPY_EXPANSION * len(chunk):
            raise ApiError(_CORRUPT_MESSAGE, f"snappy: {size_bytes} bytes from {len(chunk)}")
        if size_bytes > max_bytes - len(out):
            yield Prefix(bytes(out), False)
            raise _too_large(max_bytes)
        out += memoryview(snappy.decompress_raw(chunk))
        short += size_bytes < _SHORT_CHUNK_BYTES
        if short > MOST_PIECES:
            raise ApiError(_CORRUPT_MESSAGE, f"snappy: more than {MOST_PIECES} chunks of less than a kilobyte")
        if len(out) >= shown_from:
            yield Prefix(bytes(out), False)
            shown_from = _GROWTH * len(out)
    yield Prefix(bytes(out), True)


def _snappy_chunks(data: Buffer) -> Iterator[Buffer]:
    if data[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        yield data
        return
    offset = len(_SNAPPY_HEADER)
    while offset < len(data):
        (length,) = _snappy_size.unpack_from(data, offset)
        offset += _snappy_size.size
        if not 0 < length <= len(data) - offset:
            raise ApiError(_CORRUPT_MESSAGE, f"snappy chunk of {length} bytes where {len(data) - offset} are left")
        yield data[offset : offset + length]
        offset += length


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


def _prefixes_with(name: str) -> _Prefixes:
    def prefixes_with(data: Buffer, max_bytes: int) -> Iterator[Prefix]:
        import cramjam  # noqa: PLC0415 - only compressed batches need it

        room_bytes = min(max(_LEAST_ROOM_BYTES, _USUAL_RATIO * len(data)), max_bytes)
        while True:
            room = bytearray(room_bytes)
            try:
                size_bytes = getattr(cramjam, name).decompress_into(data, room)
            except cramjam.DecompressionError as error:
                if str(error) != _NO_ROOM:
                    raise
            else:
                yield Prefix(bytes(memoryview(room)[:size_bytes]), True)
                return
            yield Prefix(bytes(room), False)
            if room_bytes == max_bytes:
                raise _too_large(max_bytes)
            room_bytes = min(_GROWTH * room_bytes, max_bytes)

    return prefixes_with


def _gzip_prefixes(data: Buffer, max_bytes: int) -> Iterator[Prefix]:
    is_long = len(data) > MOST_PIECES * _SMALLEST_GZIP_BYTES
    # Where it stands by chance, it does so once in sixteen million bytes.
    if is_long and bytes(data).count(_GZIP_MEMBER) > MOST_PIECES:
        raise ApiError(_CORRUPT_MESSAGE, f"gzip: more than {MOST_PIECES} members")
    yield from _unpacked_gzip(data, max_bytes)


_unpacked_gzip: Final = _prefixes_with("gzip")
_PREFIXES: Final[Mapping[str, _Prefixes]] = {
    "gzip": _gzip_prefixes,
    "snappy": _snappy_prefixes,
    "lz4": _prefixes_with("lz4"),
    "zstd": _prefixes_with("zstd"),
}
_COMPRESSORS: Final[Mapping[str, Callable[[bytes, int | None], bytes]]] = {
    "none": lambda data, _: data,
    "gzip": _compress_gzip,
    "snappy": _compress_snappy,
    "lz4": _compress_lz4,
    "zstd": _compress_zstd,
}
