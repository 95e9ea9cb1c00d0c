"""The codecs of record batches: reading every format that clients write, and writing one that every client reads.

Pure; only for the few batches that the broker must decompress or compress again. A few bytes may expand to gigabytes,
so every caller passes the maximum size, and no memory beyond it is ever allocated: a batch is decompressed in chunks,
or, where the library cannot do that, into a buffer for a prefix of its records, which grows fourfold until it is large
enough. Both directions run in steps, between which other tasks can run. Java's client reads LZ4 only in independent
blocks, and Java's own producers write snappy in chunks after a header.
"""

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.record_batch import CODECS
from rotunda.broker.steps import Steps, beside, finished

_CORRUPT_MESSAGE: Final = 2
_MESSAGE_TOO_LARGE: Final = 10

#: Size of the first buffer: for most batches enough for all of their records.
_LEAST_ROOM_BYTES: Final = 16 * 1024
_USUAL_RATIO: Final = 4
#: A buffer that needs 10 ms or more to fill, and as long to allocate: a thread does that.
_LARGE_ROOM_BYTES: Final = 8 * 1024 * 1024
_GROWTH: Final = 4
#: The library's error when its output is full; the output then has the data decompressed so far.
_NO_ROOM: Final = "failed to write whole buffer"

#: Magic, version 1 with independent blocks and no checksums, blocks of 64 KiB, checksum of these two bytes.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_END: Final = bytes(4)
_LZ4_SIZE_MASK: Final = 0x7FFF_FFFF
_lz4_size = struct.Struct("<I")

#: Magic, version 1, compatible with version 1.
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_CHUNK_BYTES: Final = 32 * 1024
#: Three bytes expand to 64 at most.
_SNAPPY_EXPANSION: Final = 22
_snappy_size = struct.Struct(">i")


#: Members of gzip, or short chunks of snappy, in one batch. Clients write one member, and chunks of 32 KiB or more.
#: Each costs time, even if it is empty.
MOST_PIECES: Final = 4096
_SHORT_CHUNK_BYTES: Final = 1024
#: Window bits of zlib that mean gzip's form.
_GZIP_WBITS: Final = 31
#: Input passed to zlib at a time: it copies the input for which it had no room in the output.
_GZIP_INPUT_BYTES: Final = 16 * 1024

#: Bytes decompressed or compressed between two steps: a millisecond or two for gzip, much less for the others. LZ4's
#: blocks have this size.
PIECE_BYTES: Final = 64 * 1024
#: The fixed cost of a chunk, in bytes to be decompressed.
_PIECE_COST_BYTES: Final = 1024
#: Number of chunks that are compressed before the output is fetched.
_ZSTD_PIECES: Final = 16


_Part = TypeVar("_Part")


class Prefix(NamedTuple):
    """The first bytes of a batch's records, uncompressed; all of them if it `is_whole`."""

    data: bytes
    is_whole: bool


_Room: TypeAlias = bytearray | memoryview

_Unpack: TypeAlias = Callable[[Buffer, int], Iterator[Buffer]]
"""(compressed bytes, maximum uncompressed size) -> uncompressed pieces."""

_Pack: TypeAlias = Callable[[Buffer, int | None], Iterator[Buffer]]
"""(bytes, level) -> compressed pieces, each of `PIECE_BYTES` uncompressed bytes or fewer."""


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Return the records after the header of a batch, decompressed.

    ApiError 2 if they cannot be read, 10 if they are compressed and expand to more than `max_bytes`.
    """
    return bytes(data) if codec == 0 else bytes(finished(unpacked(codec, data, max_bytes)))


def unpacked(codec: int, data: Buffer, max_bytes: int) -> Steps[_Room]:
    """Return the result of `decompress`, in steps; in one, and no yield, if it is `PIECE_BYTES` at most."""
    name = _name_of(codec)
    if codec and name not in _UNPACKERS:
        return (yield from _whole(_contained(name, _rooms(name, data, max_bytes)), _USUAL_RATIO * len(data)))
    pieces = _contained(name, _UNPACKERS[name](data, max_bytes)) if codec else _cut(data)
    out = bytearray()
    done_bytes = 0
    for piece in pieces:
        if done_bytes >= PIECE_BYTES:
            yield
            done_bytes = 0
        out += piece
        done_bytes += len(piece) + _PIECE_COST_BYTES
    return out


def _whole(found: Iterator[tuple[_Room, bool]], room_bytes: int) -> Steps[_Room]:
    """Return the last buffer of the iterator; the first has `room_bytes`."""
    while True:
        if room_bytes < _LARGE_ROOM_BYTES:
            room, is_whole = next(found)
        else:
            room, is_whole = yield from beside(partial(next, found))
        if is_whole:
            return room
        yield
        room_bytes = _GROWTH * len(room)


def prefixes(codec: int, data: Buffer, max_bytes: int) -> Iterator[Prefix]:
    """Yield growing prefixes of the records after the header of a batch, the last time all of them.

    For callers that may stop before the end. Raises as `decompress`; records of more than `max_bytes` raise only after
    a prefix not much shorter than that, except for snappy without chunks.
    """
    if codec == 0:
        yield Prefix(bytes(data), True)
        return
    name = _name_of(codec)
    unpack = _UNPACKERS.get(name)
    rooms = _growing(unpack(data, max_bytes)) if unpack else _rooms(name, data, max_bytes)
    for room, is_whole in _contained(name, rooms):
        yield Prefix(bytes(room), is_whole)


def _contained(name: str, unpacking: Iterator[_Part]) -> Iterator[_Part]:
    """Yield the items of ``unpacking``; the libraries' exceptions for unreadable bytes become ApiError 2."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    try:
        yield from unpacking
    except (cramjam.DecompressionError, struct.error, zlib.error) as error:
        raise ApiError(_CORRUPT_MESSAGE, f"{name}: {error}") from error


