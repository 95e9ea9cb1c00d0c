"""Which records of a batch are to blame for its refusal (KIP-467): the part of a Produce answer that says so.

Runs in the handler that received the request, for a batch refused with INVALID_RECORD and for nothing else. The owner
of the partition answers with an error code alone, so the records are read once more, in the memory of their request.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from broker.errors import ApiError
from broker.protocol.record_reader import records_without_key
from broker.protocol.records import TRANSACTIONAL_BIT, read_header, validate

#: Bounds an answer: a compressed batch may hold millions of records.
MOST_NAMED: Final = 10_000
_MOST_SHOWN: Final = 3


class Blame(NamedTuple):
    """The text for a whole part and, by batch index, those for its records."""

    message: str | None = None
    records: tuple[tuple[int, str | None], ...] = ()


NOBODY: Final = Blame()


def keyless(batch: memoryview, produce_version: int, partition: str) -> Blame:
    """Return the records that a compacted topic refuses; nobody if the batch as a whole is at fault.

    The base offset is not looked at: it holds a note. `partition` is its name, as it stands in messages.
    """
    header = read_header(batch)
    if header is None:
        return NOBODY
    header = header._replace(base_offset=0, attributes=header.attributes & ~TRANSACTIONAL_BIT)
    if validate(batch, header, produce_version):
        return NOBODY
    try:
        indexes = list(islice(records_without_key(batch, header), MOST_NAMED))
    except ApiError:
        return NOBODY
    if not indexes:
        return NOBODY
    text = f"Compacted topic cannot accept message without key in topic partition {partition}"
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index in indexes[:_MOST_SHOWN])
    message = (
        f"One or more records have been rejected due to {len(indexes)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return Blame(message, tuple((index, text) for index in indexes))
