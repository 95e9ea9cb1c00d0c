"""The append limits: what the settings of a topic admit into its log. Pure; the owner checks every batch against them.

Records are validated one by one (`broker.protocol.record_walk`). What a header says of them is not trusted: as in Kafka
the largest timestamp is computed, and the header is stored with that. A batch that must be unpacked, validated, packed
anew or copied is judged in steps. Few are so large that they take more than one; those are judged beside other work
before they are given their place.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.compression import PIECE_BYTES, pack, unpacked
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.protocol.record_reader import ReadAllowance, record_times
from rotunda.broker.protocol.record_walk import PENDING, RECORDS_AT_ONCE, RIGHT, RecordWalk
from rotunda.broker.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CODECS,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    SMALLEST_RECORD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    patch_header,
)
from rotunda.broker.protocol.steps import Steps

#: (error code, base offset or -1, log append time in ms or -1)
StageResult: TypeAlias = tuple[int, int, int]

NO_OFFSET: Final = -1

STORAGE_ERROR: Final[StageResult] = (int(ErrorCode.KAFKA_STORAGE_ERROR), NO_OFFSET, -1)

#: Not judged yet, and not in one step: `PartitionLog.judge` does it. No error of Kafka's.
TO_BE_JUDGED: Final[StageResult] = (-3, NO_OFFSET, -1)

#: A larger batch is put into the file before it is given its place: to write it takes more than its share of a turn.
WRITTEN_AT_ONCE_BYTES: Final = 4 * 1024 * 1024

#: What a header keeps of its attributes when it is written anew: Kafka's, but for the kind of timestamp.
_DELETE_HORIZON_BIT: Final = 0x40
_KEPT_BITS: Final = CODEC_MASK | TRANSACTIONAL_BIT | _DELETE_HORIZON_BIT

_INT64_MAX: Final = 2**63 - 1

#: Records whose times are read between two steps.
_TIMES_AT_ONCE: Final = 1024
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
        "validates",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.largest_bytes = min(config.max_message_bytes, config.effective_segment_bytes)
        self.at_once_bytes = min(self.largest_bytes, WRITTEN_AT_ONCE_BYTES)
        #: Of a compressed batch.
        self.max_uncompressed_bytes = config.max_uncompressed_bytes
        #: A batch that claims more would take offsets, and a search through it time, out of all proportion. Every
        #: record of a compacted topic is looked at one by one: it takes as many as fit uncompressed.
        largest_bytes = config.max_message_bytes if config.compacts else config.max_uncompressed_bytes
        self.most_records = max(1, largest_bytes // SMALLEST_RECORD_BYTES)
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.log_append_time = config.log_append_time
        self.compacts = config.compacts
        #: Whether all records are validated, and not only those that are compressed, keyed or under a doubtful header.
        self.validates = config.internal_validate_records
        #: Number of the codec that batches are stored in; -1: the one that they came in.
        self.codec = _CODEC_OF[config.compression_type]
        self.compression_level = _level_of(config)
        self.is_always_strict = self.compacts or self.log_append_time or self.codec >= 0
        self.is_strict = self.is_always_strict

    @staticmethod
    def takes_long(config: LogConfig, size_bytes: int) -> bool:
        """Whether the records of a batch of this size may take long to validate, or are packed anew."""
        return config.compacts or config.compression_type != "producer" or size_bytes > PIECE_BYTES + BATCH_HEADER_BYTES

    def admit_at_once(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Judged | None:
        """Return what `admit` does, or None if that takes more than one step, or writing the batch does."""
        is_many = header.record_count > RECORDS_AT_ONCE and self._is_walked(header)
        is_large = self.at_once_bytes < header.size_bytes <= self.largest_bytes
        is_packed = header.codec > 0 or self._is_repacked(header)
        if is_many or is_large or (is_packed and header.size_bytes > PIECE_BYTES + BATCH_HEADER_BYTES):
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
        try:
            return (yield from self._admitted(batch, header, now_ms))
        except ApiError as error:
            return int(error.code), NO_OFFSET, -1

    def _admitted(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Steps[Admitted]:
        if header.size_bytes > self.largest_bytes or header.record_count > self.most_records:
            raise self._too_large(header.size_bytes)
        records: Buffer = batch[BATCH_HEADER_BYTES:]
        stored = header
        if self._is_walked(header):
            if header.codec:
                records = yield from unpacked(header.codec, records, self.max_uncompressed_bytes)
            stored = yield from self._validated(header, records, now_ms)
        elif not self.log_append_time and self._is_out_of_time(header.base_timestamp, header.max_timestamp, now_ms):
            raise _out_of_time()
        if self._is_repacked(header):
            return (yield from self._repacked(batch, stored, records))
        if stored is header and not self.log_append_time:
            return Admitted(batch, is_copy=False)
        copy = yield from _copied(batch)
        if stored is not header:
            patch_header(copy, stored.attributes, stored.max_timestamp)
        return Admitted(copy, is_copy=True)

    def _validated(self, header: BatchHeader, records: Buffer, now_ms: int) -> Steps[BatchHeader]:
        """Return the header that fits the records, uncompressed. Raises ApiError with the error to answer."""
        if header.is_log_append_time and (self.log_append_time or header.max_timestamp == NO_TIMESTAMP):
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, "LogAppendTime is the broker's to set")
        walk = RecordWalk(records, header.record_count, is_keyed=self.compacts)
        while (verdict := walk.step(RECORDS_AT_ONCE)) == PENDING:
            yield
        if verdict != RIGHT:
            raise ApiError(ErrorCode.INVALID_RECORD, "its records do not match the header")
        if self.log_append_time:
            return header
        earliest, latest = header.base_timestamp + walk.least_delta, header.base_timestamp + walk.largest_delta
        is_possible = earliest >= -_INT64_MAX and latest <= _INT64_MAX
        if not is_possible or self._is_out_of_time(earliest, latest, now_ms):
            raise _out_of_time()
        oldest_ms = now_ms - self.before_max_ms
        if earliest == NO_TIMESTAMP < min(latest, oldest_ms) and (yield from _has_older(header, records, oldest_ms)):
            raise _out_of_time()
        return _with_times(header, latest)

    def _repacked(self, batch: memoryview, header: BatchHeader, records: Buffer) -> Steps[Admitted]:
        """Return a copy whose records are packed with the topic's codec; they are the same bytes."""
        copy = bytearray(batch[:BATCH_HEADER_BYTES])
        yield from pack(copy, self.codec, records, self.compression_level)
        if len(copy) > self.largest_bytes:
            raise self._too_large(len(copy))
        patch_header(copy, header.attributes & ~CODEC_MASK | self.codec, header.max_timestamp)
        return Admitted(memoryview(copy), is_copy=True)

    def _is_repacked(self, header: BatchHeader) -> bool:
        return self.codec >= 0 and header.codec != self.codec

    def _is_walked(self, header: BatchHeader) -> bool:
        """Whether the records are validated one by one."""
        is_doubtful = header.is_log_append_time or not 0 <= header.max_timestamp >= header.base_timestamp
        return self.validates or self.compacts or is_doubtful or header.codec > 0

    def _too_large(self, size_bytes: int) -> ApiError:
        """Return what a batch is refused with for its size or the number of its records."""
        fits_no_segment = self.largest_bytes < size_bytes <= self.max_message_bytes
        error = ErrorCode.RECORD_LIST_TOO_LARGE if fits_no_segment else ErrorCode.MESSAGE_TOO_LARGE
        return ApiError(error, f"batch of {size_bytes} bytes")

    def _is_out_of_time(self, earliest_ms: int, latest_ms: int, now_ms: int) -> bool:
        """Whether a timestamp is too old, or one is too new; a record without any is neither."""
        too_old = earliest_ms != NO_TIMESTAMP and now_ms - earliest_ms > self.before_max_ms
        return too_old or latest_ms - now_ms > self.after_max_ms


