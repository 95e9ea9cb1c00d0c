"""Creates record batches of a given record count, size and codec. Runs in the command line's process.

Values are random bytes, which do not compress: a batch has its original's size on the wire and on disk; uncompressed it
is smaller than a batch of compressible records.
"""

from __future__ import annotations

import os
from typing import Final

from rotunda.broker.records.compression import compress
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, CODECS, SMALLEST_RECORD_BYTES, patch_header
from rotunda.broker.records.record_writer import BatchBuilder, encode_record

#: Larger than any codec's window, so that repeated values do not compress better.
_POOL: Final = os.urandom(4 << 20)
_KEPT_BYTES: Final = 64 << 20
#: Sizes of compressed records are found by iteration.
_TRIES: Final = 4


class BatchMaker:
    """Creates batches; the records of each size are cached up to a total size."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, str], bytes] = {}
        self._known_bytes = 0

    def make(self, records: int, size_bytes: int, codec: str, timestamp_ms: int) -> bytes:
        """Return a batch of this many records (at least one), of this size if they fit."""
        key = (max(records, 1), size_bytes, codec)
        payload = self._known.get(key)
        if payload is None:
            payload = _payload(*key)
            if self._known_bytes + len(payload) > _KEPT_BYTES:
                self._known.clear()
                self._known_bytes = 0
            self._known[key] = payload
            self._known_bytes += len(payload)
        return _batch(key[0], payload, codec, timestamp_ms)


def _batch(records: int, payload: bytes, codec: str, timestamp_ms: int) -> bytes:
    head = BatchBuilder([(None, b"")]).build(timestamp_ms)[:BATCH_HEADER_BYTES]
    # Last offset delta and record count of the header; the other fields are those of a one-record batch.
    head[23:27] = (records - 1).to_bytes(4, "big")
    head[57:61] = records.to_bytes(4, "big")
    batch = head + payload
    patch_header(batch, CODECS.index(codec), timestamp_ms)
    return bytes(batch)


def _payload(records: int, size_bytes: int, codec: str) -> bytes:
    """Return records with the compressed size of a batch of `size_bytes`, without its header."""
    wanted = max(size_bytes - BATCH_HEADER_BYTES, 1)
    if codec == "none":
        return _records(records, wanted)
    found = []
    length = wanted
    for _ in range(_TRIES):
        found.append(compress(CODECS.index(codec), _records(records, length)))
        length = max(length + wanted - len(found[-1]), 1)
    return min(found, key=lambda each: abs(len(each) - wanted))


def _records(records: int, size_bytes: int) -> bytes:
    """Return records of this total size, or of the minimum possible size."""
    found = bytearray()
    for number in range(records):
        room = size_bytes * (number + 1) // records - len(found)
        found += _record(number, room, len(found) % len(_POOL))
    return bytes(found)


def _record(number: int, room: int, start: int) -> bytes:
    """Return a record of `room` bytes, one less if a length field grows, the minimum size if that is too small."""
    length = max(room - SMALLEST_RECORD_BYTES, 0)
    record = encode_record(number, None, _value(start, length))
    while len(record) > room and length > 0:
        length = max(length - (len(record) - room), 0)
        record = encode_record(number, None, _value(start, length))
    return record


def _value(start: int, length: int) -> bytes:
    copies = (start + length) // len(_POOL) + 1
    return _POOL[start : start + length] if copies == 1 else (_POOL * copies)[start : start + length]
