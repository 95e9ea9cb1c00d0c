"""The codecs: what is written here is read by everybody, and everybody's is read here."""

import random

import cramjam
import pytest

from broker.errors import ApiError
from broker.protocol.compression import compress, decompress
from tests.support.feeds import random_seed

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def samples() -> list[bytes]:
    numbers = random.Random(random_seed())
    return [b"", b"a", b"abc" * 70_000, numbers.randbytes(200_000), numbers.randbytes(70_000) + bytes(70_000)]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("level", [None, 1, 9])
def test_there_and_back(codec: int, level: int | None) -> None:
    for data in samples():
        assert decompress(codec, compress(codec, data, level)) == data


def test_other_peoples_forms_are_read() -> None:
    for data in samples():
        assert decompress(GZIP, bytes(cramjam.gzip.compress(data))) == data
        assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
        assert decompress(LZ4, bytes(cramjam.lz4.compress(data))) == data
        assert decompress(ZSTD, bytes(cramjam.zstd.compress(data))) == data


def test_lz4_frames_are_such_as_java_reads() -> None:
    """Java's client wants version 1 and independent blocks, and takes no more than a block's stated size."""
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


def test_a_higher_level_takes_less_room() -> None:
    numbers = random.Random(3)
    words = [bytes(numbers.choices(b"abcdefgh", k=numbers.randrange(2, 9))) for _ in range(400)]
    data = b" ".join(numbers.choices(words, k=20_000))
    for codec in (GZIP, LZ4, ZSTD):
        assert len(compress(codec, data, 9)) < len(compress(codec, data, 1))


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_what_cannot_be_read_is_corrupt(codec: int) -> None:
    for data in (b"nonsense" * 5, b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\0\0\1"):
        with pytest.raises(ApiError) as raised:
            decompress(codec, data)
        assert raised.value.code == 2
