"""The partition table: the state that each partition's owner publishes to every other process. HOT.

A row's log_end_offset is the commit point of the broker: a record below it is acknowledged and durable, one at or above
it does not exist. Each row has one writing process, the handler that owns the partition (or its replacement), and any
number of readers; layout.PARTITION_ROW has the protocol. The waiter flags follow the rows: a handler with a parked
fetch raises its own flag for the row, and the owner reads the row's flags after it published, and adds the row to the
list of each handler whose flag is up (`moved_rows`). Knows nothing of topics, files or requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from rotunda.shm.layout import FETCHED, PARTITION_ROW, WAITER
from rotunda.shm.tables.moved_rows import MovedRows
from rotunda.shm.words import fence, words_of

STATE_UNOPENED = 0
STATE_OPEN = 1
STATE_CLOSED = 2

_ROW = PARTITION_ROW.size // 8
_END = PARTITION_ROW.word("log_end_offset")
_START = PARTITION_ROW.word("log_start_offset")
_STABLE = PARTITION_ROW.word("last_stable_offset")
_STATE = PARTITION_ROW.word("state")
_EPOCH = PARTITION_ROW.word("leader_epoch")
_LOG_BYTES = PARTITION_ROW.word("log_bytes")
_REMOVALS = PARTITION_ROW.word("removals")
_FAULT = PARTITION_ROW.word("fault")
_RECORDS_IN = PARTITION_ROW.word("records_in")
_BYTES_IN = PARTITION_ROW.word("bytes_in")
_SLOT_A = PARTITION_ROW.word("a_end_offset")
_SLOT_B = PARTITION_ROW.word("b_end_offset")
# Within a slot; its first word is the end offset.
_SEGMENT_BASE = PARTITION_ROW.word("a_segment_base") - _SLOT_A
_POSITION = PARTITION_ROW.word("a_position") - _SLOT_A
_SEQUENCE = PARTITION_ROW.word("a_sequence") - _SLOT_A
_SEQUENCE_A, _SEQUENCE_B = _SLOT_A + _SEQUENCE, _SLOT_B + _SEQUENCE
_READ_ATTEMPTS = 100_000  # each failure means that the owner published meanwhile; this many mean a corrupt row


class RowCorrupt(Exception):  # noqa: N818  named for what is the case
    """No slot of a row matches its log end, which no writer can cause."""


class RowWriter:
    """The owner's writer of one row. It may replace a writer that died at any point."""

    __slots__ = ("_other", "_row", "_sequence", "_slot", "_words")

    def __init__(self, words: memoryview, row: int) -> None:
        self._words = words
        self._row = row * _ROW
        a, b = self._row + _SLOT_A, self._row + _SLOT_B
        current = _current_slot(words, self._row)
        self._slot = b if current == a else a  # the one to fill next
        self._other = current
        # Even, and above the sequences of a writer that died half-way.
        self._sequence = (max(words[a + _SEQUENCE], words[b + _SEQUENCE]) + 1) & -2

    def publish(self, end: int, segment_base: int, position: int, start: int, stable: int, log_bytes: int) -> None:
        """Publish the log end `end`, at byte `position` of the segment `segment_base`.

        `start` and `stable` are the log start and last stable offset, `log_bytes` the size of all segments.
        """
        words = self._words
        slot = self._slot
        sequence = self._sequence
        # SYNC: odd, contents, even, then the end; pairs with the loads in PartitionTable.read_position.
        words[slot + _SEQUENCE] = sequence + 1
        words[slot] = end
        words[slot + _SEGMENT_BASE] = segment_base
        words[slot + _POSITION] = position
        self._sequence = sequence = sequence + 2
        words[slot + _SEQUENCE] = sequence
        row = self._row
        # Between the stores the stable offset is below the end: a smaller one is never wrong.
        words[row + _END] = end  # the commit point
        words[row + _START] = start
        words[row + _STABLE] = stable
        words[row + _LOG_BYTES] = log_bytes
        self._slot = self._other
        self._other = slot

    def count_appended(self, records: int, size_bytes: int) -> None:
        """Count appended records and bytes."""
        words = self._words
        row = self._row
        words[row + _RECORDS_IN] += records
        words[row + _BYTES_IN] += size_bytes

    def note_removal(self) -> None:
        """Publish that files of the log were removed: readers' cached inodes and positions are invalid."""
        # SYNC: after the files have changed; pairs with the load in PartitionTable.removals.
        self._words[self._row + _REMOVALS] += 1


