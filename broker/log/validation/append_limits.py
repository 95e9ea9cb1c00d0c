"""The append limits of a topic, from its settings. Pure; the owner checks every batch against them.

Records are validated one by one (`record_walk`). The header's claims are not trusted: as in Kafka, the largest
timestamp is computed from the records and stored in the header. A batch that must be decompressed, validated,
compressed again or copied is validated in steps. Only very large batches need more than one step; they are validated
between other requests, before they are assigned an offset.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.log.validation.record_walk import PENDING, RECORDS_AT_ONCE, RIGHT, RecordWalk
from rotunda.broker.native import compiled
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.compression import PIECE_BYTES, pack, unpacked
from rotunda.broker.records.record_batch import (
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
from rotunda.broker.records.record_reader import ReadAllowance, read_varlong, record_times
from rotunda.broker.steps import Steps

#: (error code, base offset or -1, log append time in ms or -1)
StageResult: TypeAlias = tuple[int, int, int]

NO_OFFSET: Final = -1

STORAGE_ERROR: Final[StageResult] = (int(ErrorCode.KAFKA_STORAGE_ERROR), NO_OFFSET, -1)

#: Not validated yet, and too large for one step: `PartitionLog.validate` validates the batch. Not a Kafka error code.
TO_BE_VALIDATED: Final[StageResult] = (-3, NO_OFFSET, -1)

#: A larger batch is written to the file before it is assigned an offset: writing it exceeds its share of a turn.
WRITTEN_AT_ONCE_BYTES: Final = 4 * 1024 * 1024

#: Attributes that are preserved when a header is rewritten: Kafka's, except the timestamp type.
_DELETE_HORIZON_BIT: Final = 0x40
_KEPT_BITS: Final = CODEC_MASK | TRANSACTIONAL_BIT | _DELETE_HORIZON_BIT

_INT64_MAX: Final = 2**63 - 1

#: Records whose timestamps are read between two steps.
_TIMES_AT_ONCE: Final = 1024
#: Bytes copied between two steps.
_COPIED_AT_ONCE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch in its stored form: the client's own bytes, or a copy."""

    batch: memoryview
    is_copy: bool


Validated: TypeAlias = Admitted | StageResult
"""An admitted batch, or the result of its rejection."""


_CODEC_OF: Final = {"producer": -1, "uncompressed": 0} | {name: codec for codec, name in enumerate(CODECS) if codec}


def _level_of(config: LogConfig) -> int | None:
    """Return the compression level to use, or None for a codec without levels and for the codec's default level."""
    levels = {
        "gzip": config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)


class LimitFields:
    """The attributes of limits that compiled code reads (`broker/native/cached_requests.c`)."""

    __slots__ = ("after_max_ms", "at_once_bytes", "before_max_ms", "is_strict", "most_records", "validates")


if not TYPE_CHECKING and compiled is not None:
    LimitFields = compiled.LimitFields


