"""Record batches as a producer would make them, written apart from the code that reads them."""

import struct
from collections.abc import Sequence

import cramjam
from crc32c import crc32c

TIMESTAMP_MS = 1_700_000_000_000


def record_batch(  # noqa: PLR0913 - one keyword per header field that a test may want to choose
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    base_offset: int = 0,
    timestamp_ms: int = TIMESTAMP_MS,
    timestamp_step_ms: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    codec: int = 0,
    attributes: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Return a batch of magic 2 with one record per value; record i is `i * timestamp_step_ms` younger."""
    named = [(name.encode(), data) for name, data in headers]
    records = b"".join(
        encoded_record(i, i * timestamp_step_ms, keys[i] if keys else None, value, named)
        for i, value in enumerate(values)
    )
    last = len(values) - 1
    tail = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        last,
        timestamp_ms,
        timestamp_ms + max(0, last * timestamp_step_ms),
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    ) + _compress(codec, records)
    head = struct.pack(">qiibI", base_offset, len(tail) + 9, leader_epoch, 2, crc32c(tail))
    return head + tail


def lying_batch(records: bytes, count: int, *, codec: int = 0, **claims: int) -> bytes:
    """Return a batch that claims `count` records, for any bytes; its checksum is right."""
    return sealed_batch(_compress(codec, records), count, codec=codec, **claims)


def sealed_batch(
    payload: bytes,
    count: int,
    *,
    codec: int,
    base_timestamp_ms: int = TIMESTAMP_MS,
    max_timestamp_ms: int = TIMESTAMP_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """Return a batch that claims `count` records in a payload that is compressed already.

    `producer` is its id, its epoch and the base sequence.
    """
    times = base_timestamp_ms, max_timestamp_ms
    tail = struct.pack(">hiqqqhii", codec | attributes, count - 1, *times, *producer, count) + payload
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def with_max_timestamp(batch: bytes, max_timestamp_ms: int) -> bytes:
    """Return a batch under a header with this largest timestamp; its checksum is right."""
    tail = batch[21:35] + struct.pack(">q", max_timestamp_ms) + batch[43:]
    return batch[:17] + struct.pack(">I", crc32c(tail)) + tail


def records_of(batch: bytes) -> bytes:
    """Return the bytes after the header of a batch."""
    return batch[61:]


def varint(value: int) -> bytes:
    """Return a zigzag varint."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def encoded_record(
    offset_delta: int,
    timestamp_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """Return one record as encoded in a batch."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value)
    return sealed_record(body + varint(len(headers)) + b"".join(field(name) + field(data) for name, data in headers))


def sealed_record(body: bytes) -> bytes:
    """Return a record with a correct length, for any content."""
    return varint(len(body)) + body


def field(data: bytes | None) -> bytes:
    """Return bytes with their length as prefix; -1 for None."""
    return varint(-1) if data is None else varint(len(data)) + data


def _compress(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    compressors = {
        1: cramjam.gzip.compress,
        2: cramjam.snappy.compress_raw,
        3: _compress_lz4,
        4: cramjam.zstd.compress,
    }
    return bytes(compressors[codec](data))


def _compress_lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, block_linked=False)  # linked blocks are no batch of Kafka's
    compressor.compress(data)
    return bytes(compressor.finish())