def _current_slot(words: memoryview, row: int) -> int:
    """Return the slot that matches the row's log end, the newer if both do; RowCorrupt if none."""
    a, b = row + _SLOT_A, row + _SLOT_B
    newer, older = (a, b) if words[a + _SEQUENCE] >= words[b + _SEQUENCE] else (b, a)
    for slot in (newer, older):
        if not words[slot + _SEQUENCE] & 1 and words[slot] == words[row + _END]:
            return slot
    raise RowCorrupt(f"row {row // _ROW}: no slot for end {words[row + _END]}")


class PartitionTable:
    """The rows and waiter flags at `base` of `view`; zeroed memory is a table of unopened partitions."""

    __slots__ = ("_fetched", "_flags", "_handlers", "_words", "moved_rows", "rows")

    def __init__(self, view: memoryview, base: int, rows: int, handlers: int) -> None:
        rows_bytes = rows * PARTITION_ROW.size
        self.rows = rows
        self._handlers = handlers
        self._words = words_of(view, base, rows_bytes)
        self._flags = words_of(view, base + rows_bytes, rows * handlers * WAITER.size)
        self._fetched = words_of(view, base + rows_bytes + self._flags.nbytes, rows * handlers * FETCHED.size)
        self.moved_rows = MovedRows(view, base + rows_bytes + self._flags.nbytes + self._fetched.nbytes, handlers)

    @staticmethod
    def bytes_needed(rows: int, handlers: int) -> int:
        """Return the bytes of shared memory for `rows` partitions and `handlers` possible waiters each."""
        rows_bytes = rows * (PARTITION_ROW.size + handlers * (WAITER.size + FETCHED.size))
        return rows_bytes + MovedRows.bytes_needed(handlers)

    def row_writer(self, row: int) -> RowWriter:
        """Return the writer of `row`: for the process that owns the partition, and for no other."""
        return RowWriter(self._words, row)

    def read_end(self, row: int) -> int:
        """Return the log end offset (= high watermark)."""
        end: int = self._words[row * _ROW + _END]
        return end

    def read_position(self, row: int) -> tuple[int, int, int]:
        """Return (log end offset, base offset of the active segment, byte position of that end in it).

        The three are consistent. RowCorrupt if the row never is.
        """
        words = self._words
        row *= _ROW
        attempts = 0
        while attempts < _READ_ATTEMPTS:
            attempts += 1
            # SYNC: the end, then sequence, contents, sequence; pairs with the stores in RowWriter.publish.
            end, sequence, other = words[row + _END], words[row + _SEQUENCE_A], words[row + _SEQUENCE_B]
            slot = row + _SLOT_A
            if other > sequence:
                slot, sequence, other = row + _SLOT_B, other, sequence
            if words[slot] != end or sequence & 1:
                slot, sequence = 2 * row + _SLOT_A + _SLOT_B - slot, other
                if words[slot] != end or sequence & 1:
                    continue
            segment_base, position = words[slot + _SEGMENT_BASE], words[slot + _POSITION]
            if words[slot + _SEQUENCE] == sequence:
                return end, segment_base, position
        raise RowCorrupt(f"row {row // _ROW}: no slot for end {words[row + _END]}")

    def read_log(self, row: int) -> tuple[int, tuple[int, int, int], int]:
        """Return the inputs of a search for records: last stable offset, `read_position`, log start offset. HOT.

        Read in this order, so that the stable offset is at or below the end. RowCorrupt as in `read_position`.
        """
        words = self._words
        at = row * _ROW
        # SYNC: the stable offset before the end; pairs with the stores in RowWriter.publish.
        stable = words[at + _STABLE]
        return stable, self.read_position(row), words[at + _START]

    def read_start(self, row: int) -> int:
        """Return the log start offset."""
        start: int = self._words[row * _ROW + _START]
        return start

    def read_stable(self, row: int) -> int:
        """Return the last stable offset. Read before the end it is at or below the end."""
        # SYNC: before the end; pairs with the stores in RowWriter.publish.
        stable: int = self._words[row * _ROW + _STABLE]
        return stable

    def read_fetched(self, row: int) -> tuple[int, int, int, int, int]:
        """Return the inputs of a fetch: (state, leader epoch, last stable offset, log end offset, log start offset).

        Read in this order, so that the stable offset is at or below the end. HOT.
        """
        words = self._words
        row *= _ROW
        # SYNC: the stable offset before the end; pairs with the stores in RowWriter.publish.
        return words[row + _STATE], words[row + _EPOCH], words[row + _STABLE], words[row + _END], words[row + _START]

    def log_bytes(self, row: int) -> int:
        """Return the bytes of all segments."""
        log_bytes: int = self._words[row * _ROW + _LOG_BYTES]
        return log_bytes

    def removals(self, row: int) -> int:
        """Return a number that changes when files of the log are removed."""
        # SYNC: before the files are read; pairs with the store in RowWriter.note_removal.
        removals: int = self._words[row * _ROW + _REMOVALS]
        return removals

    def state(self, row: int) -> int:
        """Return STATE_UNOPENED, STATE_OPEN or STATE_CLOSED."""
        state: int = self._words[row * _ROW + _STATE]
        return state

    def set_state(self, row: int, state: int) -> None:
        """Store the state. Owner only."""
        self._words[row * _ROW + _STATE] = state

    def leader_epoch(self, row: int) -> int:
        """Return the current leader epoch."""
        epoch: int = self._words[row * _ROW + _EPOCH]
        return epoch

    def set_leader_epoch(self, row: int, epoch: int) -> None:
        """Store the leader epoch. Owner only."""
        self._words[row * _ROW + _EPOCH] = epoch

    def fault(self, row: int) -> int:
        """Return the error number with which the partition's log went offline, or 0."""
        fault: int = self._words[row * _ROW + _FAULT]
        return fault

    def set_fault(self, row: int, error: int) -> None:
        """Store the error number with which the log went offline, or 0. Owner only."""
        self._words[row * _ROW + _FAULT] = error

    def reset(self, row: int) -> None:
        """Make a closed row ready for another partition, as if it had never been used. Owner only."""
        self.row_writer(row).publish(0, 0, 0, 0, 0, 0)
        self._words[row * _ROW + _RECORDS_IN] = 0
        self._words[row * _ROW + _BYTES_IN] = 0
        self.set_leader_epoch(row, 0)
        self.set_fault(row, 0)
        self.set_state(row, STATE_UNOPENED)

    def records_in(self, row: int) -> int:
        """Return the number of records appended in this run of the broker."""
        records: int = self._words[row * _ROW + _RECORDS_IN]
        return records

    def bytes_in(self, row: int) -> int:
        """Return the size of the records appended in this run of the broker."""
        size_bytes: int = self._words[row * _ROW + _BYTES_IN]
        return size_bytes

    def bytes_out(self, row: int) -> int:
        """Return the bytes of records in all handlers' fetch responses."""
        first = row * self._handlers
        total: int = sum(self._fetched[first : first + self._handlers])
        return total

    def count_fetched(self, row: int, handler: int, size_bytes: int) -> None:
        """Count records in a fetch response. That handler only."""
        self._fetched[row * self._handlers + handler] += size_bytes

    def forget_fetched(self, row: int, handler: int) -> None:
        """Reset the count, because the partition was deleted. That handler only."""
        self._fetched[row * self._handlers + handler] = 0

    def set_waiting(self, row: int, handler: int, flag: bool) -> None:
        """Raise or lower `handler`'s own flag. After raising it, read the row's end again, then sleep."""
        self._flags[row * self._handlers + handler] = 1 if flag else 0
        # SYNC: my flag before my next load of the end; pairs with the fence in waiters.
        fence()

    def raise_flags(self, rows: Iterable[int], handler: int) -> None:
        """Raise `handler`'s own flag for many rows. Read their ends again afterwards, then sleep."""
        flags, handlers = self._flags, self._handlers
        for row in rows:
            flags[row * handlers + handler] = 1
        # SYNC: my flags before my next loads of the ends; pairs with the fence in waiters.
        fence()

    def waiters(self, row: int) -> list[int]:
        """Return the handlers whose flag is up. The owner calls it after publishing."""
        # SYNC: my end before my load of the flags; pairs with the fence in set_waiting.
        fence()
        first = row * self._handlers
        flags = self._flags[first : first + self._handlers].tolist()
        if 1 not in flags:
            return []
        return [handler for handler, flag in enumerate(flags) if flag]