class AppendLimits(LimitFields):
    """The append limits of one topic.

    Most batches pass after a few comparisons; `is_strict` sends every batch to `admit`. The owner sets it while batches
    are rejected or waiting; `is_always_strict` means that the topic's settings require it.
    """

    __slots__ = (
        "codec",
        "compacts",
        "compression_level",
        "is_always_strict",
        "largest_bytes",
        "log_append_time",
        "max_message_bytes",
        "max_record_bytes",
        "max_uncompressed_bytes",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.largest_bytes = min(config.max_message_bytes, config.effective_segment_bytes)
        self.at_once_bytes = min(self.largest_bytes, WRITTEN_AT_ONCE_BYTES)
        #: Limit for a compressed batch.
        self.max_record_bytes = config.max_decompressed_message_bytes
        self.max_uncompressed_bytes = config.max_uncompressed_bytes
        #: A batch that claims more records would use up a disproportionate number of offsets and make searches slow.
        #: Every record of a compacted topic is validated one by one: the limit is the number that fits uncompressed.
        largest_bytes = config.max_message_bytes if config.compacts else config.max_uncompressed_bytes
        self.most_records = max(1, largest_bytes // SMALLEST_RECORD_BYTES)
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.log_append_time = config.log_append_time
        self.compacts = config.compacts
        #: Whether all records are validated, and not only those that are compressed, keyed or under an implausible
        #: header.
        self.validates = config.internal_validate_records
        #: Number of the codec that batches are stored in; -1: the producer's codec.
        self.codec = _CODEC_OF[config.compression_type]
        self.compression_level = _level_of(config)
        self.is_always_strict = self.compacts or self.log_append_time or self.codec >= 0
        self.is_strict = self.is_always_strict

    @staticmethod
    def is_slow(config: LogConfig, size_bytes: int) -> bool:
        """Return whether a batch of this size may take long to validate, or is compressed again."""
        return config.compacts or config.compression_type != "producer" or size_bytes > PIECE_BYTES + BATCH_HEADER_BYTES

    def admit_at_once(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Validated | None:
        """Return the result of `admit`, or None if validating or writing the batch needs more than one step."""
        is_many = header.record_count > RECORDS_AT_ONCE and self._is_walked(header)
        is_large = self.at_once_bytes < header.size_bytes <= self.largest_bytes
        is_packed = header.codec > 0 or self._is_repacked(header)
        if is_many or is_large or (is_packed and header.size_bytes > PIECE_BYTES + BATCH_HEADER_BYTES):
            return None
        steps = self.admit(batch, header, now_ms)
        try:
            next(steps)
        except StopIteration as stop:
            validated: Validated = stop.value
            return validated
        return None

    def admit(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Steps[Validated]:
        """Return the batch in its stored form, without the append time, or the reason for its rejection.

        The result is a copy if anything in it changes: the client's own bytes must stay unchanged until they are
        committed, because they are read again after a crash.
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
        """Return the header that matches the uncompressed records. Raises ApiError with the error to return."""
        if header.is_log_append_time and (self.log_append_time or header.max_timestamp == NO_TIMESTAMP):
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, "LogAppendTime is set by the broker")
        walk = RecordWalk(records, header.record_count, is_keyed=self.compacts)
        while (verdict := walk.step(RECORDS_AT_ONCE)) == PENDING:
            yield
        if verdict != RIGHT:
            raise ApiError(ErrorCode.INVALID_RECORD, "the records do not match the header")
        if header.codec and (yield from _has_larger(records, self.max_record_bytes)):
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"a record of more than {self.max_record_bytes} bytes uncompressed"
            )
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
        """Return a copy with the same records, compressed with the topic's codec."""
        copy = bytearray(batch[:BATCH_HEADER_BYTES])
        yield from pack(copy, self.codec, records, self.compression_level)
        if len(copy) > self.largest_bytes:
            raise self._too_large(len(copy))
        patch_header(copy, header.attributes & ~CODEC_MASK | self.codec, header.max_timestamp)
        return Admitted(memoryview(copy), is_copy=True)

    def _is_repacked(self, header: BatchHeader) -> bool:
        return self.codec >= 0 and header.codec != self.codec

    def _is_walked(self, header: BatchHeader) -> bool:
        """Return whether the records are validated one by one."""
        is_doubtful = header.is_log_append_time or not 0 <= header.max_timestamp >= header.base_timestamp
        return self.validates or self.compacts or is_doubtful or header.codec > 0

    def _too_large(self, size_bytes: int) -> ApiError:
        """Return the error for a batch with too many bytes or too many records."""
        fits_no_segment = self.largest_bytes < size_bytes <= self.max_message_bytes
        error = ErrorCode.RECORD_LIST_TOO_LARGE if fits_no_segment else ErrorCode.MESSAGE_TOO_LARGE
        return ApiError(error, f"batch of {size_bytes} bytes")

    def _is_out_of_time(self, earliest_ms: int, latest_ms: int, now_ms: int) -> bool:
        """Return whether a timestamp is too old or too new; a record without a timestamp is neither."""
        too_old = earliest_ms != NO_TIMESTAMP and now_ms - earliest_ms > self.before_max_ms
        return too_old or latest_ms - now_ms > self.after_max_ms


def _out_of_time() -> ApiError:
    return ApiError(ErrorCode.INVALID_TIMESTAMP, "timestamp out of range")


def _with_times(header: BatchHeader, latest_ms: int) -> BatchHeader:
    """Return the stored form of the header: the largest timestamp of its records, with timestamp type CreateTime."""
    max_timestamp = max(latest_ms, NO_TIMESTAMP)
    if max_timestamp == header.max_timestamp and not header.is_log_append_time:
        return header
    return header._replace(max_timestamp=max_timestamp, attributes=header.attributes & _KEPT_BITS)


def _has_older(header: BatchHeader, records: Buffer, oldest_ms: int) -> Steps[bool]:
    """Return whether one of the records, uncompressed and valid, has a timestamp older than `oldest_ms`."""
    batch = bytes(BATCH_HEADER_BYTES) + bytes(records)
    uncompressed = header._replace(attributes=0, batch_length=len(batch) - LOG_OVERHEAD_BYTES)
    allowance = ReadAllowance(header.record_count + 1, len(batch))
    for number, (time_ms, _) in enumerate(record_times(batch, uncompressed, allowance)):
        if time_ms != NO_TIMESTAMP and time_ms < oldest_ms:
            return True
        if number % _TIMES_AT_ONCE == _TIMES_AT_ONCE - 1:
            yield
    return False


def _has_larger(records: Buffer, most_bytes: int) -> Steps[bool]:
    """Return whether one of the uncompressed and valid records is larger than `most_bytes`."""
    if len(records) <= most_bytes:
        return False
    at = number = 0
    while at < len(records):
        length, start = read_varlong(records, at)
        if start + length - at > most_bytes:
            return True
        at, number = start + length, number + 1
        if not number % RECORDS_AT_ONCE:
            yield
    return False


def written_ahead(validated: Validated | None) -> memoryview | None:
    """Return the stored form of a batch that is so large that it is written before it is staged; else None."""
    if not isinstance(validated, Admitted) or len(validated.batch) <= WRITTEN_AT_ONCE_BYTES:
        return None
    return validated.batch


def _copied(batch: memoryview) -> Steps[memoryview]:
    copy = bytearray()
    for start in range(0, len(batch), _COPIED_AT_ONCE_BYTES):
        if start:
            yield
        copy += batch[start : start + _COPIED_AT_ONCE_BYTES]
    return memoryview(copy)
