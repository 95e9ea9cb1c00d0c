"""The codecs: other implementations read our output, and we read theirs."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import cramjam
import pytest

from rotunda.broker.errors import ApiError
from rotunda.broker.records.compression import MOST_PIECES, compress, decompress, prefixes
from tests.support.feeds import random_seed

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MOST = 1 << 20


def samples() -> list[bytes]:
    numbers = random.Random(random_seed())
    return [b"", b"a", b"abc" * 70_000, numbers.randbytes(200_000), numbers.randbytes(70_000) + bytes(70_000)]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("level", [None, 1, 9])
def test_there_and_back(codec: int, level: int | None) -> None:
    for data in samples():
        assert decompress(codec, compress(codec, data, level), MOST) == data


def test_other_peoples_forms_are_read() -> None:
    for data in samples():
        assert decompress(GZIP, bytes(cramjam.gzip.compress(data)), MOST) == data
        assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MOST) == data
        assert decompress(LZ4, bytes(cramjam.lz4.compress(data)), MOST) == data
        assert decompress(ZSTD, bytes(cramjam.zstd.compress(data)), MOST) == data


def test_lz4_frames_are_such_as_java_reads() -> None:
    """Java's client requires version 1 and independent blocks, and rejects data beyond a block's declared size."""
    frame = compress(LZ4, b"abc" * 70_000)
    assert frame[:7] == bytes.fromhex("04224d18604082")
    at, blocks = 7, 0
    while (size := int.from_bytes(frame[at : at + 4], "little") & 0x7FFF_FFFF) != 0:
        block = frame[at + 4 : at + 4 + size]
        assert len(bytes(cramjam.lz4.decompress_block(block, output_len=1 << 16))) <= 1 << 16
        at += 4 + size
        blocks += 1
    assert (at + 4, blocks) == (len(frame), 4)
    assert bytes(cramjam.lz4.decompress(frame)) == b"abc" * 70_000


def test_a_higher_level_needs_fewer_bytes() -> None:
    numbers = random.Random(3)
    words = [bytes(numbers.choices(b"abcdefgh", k=numbers.randrange(2, 9))) for _ in range(400)]
    data = b" ".join(numbers.choices(words, k=20_000))
    for codec in (GZIP, LZ4, ZSTD):
        assert len(compress(codec, data, 9)) < len(compress(codec, data, 1))


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_unreadable_bytes_are_corrupt(codec: int) -> None:
    for data in (b"nonsense" * 5, b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\0\0\1"):
        with pytest.raises(ApiError) as raised:
            decompress(codec, data, MOST)
        assert raised.value.code == 2


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_no_memory_is_allocated_beyond_the_maximum(codec: int) -> None:
    """A few bytes may expand to very many; the caller passes the number of useful bytes."""
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as raised:
            decompress(codec, bomb, MOST)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert raised.value.code == 10
    assert "more than 1048576 bytes" in str(raised.value)
    assert peak_bytes < 4 * MOST


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", [1, 16 * 1024, 16 * 1024 + 1, 300_000])
def test_as_much_as_is_asked_for_is_not_too_much(codec: int, size: int) -> None:
    data = bytes(size)
    assert decompress(codec, compress(codec, data), size) == data
    if size > 1:
        with pytest.raises(ApiError) as raised:
            decompress(codec, compress(codec, data), size - 1)
        assert raised.value.code == 10


@pytest.mark.parametrize("codec", range(5))
def test_ever_more_of_the_records_until_all_of_them(codec: int) -> None:
    data = bytes(900_000)
    shown = list(prefixes(codec, compress(codec, data), MOST))
    assert [is_whole for _, is_whole in shown] == [False] * (len(shown) - 1) + [True]
    assert shown[-1].data == data
    for before, after in pairwise(shown):
        assert after.data.startswith(before.data)
        assert len(before.data) < len(after.data)


def test_raw_snappy_that_claims_more_than_it_can_hold_is_corrupt() -> None:
    for data in (b"\xff\xff\xff\xff\x0f\0a", b"\xff\xff\xff\x7f" + bytes(50)):
        with pytest.raises(ApiError) as raised:
            decompress(SNAPPY, data, 1 << 40)
        assert raised.value.code == 2


def test_lz4_and_zstd_are_not_believed_their_sizes() -> None:
    """Both headers may declare a size: here far above or below the real one."""
    zstd = bytearray(compress(ZSTD, bytes(1000)))
    assert zstd[4] == 0x60, "two bytes of content size"
    zstd[5:7] = b"\xff\xff"
    lz4 = bytes.fromhex("04224d1868400300000000000000870300008061626300000000")
    with pytest.raises(ApiError):
        decompress(ZSTD, zstd, MOST)
    for size in (1, 1 << 40, (1 << 64) - 1):
        lying = lz4[:6] + size.to_bytes(8, "little") + lz4[14:]
        with pytest.raises(ApiError):
            decompress(LZ4, lying, MOST)
    assert decompress(LZ4, lz4, MOST) == b"abc"


def gzip_members(count: int) -> bytes:
    return bytes(cramjam.gzip.compress(b"")) * (count - 1) + bytes(cramjam.gzip.compress(b"records"))


def snappy_chunks(count: int) -> bytes:
    chunk = bytes(cramjam.snappy.compress_raw(b"a"))
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return head + (struct.pack(">i", len(chunk)) + chunk) * count


@pytest.mark.parametrize(
    ("codec", "pieces", "whole"), [(GZIP, gzip_members, b"records"), (SNAPPY, snappy_chunks, None)]
)
def test_a_batch_in_very_many_pieces_of_nothing_is_rejected(
    codec: int, pieces: Callable[[int], bytes], whole: bytes | None
) -> None:
    assert decompress(codec, pieces(MOST_PIECES), 1 << 20) == (whole or b"a" * MOST_PIECES)
    with pytest.raises(ApiError, match=f"more than {MOST_PIECES}") as rejected:
        decompress(codec, pieces(MOST_PIECES + 1), 1 << 20)
    assert rejected.value.code == 2


def test_chunks_of_usual_size_may_be_many() -> None:
    chunk = bytes(cramjam.snappy.compress_raw(bytes(1024)))
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    data = head + (struct.pack(">i", len(chunk)) + chunk) * (MOST_PIECES + 1)
    assert decompress(2, data, 1 << 30) == bytes(1024 * (MOST_PIECES + 1))
