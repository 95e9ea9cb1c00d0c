"""Which records of a batch are to blame for its refusal (KIP-467): the part of a Produce answer that says so.

Runs in the handler that received the request, for a batch refused with INVALID_RECORD or INVALID_TIMESTAMP and for
nothing else. The owner of the partition answers with an error code alone, so the records are read once more, in the
memory of their request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from broker.errors import ApiError
from broker.protocol.record_reader import record_timestamps, records_without_key
from broker.protocol.records import NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader, read_header, validate

#: Bounds an answer: a compressed batch may hold millions of records.
MOST_NAMED: Final = 10_000
_MOST_SHOWN: Final = 3

#: (batch index, text)
RecordError = tuple[int, str | None]


class Blame(NamedTuple):
    """The text for a whole part and, by batch index, those for its records."""

    message: str | None = None
    records: tuple[RecordError, ...] = ()


NOBODY: Final = Blame()


def keyless(batch: memoryview, produce_version: int, partition: str) -> Blame:
    """Return the records that a compacted topic refuses; nobody if the batch as a whole is at fault.

    The base offset is not looked at: it holds a note. `partition` is its name, as it stands in messages.
    """
    text = f"Compacted topic cannot accept message without key in topic partition {partition}"
    errors = _named(batch, produce_version, lambda header: ((i, text) for i in records_without_key(batch, header)))
    if not errors:
        return NOBODY
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_MOST_SHOWN])
    message = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return Blame(message, errors)


def out_of_range(batch: memoryview, produce_version: int, oldest_ms: int, newest_ms: int) -> Blame:
    """Return the records whose own time is not within these; nobody if none can be named."""

    def blamed(header: BatchHeader) -> Iterator[RecordError]:
        for index, timestamp_ms in enumerate(record_timestamps(batch, header)):
            if timestamp_ms != NO_TIMESTAMP and not oldest_ms <= timestamp_ms <= newest_ms:
                yield (
                    index,
                    f"Timestamp {timestamp_ms} of message with offset {index} is out of range. "
                    f"The timestamp should be within [{oldest_ms}, {newest_ms}]",
                )

    errors = _named(batch, produce_version, blamed)
    return Blame("One or more records have been rejected due to invalid timestamp", errors) if errors else NOBODY


def _named(
    batch: memoryview, produce_version: int, blamed: Callable[[BatchHeader], Iterator[RecordError]]
) -> tuple[RecordError, ...]:
    """Return the first of the records to blame; none if the batch cannot be read."""
    header = read_header(batch)
    if header is None:
        return ()
    header = header._replace(base_offset=0, attributes=header.attributes & ~TRANSACTIONAL_BIT)
    if validate(batch, header, produce_version):
        return ()
    try:
        return tuple(islice(blamed(header), MOST_NAMED))
    except ApiError:
        return ()
