"""The append limits: what the settings of a topic admit into its log. Pure; the owner checks every batch against them.

A batch that must be unpacked, looked at record by record, packed anew or copied is judged in steps. Few are so large
that they take more than one; those are judged beside other work before they are given their place.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.config.topic_config import LogConfig
from broker.errors import ApiError
from broker.protocol.compression import PIECE_BYTES, pack, unpacked
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import Buffer
from broker.protocol.record_reader import RECORDS_AT_ONCE, judge_keyed_records
from broker.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CODECS,
    NO_TIMESTAMP,
    SMALLEST_RECORD_BYTES,
    BatchHeader,
    patch_payload,
)
from broker.protocol.steps import Steps

#: (error code, base offset or -1, log append time in ms or -1)
StageResult: TypeAlias = tuple[int, int, int]

NO_OFFSET: Final = -1

STORAGE_ERROR: Final[StageResult] = (int(ErrorCode.KAFKA_STORAGE_ERROR), NO_OFFSET, -1)
_MESSAGE_TOO_LARGE: Final[StageResult] = (int(ErrorCode.MESSAGE_TOO_LARGE), NO_OFFSET, -1)
_RECORD_LIST_TOO_LARGE: Final[StageResult] = (int(ErrorCode.RECORD_LIST_TOO_LARGE), NO_OFFSET, -1)
_INVALID_TIMESTAMP: Final[StageResult] = (int(ErrorCode.INVALID_TIMESTAMP), NO_OFFSET, -1)
_INVALID_RECORD: Final[StageResult] = (int(ErrorCode.INVALID_RECORD), NO_OFFSET, -1)

#: Not judged yet, and not in one step: `PartitionLog.judge` does it. No error of Kafka's.
TO_BE_JUDGED: Final[StageResult] = (-3, NO_OFFSET, -1)

#: A larger batch is put into the file before it is given its place: to write it takes more than its share of a turn.
WRITTEN_AT_ONCE_BYTES: Final = 4 * 1024 * 1024

#: What is copied between two steps.
_COPIED_AT_ONCE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch as it is to be stored: the client's own bytes, or a copy."""

    batch: memoryview
    is_copy: bool


Judged: TypeAlias = Admitted | StageResult
"""A batch that is admitted, or why it is not."""


_CODEC_OF: Final = {"producer": -1, "uncompressed": 0} | {name: codec for codec, name in enumerate(CODECS) if codec}


def _level_of(config: LogConfig) -> int | None:
    """Return the level to compress with, or None where the codec has none or its own is asked for."""
    levels = {
        "gzip": config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)


