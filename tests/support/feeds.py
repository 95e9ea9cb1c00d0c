"""The ways in which a byte stream can arrive: whole, byte by byte, cut at random, and followed by more."""

import random
from collections.abc import Iterator


def random_seed() -> int:
    """Return a fresh seed, to be printed with any failure."""
    return random.SystemRandom().randrange(2**32)


def feeds(data: bytes, seed: int, cuttings: int = 5) -> Iterator[tuple[str, list[bytes]]]:
    """Yield (name, chunks): each list of chunks is `data`, differently cut.

    The seed is in the names that need it.
    """
    yield "whole", [data]
    yield "byte by byte", [data[i : i + 1] for i in range(len(data))]
    generator = random.Random(seed)
    for number in range(cuttings):
        yield f"random cuts {number} of seed {seed}", random_cuts(data, generator)


def random_cuts(data: bytes, generator: random.Random) -> list[bytes]:
    """Return `data` in pieces of random sizes, some of them empty."""
    cuts = sorted(generator.randint(0, len(data)) for _ in range(generator.randint(1, 8)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def with_trailing_bytes(data: bytes, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes): `data` followed by things that are not part of it."""
    generator = random.Random(seed)
    yield "one zero byte behind", data + b"\x00"
    yield "itself behind", data + data
    yield f"random bytes of seed {seed} behind", data + generator.randbytes(generator.randint(1, 64))


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` damaged versions of `data`: bytes changed, cut out or put in, or the end cut off."""
    generator = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            position = generator.randrange(len(damaged) + 1)
            kind = generator.randrange(4)
            if kind == 0:
                damaged[position : position + 1] = bytes([generator.choice((0, 1, 0x7F, 0x80, 0xFF))])
            elif kind == 1:
                damaged[position : position + 4] = generator.randbytes(4)
            elif kind == 2:
                damaged[position:position] = generator.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"))
            else:
                del damaged[position : position + generator.randint(1, 8)]
        yield bytes(damaged)
