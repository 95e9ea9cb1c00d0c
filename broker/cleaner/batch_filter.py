"""The batch filter of compaction: a batch is kept unchanged, loses records, becomes an empty shell, or is removed.

Pure; runs in the cleaner process. The rules are Kafka's (LogCleaner.cleanInto, MemoryRecords.filterTo):

- A record is kept if no newer one has its key; a tombstone only until its batch's *delete horizon* has passed. The
  horizon is set when compaction first keeps a batch with a tombstone, or a marker of a transaction without batches:
  it replaces the base timestamp, and attribute bit 6 is set.
- Records of aborted transactions are removed. A marker is removed when no batch of its transaction remains and its
  horizon has passed.
- The last batch of a producer is kept, if necessary without records, to preserve its sequence numbers; so is the last
  batch of the cleaned range, so that consumers see the end of that range.
- The base and last offset of a batch and all its sequence numbers never change.
- A batch that cannot be read, or decompressed within the limit, is kept unchanged: its records are not examined.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rotunda.broker.cleaner.key_map import KeyMap
from rotunda.broker.cleaner.raw_records import KeptRecords, RawRecord, raw_records
from rotunda.broker.cleaner.transactions import CleanedTransactions
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.compression import compress
from rotunda.broker.records.crc import crc32c
from rotunda.broker.records.record_batch import CODEC_MASK, CRC_START, LOG_OVERHEAD_BYTES, BatchHeader, crc_ok
from rotunda.broker.records.record_reader import uncompressed_records

DELETE_HORIZON_BIT: Final = 0x40

_NO_TIMESTAMP: Final = -1
_INT64_MAX: Final = 2**63 - 1

_HEAD = struct.Struct(
    ">q"  # base offset
    "i"  # batch length
    "i"  # leader epoch
    "b"  # magic
    "I"  # CRC-32C of the rest of the batch
)
_TAIL = struct.Struct(
    ">h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)


class LastRecord(NamedTuple):
    """The last write of an active producer: its epoch, and the offset of its last data batch or -1."""

    epoch: int
    last_offset: int


class Cleaning(NamedTuple):
    """The parameters of one round over a partition. Records from `end_offset` on are not in the map and are kept."""

    newest: KeyMap
    end_offset: int
    producers: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    max_uncompressed_bytes: int


class CleanedBatch(NamedTuple):
    """The remainder of a batch; `max_timestamp_ms` is -1 without records, `data` is empty for a removed batch."""

    data: bytes | memoryview
    max_timestamp_ms: int
    records: int


_GONE = CleanedBatch(b"", _NO_TIMESTAMP, 0)


class BatchFilter:
    """Applies the rules to the batches of one round, in order of offsets."""

    def __init__(self, cleaning: Cleaning, transactions: CleanedTransactions) -> None:
        self._cleaning = cleaning
        self._transactions = transactions

    def clean(self, batch: memoryview, header: BatchHeader) -> CleanedBatch:
        """Return the remainder of one whole batch; its `data` is `batch` itself if nothing changes.

        Raises ApiError when its records cannot be read.
        """
        if not crc_ok(batch, header):
            # Not even its header is reliable; and a rewritten batch would be assigned a valid checksum.
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "its checksum is wrong")
        is_discarded = self._transactions.is_discarded(batch, header)
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        is_over = horizon_ms is not None and horizon_ms <= self._cleaning.now_ms
        if is_discarded and (is_over or not header.is_control):
            return self._shell(header)
        if header.base_offset >= self._cleaning.end_offset:
            return untouched(batch, header)
        data = uncompressed_records(batch, header, self._cleaning.max_uncompressed_bytes)
        records = raw_records(data, header.record_count, header.last_offset_delta)
        kept = KeptRecords(records, _all if header.is_control else self._is_kept(header, keep_tombstones=not is_over))
        if not kept.count:
            return self._shell(header)
        needs_horizon = horizon_ms is None and (is_discarded if header.is_control else kept.has_tombstone)
        if kept.count == header.record_count and not needs_horizon:
            return CleanedBatch(batch, header.max_timestamp, kept.count)
        if needs_horizon:
            horizon_ms = self._cleaning.now_ms + self._cleaning.delete_retention_ms
        return _rewritten(header, data, kept, horizon_ms)

    def _is_kept(self, header: BatchHeader, *, keep_tombstones: bool) -> Callable[[RawRecord], bool]:
        """Return a predicate for records that no newer one replaces; records without a key are removed."""
        newest, end_offset, base_offset = self._cleaning.newest.newest, self._cleaning.end_offset, header.base_offset

        def is_kept(record: RawRecord) -> bool:
            offset = base_offset + record.offset_delta
            if offset >= end_offset:
                return True
            return record.key is not None and offset >= newest(record.key) and (record.has_value or keep_tombstones)

        return is_kept

    def _shell(self, header: BatchHeader) -> CleanedBatch:
        """Return the batch without its records, or nothing if its offsets and sequence numbers are not needed."""
        if not self._is_last_of_producer(header) and header.last_offset + 1 != self._cleaning.end_offset:
            return _GONE
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
        shell = header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0)
        return CleanedBatch(_sealed(shell, b""), _NO_TIMESTAMP, 0)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._cleaning.producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch


def untouched(batch: memoryview, header: BatchHeader) -> CleanedBatch:
    """Return a batch unchanged, without examining its records."""
    return CleanedBatch(batch, header.max_timestamp if header.record_count else _NO_TIMESTAMP, header.record_count)


def _all(_record: RawRecord) -> bool:
    return True


def _rewritten(header: BatchHeader, data: bytes, kept: KeptRecords, horizon_ms: int | None) -> CleanedBatch:
    """Return the batch with some of its records; offsets, timestamps and sequence numbers do not change."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    latest = base_timestamp + kept.max_timestamp_delta
    max_timestamp = header.max_timestamp if header.is_log_append_time else latest
    if not -_INT64_MAX <= max_timestamp <= _INT64_MAX:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"timestamp {max_timestamp} of a record")
    if horizon_ms is None or horizon_ms == base_timestamp:
        body = kept.joined(data)
    else:
        body = kept.joined_shifted(data, base_timestamp - horizon_ms)
        base_timestamp = horizon_ms
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    fewer = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=kept.count
    )
    return CleanedBatch(_sealed(fewer, compress(header.codec, body)), max_timestamp, kept.count)


def _sealed(header: BatchHeader, body: bytes) -> bytes:
    """Return the batch with this header and body; length and checksum are computed."""
    tail = _TAIL.pack(*header[5:]) + body
    length = CRC_START - LOG_OVERHEAD_BYTES + len(tail)
    return _HEAD.pack(header.base_offset, length, header.leader_epoch, header.magic, crc32c(tail)) + tail