def _out_of_time() -> ApiError:
    return ApiError(ErrorCode.INVALID_TIMESTAMP, "a timestamp is out of range")


def _with_times(header: BatchHeader, latest_ms: int) -> BatchHeader:
    """Return the header as it is stored, with the largest timestamp of its records and as their own times."""
    max_timestamp = max(latest_ms, NO_TIMESTAMP)
    if max_timestamp == header.max_timestamp and not header.is_log_append_time:
        return header
    return header._replace(max_timestamp=max_timestamp, attributes=header.attributes & _KEPT_BITS)


def _has_older(header: BatchHeader, records: Buffer, oldest_ms: int) -> Steps[bool]:
    """Whether one of the records, uncompressed and valid, has a time and an older one than that."""
    batch = bytes(BATCH_HEADER_BYTES) + bytes(records)
    uncompressed = header._replace(attributes=0, batch_length=len(batch) - LOG_OVERHEAD_BYTES)
    allowance = ReadAllowance(header.record_count + 1, len(batch))
    for number, (time_ms, _) in enumerate(record_times(batch, uncompressed, allowance)):
        if time_ms != NO_TIMESTAMP and time_ms < oldest_ms:
            return True
        if number % _TIMES_AT_ONCE == _TIMES_AT_ONCE - 1:
            yield
    return False


def written_ahead(judged: Judged | None) -> memoryview | None:
    """Return the batch as it is to be stored if it is so large that it is written before it is staged; else None."""
    if not isinstance(judged, Admitted) or len(judged.batch) <= WRITTEN_AT_ONCE_BYTES:
        return None
    return judged.batch


def _copied(batch: memoryview) -> Steps[memoryview]:
    """Return a copy."""
    copy = bytearray()
    for start in range(0, len(batch), _COPIED_AT_ONCE_BYTES):
        if start:
            yield
        copy += batch[start : start + _COPIED_AT_ONCE_BYTES]
    return memoryview(copy)
