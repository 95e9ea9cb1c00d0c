"""The transactions of a partition during compaction (Kafka's CleanedTransactionMetadata).

Pure; runs in the cleaner process. It is called with the batches in order of offsets, from the start of the log on. It
returns which batches belong to an aborted transaction, and which markers end a transaction without remaining batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from rotunda.broker.log.indexes.transaction_index import AbortedTransaction
from rotunda.broker.records.record_batch import BatchHeader
from rotunda.broker.records.record_writer import read_marker


class CleanedTransactions:
    """The transactions of a scan that begins at `from_offset`; `aborted` are all in the log's indexes."""

    def __init__(self, aborted: Iterable[AbortedTransaction], from_offset: int) -> None:
        begun = [each for each in aborted if each.last_offset >= from_offset]
        self._upcoming = sorted(begun, key=lambda each: each.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        self._committing: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_discarded(self, batch: memoryview, header: BatchHeader) -> bool:
        """Return whether the batch can be removed: aborted records, or a marker that ends no remaining batches."""
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            begun = self._upcoming.pop()
            self._aborting[begun.producer_id] = begun
            self._with_batches.discard(begun.producer_id)
        if header.is_control:
            return self._ends_nothing(batch, header)
        if not header.is_transactional:
            return False
        aborted = self._aborting.get(header.producer_id)
        if aborted is not None and header.last_offset < aborted.last_offset:
            self._with_batches.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def kept_aborts(self) -> list[AbortedTransaction]:
        """Return the aborted transactions with batches, for the markers since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def _ends_nothing(self, batch: memoryview, header: BatchHeader) -> bool:
        producer_id = header.producer_id
        marker = read_marker(batch)
        if marker is None:
            # A control batch without its record was kept for its producer only; other control batches are not examined.
            return header.record_count == 0
        if marker.commit:
            had_batches = producer_id in self._committing
            self._committing.discard(producer_id)
            return not had_batches
        aborted = self._aborting.pop(producer_id, None)
        if aborted is None or producer_id not in self._with_batches:
            return True
        self._with_batches.discard(producer_id)
        self._kept.append(aborted)
        return False
