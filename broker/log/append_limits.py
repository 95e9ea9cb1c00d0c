"""What the settings of a topic admit into its log. Pure; asked by the owner of a partition for every batch."""

from typing import Final, TypeAlias

from broker.errors import ApiError
from broker.protocol.compression import compress
from broker.protocol.error_codes import ErrorCode
from broker.protocol.record_reader import judge_keyed_records, uncompressed_records
from broker.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CODECS,
    NO_TIMESTAMP,
    SMALLEST_RECORD_BYTES,
    BatchHeader,
    patch_log_append_time,
    patch_payload,
)
from broker.topic_config import LogConfig

#: (error code, base offset or -1, log append time in ms or -1)
StageResult: TypeAlias = tuple[int, int, int]

NO_OFFSET: Final = -1

STORAGE_ERROR: Final[StageResult] = (int(ErrorCode.KAFKA_STORAGE_ERROR), NO_OFFSET, -1)
_MESSAGE_TOO_LARGE: Final[StageResult] = (int(ErrorCode.MESSAGE_TOO_LARGE), NO_OFFSET, -1)
_RECORD_LIST_TOO_LARGE: Final[StageResult] = (int(ErrorCode.RECORD_LIST_TOO_LARGE), NO_OFFSET, -1)
_INVALID_TIMESTAMP: Final[StageResult] = (int(ErrorCode.INVALID_TIMESTAMP), NO_OFFSET, -1)
_INVALID_RECORD: Final[StageResult] = (int(ErrorCode.INVALID_RECORD), NO_OFFSET, -1)


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

    Most batches pass by a few comparisons; `is_strict` sends every batch to `admit`.
    """

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compacts",
        "compression_level",
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
        self.is_strict = self.compacts or self.log_append_time or self.codec >= 0

    @staticmethod
    def looks_into_records(config: LogConfig) -> bool:
        """Whether records of a topic with these settings may have to be unpacked, or looked at one by one."""
        return config.compacts or config.compression_type != "producer"

    def admit(self, batch: memoryview, header: BatchHeader, now_ms: int) -> memoryview | StageResult:
        """Return the batch as it is to be stored, or why it is not admitted.

        It is a copy if anything in it changes: the client's own bytes must stay as they are until they are committed,
        after a crash they are read again.
        """
        if header.size_bytes > self.largest_bytes or header.record_count > self.most_records:
            return self._too_large(header.size_bytes)
        is_repacked = self.codec >= 0 and header.codec != self.codec
        records = b""
        if self.compacts or is_repacked:
            try:
                records = uncompressed_records(batch, header, self.max_uncompressed_bytes)
            except ApiError as error:
                return error.code, NO_OFFSET, -1
        if self.compacts and judge_keyed_records(header, records):
            return _INVALID_RECORD
        if not self.log_append_time and self._is_out_of_time(header, now_ms):
            return _INVALID_TIMESTAMP
        if is_repacked:
            batch = with_codec(batch, header, records, self.codec, self.compression_level)
            if len(batch) > self.largest_bytes:
                return self._too_large(len(batch))
        return with_append_time(batch, now_ms) if self.log_append_time else batch

    def _too_large(self, size_bytes: int) -> StageResult:
        """Return what a batch is refused with for its size or the number of its records."""
        fits_no_segment = self.largest_bytes < size_bytes <= self.max_message_bytes
        return _RECORD_LIST_TOO_LARGE if fits_no_segment else _MESSAGE_TOO_LARGE

    def _is_out_of_time(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the first timestamp is too old or the largest too new: the header has no others."""
        too_old = header.base_timestamp != NO_TIMESTAMP and now_ms - header.base_timestamp > self.before_max_ms
        return too_old or header.max_timestamp - now_ms > self.after_max_ms


def with_codec(batch: memoryview, header: BatchHeader, records: bytes, codec: int, level: int | None) -> memoryview:
    """Return a copy whose `records`, uncompressed, are packed with another codec; they are the same bytes."""
    copy = bytearray(batch[:BATCH_HEADER_BYTES])
    copy += compress(codec, records, level)
    patch_payload(copy, header.attributes & ~CODEC_MASK | codec)
    return memoryview(copy)


def with_append_time(batch: memoryview, now_ms: int) -> memoryview:
    """Return a copy that has the broker's time."""
    copy = memoryview(bytearray(batch))
    patch_log_append_time(copy, now_ms)
    return copy
