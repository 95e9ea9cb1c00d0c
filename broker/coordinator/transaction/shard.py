"""One partition of `__transaction_state` and its transactional ids.

Runs in the handler that owns the partition. Memory changes when the record of the change is appended, so that the order
of the records is the order of the changes; a response is sent only after the record it depends on is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.coordinator_log import call_each, nobody_waits
from rotunda.broker.coordinator.records import RecordTable
from rotunda.broker.coordinator.transaction.records import TRANSACTION_LOG, encode_key, encode_value, metadata_of
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.long_responses import AT_ONCE
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog

#: Memory of a transactional id, without its text.
TRANSACTION_BYTES = 1500

#: Called with a Kafka error code; 0 once the change is committed.
Done = Callable[[int], None]


class Transaction:
    """A transactional id: its metadata, and the pending callbacks."""

    __slots__ = ("at_end", "committed", "metadata", "transactional_id", "waiting", "writes")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        #: Number of its records appended by this process, and of the committed ones.
        self.writes = self.committed = 0
        #: (number of the record that must be committed first, callback)
        self.waiting: list[tuple[int, Done]] = []
        #: Callbacks for the completion of the current ending: of requests for it, and of requests blocked by it.
        self.at_end: list[Done] = []


class TransactionShard:
    """The transactions of one partition."""

    def __init__(self, log: CoordinatorLog, loaded: Callable[[TransactionShard], Steps[None]]) -> None:
        self.transactions: dict[str, Transaction] = {}
        #: Their approximate memory.
        self.size_bytes = 0
        self.partition = log.partition
        self.is_open = True
        self.has_failed = False
        self._log = log
        self._loaded = loaded

    # ---- loading -------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
        return _RECORDS.apply(self, key, value, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker: no transaction writes to this topic."""

    def loaded(self) -> Steps[None]:
        """Start the coordination after all records have been applied."""
        yield from self._loaded(self)

    # ---- changes -------------------------------------------------------------------------------------------------

    def write(self, transactional_id: str, metadata: TransactionMetadata, version: int, done: Done) -> Transaction:
        """Set the metadata of an id, and call ``done`` once it is committed."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = self.transactions[transactional_id] = Transaction(transactional_id, metadata)
            self.size_bytes += id_bytes(transactional_id)
        transaction.metadata = metadata
        transaction.writes += 1
        transaction.waiting.append((transaction.writes, done))
        record = (encode_key(transactional_id), encode_value(metadata, version))
        self._log.append([record], lambda error: self._written(transaction, error))
        return transaction

    def forget(self, transactional_id: str) -> None:
        del self.transactions[transactional_id]
        self.size_bytes -= id_bytes(transactional_id)
        self._log.append([(encode_key(transactional_id), None)], nobody_waits)

    def when_committed(self, transaction: Transaction, done: Done) -> None:
        """Call ``done`` once the metadata of an id is committed, perhaps at once."""
        if transaction.committed == transaction.writes:
            done(0)
        else:
            transaction.waiting.append((transaction.writes, done))

    def close(self) -> Steps[None]:
        """Close the partition; return the steps that fail pending requests and free all transactions."""
        self.is_open = False
        return self._release()

    def _release(self) -> Steps[None]:
        released = 0
        while self.transactions:
            _, transaction = self.transactions.popitem()
            waiting = [done for _, done in transaction.waiting] + transaction.at_end
            transaction.waiting, transaction.at_end = [], []
            call_each(waiting, int(ErrorCode.NOT_COORDINATOR))
            released += 1 + len(waiting)
            if released >= AT_ONCE:
                yield
                released = 0

    def _written(self, transaction: Transaction, error: int) -> None:
        if not self.is_open:
            return
        if error:
            # Memory is ahead of the log until the partition is loaded again.
            self.has_failed = True
            error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        transaction.committed += 1
        waiting = transaction.waiting
        while waiting and waiting[0][0] <= transaction.committed:
            call_each([waiting.pop(0)[1]], error)


def _apply(shard: TransactionShard, key: Any, value: Any, _: int) -> None:
    transactional_id = key.transactional_id
    if value is not None:
        metadata = metadata_of(value)
        if transactional_id not in shard.transactions:
            shard.size_bytes += id_bytes(transactional_id)
        shard.transactions[transactional_id] = Transaction(transactional_id, metadata)
    elif shard.transactions.pop(transactional_id, None) is not None:
        shard.size_bytes -= id_bytes(transactional_id)


#: The records of `__transaction_state`.
_RECORDS: Final = RecordTable[TransactionShard]({TRANSACTION_LOG: _apply})


def id_bytes(transactional_id: str) -> int:
    return TRANSACTION_BYTES + 2 * len(transactional_id)
