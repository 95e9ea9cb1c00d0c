"""Which batches in the answer to a fetch a consumer sees: whole ones, without markers and without what was aborted.

The rule of Kafka's consumers for isolation level read_committed. Used by the commands; knows bytes and no connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.errors import ApiError
from broker.protocol.record_reader import iterate_records
from broker.protocol.records import LOG_OVERHEAD_BYTES, BatchHeader, read_header

_ABORT_MARKER: Final = 0


def whole_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the whole batches; an answer may end within one."""
    offset = 0
    while (header := read_header(records, offset)) is not None:
        size = header.size_bytes
        if size <= LOG_OVERHEAD_BYTES or size > len(records) - offset:
            return
        yield header, records[offset : offset + size]
        offset += size


class AbortedTransactions:
    """Which producers' records are aborted, at the batch that is looked at. All batches pass, in order.

    `transactions` are those of a partition's answer; none for isolation level read_uncommitted.
    """

    def __init__(self, transactions: Any) -> None:
        self._ahead = sorted(((int(each.first_offset), int(each.producer_id)) for each in transactions), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether a consumer sees none of a batch: it is a marker, or of an aborted transaction."""
        while self._ahead and self._ahead[-1][0] <= header.last_offset:
            self._open.add(self._ahead.pop()[1])
        if header.is_control and _is_abort(batch):
            self._open.discard(header.producer_id)
        return header.is_control or (header.is_transactional and header.producer_id in self._open)


def _is_abort(marker: memoryview) -> bool:
    try:
        key = next((record.key for record in iterate_records(marker)), None)
    except ApiError:
        return False
    return key is not None and int.from_bytes(key[2:4], "big") == _ABORT_MARKER
