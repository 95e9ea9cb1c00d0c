"""The record errors of a rejected batch (KIP-467): the part of a Produce response that lists invalid records.

Runs in the handler that received the request, only for a batch rejected with one of `ERRORS_WITH_RECORD_DETAILS`. The
owner of the partition returns only an error code, so the records are read once more, in the memory of their request.
This must not cost more than the rejection did, which may have needed only the header: the records and bytes examined
for one request are bounded, and no record beyond the bound is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import ApiError
from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.records.record_batch import NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader, read_header, validate
from rotunda.broker.records.record_reader import ReadAllowance, record_keys, record_times

#: Most records of one request that are examined, and so the most that are listed.
MOST_RECORDS: Final = 10_000
#: Most bytes of compressed records of one request that are decompressed.
MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_SHOWN: Final = 3

#: (batch index, text)
RecordError = tuple[int, str | None]


class PartErrors(NamedTuple):
    """The message for a whole part and, by batch index, those for its records."""

    message: str | None = None
    records: tuple[RecordError, ...] = ()


NO_ERRORS: Final = PartErrors()


def record_allowance() -> ReadAllowance:
    """Return the budget for examining the records of one request."""
    return ReadAllowance(MOST_RECORDS, MOST_BYTES)


#: For each record of a batch: the error message if it is invalid.
_Errors = Iterator[str | None]


def keyless(batch: memoryview, produce_version: int, allowance: ReadAllowance, partition: str) -> PartErrors:
    """Return the records without a key, which a compacted topic rejects; none if the whole batch is invalid.

    Ignores the base offset, which is a note. `partition` is its name in the messages.
    """
    text = f"Compacted topic cannot accept message without key in topic partition {partition}"

    def errors_of(header: BatchHeader) -> _Errors:
        return (None if has_key else text for has_key in record_keys(batch, header, allowance))

    errors = _named(batch, produce_version, errors_of)
    if not errors:
        return NO_ERRORS
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_MOST_SHOWN])
    message = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return PartErrors(message, errors)


def out_of_range(
    batch: memoryview, produce_version: int, allowance: ReadAllowance, oldest_ms: int, newest_ms: int
) -> PartErrors:
    """Return the records whose timestamps are out of this range; none if none can be identified."""

    def errors_of(header: BatchHeader) -> _Errors:
        for timestamp_ms, offset in record_times(batch, header, allowance):
            if timestamp_ms == NO_TIMESTAMP or oldest_ms <= timestamp_ms <= newest_ms:
                yield None
            else:
                yield (
                    f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. "
                    f"The timestamp should be within [{oldest_ms}, {newest_ms}]"
                )

    errors = _named(batch, produce_version, errors_of)
    return (
        PartErrors("One or more records have been rejected due to invalid timestamp", errors) if errors else NO_ERRORS
    )


def too_large(batch: memoryview, partition: str, config: LogConfig) -> PartErrors:
    """Return which limit a batch exceeds, as far as its header shows."""
    header = read_header(batch)
    if header is None:
        return NO_ERRORS
    limits = AppendLimits(config)
    if header.size_bytes > limits.max_message_bytes:
        return PartErrors(
            f"The batch for {partition} has {header.size_bytes} bytes, "
            f"which exceeds the maximum configured value of {limits.max_message_bytes} (max.message.bytes)"
        )
    if header.record_count > limits.most_records:
        return PartErrors(
            f"The batch for {partition} has {header.record_count} records, which exceeds the maximum of "
            f"{limits.most_records}: send smaller batches"
        )
    return PartErrors(
        f"The records of the batch for {partition} exceed {limits.max_uncompressed_bytes} bytes uncompressed "
        f"(message.max.uncompressed.bytes), or {limits.max_message_bytes} bytes with the topic's compression.type "
        "(max.message.bytes): send smaller batches"
    )


def _named(
    batch: memoryview, produce_version: int, errors_of: Callable[[BatchHeader], _Errors]
) -> tuple[RecordError, ...]:
    """Return the invalid records among those examined; none if the batch cannot be read."""
    header = read_header(batch)
    if header is None:
        return ()
    header = header._replace(base_offset=0, attributes=header.attributes & ~TRANSACTIONAL_BIT)
    if validate(batch, header, produce_version):
        return ()
    try:
        return tuple((index, text) for index, text in enumerate(errors_of(header)) if text is not None)
    except ApiError:
        return ()
