"""What the settings of a topic admit into its log. Pure; asked by the owner of a partition for every batch."""

from typing import Final, TypeAlias

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.records import BatchHeader, patch_log_append_time
from broker.topic_config import LogConfig

#: (error code, base offset or -1, log append time in ms or -1)
StageResult: TypeAlias = tuple[int, int, int]

NO_OFFSET: Final = -1

STORAGE_ERROR: Final[StageResult] = (int(ErrorCode.KAFKA_STORAGE_ERROR), NO_OFFSET, -1)
_MESSAGE_TOO_LARGE: Final[StageResult] = (int(ErrorCode.MESSAGE_TOO_LARGE), NO_OFFSET, -1)
_RECORD_LIST_TOO_LARGE: Final[StageResult] = (int(ErrorCode.RECORD_LIST_TOO_LARGE), NO_OFFSET, -1)
_INVALID_TIMESTAMP: Final[StageResult] = (int(ErrorCode.INVALID_TIMESTAMP), NO_OFFSET, -1)
_INVALID_RECORD: Final[StageResult] = (int(ErrorCode.INVALID_RECORD), NO_OFFSET, -1)


class AppendLimits:
    """The limits of one topic.

    Most batches pass by three comparisons; `is_strict` sends every batch to `refusal`.
    """

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "compacts",
        "is_strict",
        "largest_bytes",
        "log_append_time",
        "max_message_bytes",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.largest_bytes = min(config.max_message_bytes, config.effective_segment_bytes)
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.log_append_time = config.log_append_time
        self.compacts = config.compacts
        self.is_strict = self.compacts or self.log_append_time

    def refusal(self, batch: memoryview, header: BatchHeader, now_ms: int) -> StageResult | None:
        """Return why a batch is not admitted, or None.

        Of the timestamps only the first and the largest are looked at: the header has no others.
        """
        if header.size_bytes > self.largest_bytes:
            return _MESSAGE_TOO_LARGE if header.size_bytes > self.max_message_bytes else _RECORD_LIST_TOO_LARGE
        if not self.log_append_time:
            too_old = header.base_timestamp >= 0 and now_ms - header.base_timestamp > self.before_max_ms
            if too_old or header.max_timestamp - now_ms > self.after_max_ms:
                return _INVALID_TIMESTAMP
        return _keyless_refusal(batch) if self.compacts else None


def _keyless_refusal(batch: memoryview) -> StageResult | None:
    try:
        return _INVALID_RECORD if has_record_without_key(batch) else None
    except ApiError as error:
        return error.code, NO_OFFSET, -1


def has_record_without_key(batch: memoryview) -> bool:
    """Whether a record of the batch has no key, which a compacted topic does not take. Raises ApiError."""
    from broker.protocol.record_reader import iterate_records  # noqa: PLC0415  # loads codecs; rarely needed

    return any(record.key is None for record in iterate_records(batch))


def with_append_time(batch: memoryview, now_ms: int) -> memoryview:
    """Return a copy that has the broker's time.

    The client's own bytes must stay as they are until they are committed: after a crash they are read again.
    """
    copy = memoryview(bytearray(batch))
    patch_log_append_time(copy, now_ms)
    return copy