def _cut(data: Buffer) -> Iterator[Buffer]:
    whole = memoryview(data)
    for start in range(0, len(whole), PIECE_BYTES):
        yield whole[start : start + PIECE_BYTES]


def _name_of(codec: int) -> str:
    """Return the name of a codec. ApiError if it is unknown."""
    if codec >= len(CODECS):
        raise ApiError(_CORRUPT_MESSAGE, f"unknown compression codec {codec}")
    return CODECS[codec]


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(_MESSAGE_TOO_LARGE, f"records of more than {max_bytes} bytes uncompressed")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed with the codec of this number, which must be known, at its default level if None."""
    out = bytearray()
    finished(pack(out, codec, data, level))
    return bytes(out)


def pack(out: bytearray, codec: int, data: Buffer, level: int | None = None) -> Steps[None]:
    """Append the result of `compress` to `out`, in steps; in one, and no yield, for `PIECE_BYTES` at most."""
    is_first = True
    for piece in _PACKERS[CODECS[codec]](data, level):
        if not is_first:
            yield
        is_first = False
        out += piece


def _pack_gzip(data: Buffer, level: int | None) -> Iterator[Buffer]:
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    for piece, is_last in _with_last(data):
        packed = packer.compress(piece)
        yield packed + packer.flush() if is_last else packed


def _pack_snappy(data: Buffer, _level: int | None) -> Iterator[Buffer]:
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    head = _SNAPPY_HEADER
    for piece, _ in _with_last(data):
        parts = [head]
        for start in range(0, len(piece), _SNAPPY_CHUNK_BYTES):
            chunk = bytes(cramjam.snappy.compress_raw(piece[start : start + _SNAPPY_CHUNK_BYTES]))
            parts += [_snappy_size.pack(len(chunk)), chunk]
        yield b"".join(parts)
        head = b""


def _with_last(data: Buffer) -> Iterator[tuple[Buffer, bool]]:
    """Yield the chunks of some bytes, at least one, each with whether it is the last."""
    whole = memoryview(data)
    last = max(0, (len(whole) - 1) // PIECE_BYTES)
    for number in range(last + 1):
        yield whole[number * PIECE_BYTES : (number + 1) * PIECE_BYTES], number == last


def _unpack_snappy(data: Buffer, max_bytes: int) -> Iterator[Buffer]:
    """Decompress raw snappy, or the chunks that Java's and other clients wrap around it; each has its length."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    snappy = cramjam.snappy
    short, left = 0, max_bytes
    for chunk in _snappy_chunks(data):
        size_bytes = snappy.decompress_raw_len(chunk)
        if size_bytes > _SNAPPY_EXPANSION * len(chunk):
            raise ApiError(_CORRUPT_MESSAGE, f"snappy: {size_bytes} bytes from {len(chunk)}")
        left -= size_bytes
        if left < 0:
            raise _too_large(max_bytes)
        yield memoryview(snappy.decompress_raw(chunk))
        short += size_bytes < _SHORT_CHUNK_BYTES
        if short > MOST_PIECES:
            raise ApiError(_CORRUPT_MESSAGE, f"snappy: more than {MOST_PIECES} chunks of less than a kilobyte")


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


