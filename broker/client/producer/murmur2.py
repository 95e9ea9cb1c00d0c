"""Kafka's hash of keys, 32-bit murmur2, by which every client finds the same partition for a key (G12). Pure."""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_32_BITS: Final = 0xFFFF_FFFF
_31_BITS: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the hash of a key, unsigned."""
    length = len(data)
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[: length & ~3]):
        mixed = k * _M & _32_BITS
        h = h * _M & _32_BITS ^ (mixed ^ mixed >> _R) * _M & _32_BITS
    rest = data[length & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _32_BITS
    h = (h ^ h >> 13) * _M & _32_BITS
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with so many partitions, available or not (G11)."""
    return (murmur2(key) & _31_BITS) % partitions