class AppendLimits:
    """The limits of one topic.

    Most batches pass by a few comparisons; `is_strict` sends every batch to `admit`. The owner sets it while batches
    are refused, or wait; `is_always_strict` says that the settings ask for it.
    """

    __slots__ = (
        "after_max_ms",
        "at_once_bytes",
        "before_max_ms",
        "codec",
        "compacts",
        "compression_level",
        "is_always_strict",
        "is_strict",
        "largest_bytes",
        "log_append_time",
        "max_message_bytes",
        "max_uncompressed_bytes",
        "most_records",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.largest_bytes = min(config.max_message_bytes, config.effective_segment_bytes)
        self.at_once_bytes = min(self.largest_bytes, WRITTEN_AT_ONCE_BYTES)
        #: Of a compressed batch, where its records must be looked into.
        self.max_uncompressed_bytes = config.max_uncompressed_bytes
        #: A batch that claims more would take offsets, and a search through it time, out of all proportion. Every
        #: record of a compacted topic is looked at one by one: it takes as many as fit uncompressed.
        largest_bytes = config.max_message_bytes if config.compacts else config.max_uncompressed_bytes
        self.most_records = max(1, largest_bytes // SMALLEST_RECORD_BYTES)
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.log_append_time = config.log_append_time
        self.compacts = config.compacts
        #: Number of the codec that batches are stored in; -1: the one that they came in.
        self.codec = _CODEC_OF[config.compression_type]
        self.compression_level = _level_of(config)
        self.is_always_strict = self.compacts or self.log_append_time or self.codec >= 0
        self.is_strict = self.is_always_strict

    @staticmethod
    def looks_into_records(config: LogConfig) -> bool:
        """Whether records of a topic with these settings may have to be unpacked, or looked at one by one."""
        return config.compacts or config.compression_type != "producer"

    def admit_at_once(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Judged | None:
        """Return what `admit` does, or None if that takes more than one step, or writing the batch does."""
        is_many = self.compacts and header.record_count > RECORDS_AT_ONCE
        is_large = self.at_once_bytes < header.size_bytes <= self.largest_bytes
        if is_many or is_large or (header.size_bytes > PIECE_BYTES + BATCH_HEADER_BYTES and self._is_unpacked(header)):
            return None
        steps = self.admit(batch, header, now_ms)
        try:
            next(steps)
        except StopIteration as stop:
            judged: Judged = stop.value
            return judged
        return None

    def admit(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Steps[Judged]:
        """Return the batch as it is to be stored, but for the broker's time, or why it is not admitted.

        It is a copy if anything in it changes: the client's own bytes must stay as they are until they are committed,
        after a crash they are read again.
        """
        if header.size_bytes > self.largest_bytes or header.record_count > self.most_records:
            return self._too_large(header.size_bytes)
        records: Buffer = b""
        if self._is_unpacked(header):
            found = yield from self._records(batch, header)
            if isinstance(found, tuple):
                return found
            records = found
        if not self.log_append_time and self._is_out_of_time(header, now_ms):
            return _INVALID_TIMESTAMP
        if self._is_repacked(header):
            return (yield from self._repacked(batch, header, records))
        if self.log_append_time:
            return Admitted((yield from copied(batch)), is_copy=True)
        return Admitted(batch, is_copy=False)

    def _records(self, batch: memoryview, header: BatchHeader) -> Steps[Buffer | StageResult]:
        """Return the records, uncompressed, or why they are refused."""
        try:
            records = yield from unpacked(header.codec, batch[BATCH_HEADER_BYTES:], self.max_uncompressed_bytes)
        except ApiError as error:
            return error.code, NO_OFFSET, -1
        if self.compacts and (yield from judge_keyed_records(header, records)):
            return _INVALID_RECORD
        return records

    def _repacked(self, batch: memoryview, header: BatchHeader, records: Buffer) -> Steps[Judged]:
        """Return a copy whose records are packed with the topic's codec; they are the same bytes."""
        copy = bytearray(batch[:BATCH_HEADER_BYTES])
        yield from pack(copy, self.codec, records, self.compression_level)
        if len(copy) > self.largest_bytes:
            return self._too_large(len(copy))
        patch_payload(copy, header.attributes & ~CODEC_MASK | self.codec)
        return Admitted(memoryview(copy), is_copy=True)

    def _is_repacked(self, header: BatchHeader) -> bool:
        return self.codec >= 0 and header.codec != self.codec

    def _is_unpacked(self, header: BatchHeader) -> bool:
        return self.compacts or self._is_repacked(header)

    def _too_large(self, size_bytes: int) -> StageResult:
        """Return what a batch is refused with for its size or the number of its records."""
        fits_no_segment = self.largest_bytes < size_bytes <= self.max_message_bytes
        return _RECORD_LIST_TOO_LARGE if fits_no_segment else _MESSAGE_TOO_LARGE

    def _is_out_of_time(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the first timestamp is too old or the largest too new: the header has no others."""
        too_old = header.base_timestamp != NO_TIMESTAMP and now_ms - header.base_timestamp > self.before_max_ms
        return too_old or header.max_timestamp - now_ms > self.after_max_ms


def written_ahead(judged: Judged | None) -> memoryview | None:
    """Return the batch as it is to be stored if it is so large that it is written before it is staged; else None."""
    if not isinstance(judged, Admitted) or len(judged.batch) <= WRITTEN_AT_ONCE_BYTES:
        return None
    return judged.batch


def copied(batch: memoryview) -> Steps[memoryview]:
    """Return a copy."""
    copy = bytearray()
    for start in range(0, len(batch), _COPIED_AT_ONCE_BYTES):
        if start:
            yield
        copy += batch[start : start + _COPIED_AT_ONCE_BYTES]
    return memoryview(copy)