def _unpack_gzip(data: Buffer, max_bytes: int) -> Iterator[Buffer]:
    """Unpack the members of gzip, which follow one another."""
    member = zlib.decompressobj(_GZIP_WBITS)
    members, left = 1, max_bytes
    for start in range(0, len(data), _GZIP_INPUT_BYTES):
        rest: Buffer = data[start : start + _GZIP_INPUT_BYTES]
        has_more = True
        while has_more:
            if member.eof:
                member = zlib.decompressobj(_GZIP_WBITS)
                members += 1
                if members > MOST_PIECES:
                    raise ApiError(_CORRUPT_MESSAGE, f"gzip: more than {MOST_PIECES} members")
            piece = member.decompress(rest, PIECE_BYTES)
            left -= len(piece)
            if left < 0:
                raise _too_large(max_bytes)
            yield piece
            rest = member.unused_data if member.eof else member.unconsumed_tail
            # After a full output buffer there may be more, although zlib has consumed all input.
            has_more = len(rest) > 0 or (len(piece) == PIECE_BYTES and not member.eof)
    if not member.eof:
        raise ApiError(_CORRUPT_MESSAGE, "gzip: cut off")


def _pack_lz4(data: Buffer, level: int | None) -> Iterator[Buffer]:
    """Yield a frame of independent blocks, each from a frame of its own: the library makes dependent ones."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    head, end = _LZ4_HEADER, b""
    for piece, is_last in _with_last(data):
        block: Buffer = b""
        if piece:
            frame = memoryview(bytes(cramjam.lz4.compress(piece, level=level)))
            first = len(_LZ4_HEADER)
            (size,) = _lz4_size.unpack_from(frame, first)
            # The highest bit marks an uncompressed block; it stays.
            block = frame[first : first + _lz4_size.size + (size & _LZ4_SIZE_MASK)]
        end = _LZ4_END if is_last else b""
        yield b"".join((head, block, end))
        head = b""


def _pack_zstd(data: Buffer, level: int | None) -> Iterator[Buffer]:
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    if len(data) <= PIECE_BYTES:
        # With its length in it, and without tables for more.
        yield bytes(cramjam.zstd.compress(data, level=level))
        return
    packer = cramjam.zstd.Compressor(level)
    for number, piece in enumerate(_cut(data), 1):
        packer.compress(bytes(piece))
        yield b"" if number % _ZSTD_PIECES else bytes(packer.flush())
    yield bytes(packer.finish())


def _room(size_bytes: int) -> _Room:
    """Return a zeroed buffer. A large one is mapped: only pages that are written use memory, and time of the writer."""
    return bytearray(size_bytes) if size_bytes < _LARGE_ROOM_BYTES else memoryview(mmap.mmap(-1, size_bytes))


def _rooms(name: str, data: Buffer, max_bytes: int) -> Iterator[tuple[_Room, bool]]:
    """Yield ever larger buffers for the uncompressed bytes, each with whether it has all of them."""
    import cramjam  # noqa: PLC0415 - only compressed batches need it

    room_bytes = min(max(_LEAST_ROOM_BYTES, _USUAL_RATIO * len(data)), max_bytes)
    while True:
        room = _room(room_bytes)
        try:
            size_bytes = getattr(cramjam, name).decompress_into(data, room)
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise
        else:
            if isinstance(room, memoryview):
                room = room[:size_bytes]
            else:
                del room[size_bytes:]
            yield room, True
            return
        yield room, False
        if room_bytes == max_bytes:
            raise _too_large(max_bytes)
        room_bytes = min(_GROWTH * room_bytes, max_bytes)


def _growing(pieces: Iterator[Buffer]) -> Iterator[tuple[_Room, bool]]:
    """Yield the pieces so far in one buffer, whenever it is fourfold; with whether it has all of them."""
    out = bytearray()
    shown_from = _LEAST_ROOM_BYTES
    try:
        for piece in pieces:
            out += piece
            if len(out) >= shown_from:
                yield out, False
                shown_from = _GROWTH * len(out)
    except ApiError as error:
        if error.code == _MESSAGE_TOO_LARGE:
            yield out, False
        raise
    yield out, True


#: Codecs that can be decompressed in chunks; the others use `_rooms`.
_UNPACKERS: Final[Mapping[str, _Unpack]] = {"gzip": _unpack_gzip, "snappy": _unpack_snappy}
_PACKERS: Final[Mapping[str, _Pack]] = {
    "none": lambda data, _: _cut(data),
    "gzip": _pack_gzip,
    "snappy": _pack_snappy,
    "lz4": _pack_lz4,
    "zstd": _pack_zstd,
}
