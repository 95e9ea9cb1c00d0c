"""The row allocator: which row of the shared partition table each partition gets, and when a row may be used again.

Held by the controller, which hands rows out; it never writes to one. A row is never in two hands, however long a
process stands still: each handler publishes up to which version of the metadata it has taken over changes, to the last
log that they concern, and a row is given out again in three steps.

- Its topic is deleted. It stays on record until every handler has taken that over and its owner has marked it closed.
- It is taken off the record, with the next change. Nobody has the row any more, but a handler may have a message about
  it still to read.
- Every handler has taken over that change, and with it has read what was sent before.

A handler that stops, or that is dead and not yet replaced, takes nothing over, so no row that it may write to is given
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.partitions import STATE_CLOSED, PartitionTable

#: Rows that are taken off the record with one change: ten milliseconds of it.
MOST_LET_GO = 1000


class PartitionRows:
    """The rows that are free, and those of deleted partitions that wait for their owners to let go."""

    def __init__(
        self,
        table: PartitionTable,
        taken: Sequence[tuple[int, bool]],
        version: int,
        taken_over: Callable[[], int],
    ) -> None:
        """``taken``: every row that is taken, with whether its topic is deleted, in order of rows, as of ``version``.

        ``taken_over`` returns the version of the metadata that every handler has taken over.
        """
        self._table = table
        self._taken_over = taken_over
        self._never_used = taken[-1][0] + 1 if taken else 0
        in_use = {row for row, _ in taken}
        self._free: deque[int] = deque()
        #: Rows that are off the record, with the version since which they are, in its order.
        self._resting = deque((version, row) for row in range(self._never_used) if row not in in_use)
        #: Rows of deleted topics, with the version since which these are.
        self._retired = {row: version for row, deleted in taken if deleted}

    @property
    def available(self) -> int:
        """How many rows can be taken at once."""
        if self._resting:
            taken_over = self._taken_over()
            while self._resting and self._resting[0][0] <= taken_over:
                self._free.append(self._resting.popleft()[1])
        return self._table.rows - self._never_used + len(self._free)

    @property
    def run_short(self) -> bool:
        """Whether fewer than a tenth of the rows can be taken."""
        return self.available * 10 < self._table.rows

    def take(self, count: int) -> list[int]:
        """Return ``count`` free rows. Raises ApiError(INVALID_PARTITIONS) when there are not so many."""
        if count > self.available:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"Unable to add {count} partition(s): max.partitions is {self._table.rows}, of which "
                f"{self.available} are left.",
            )
        fresh = min(count, self._table.rows - self._never_used)
        rows = list(range(self._never_used, self._never_used + fresh))
        self._never_used += fresh
        # A row rests as long as it can before it is used again: never used ones first, then the longest free.
        rows += [self._free.popleft() for _ in range(count - fresh)]
        return rows

    def put_back(self, rows: Iterable[int]) -> None:
        """Free rows that were taken for a change that then failed."""
        self._free.extend(rows)

    def retire(self, rows: Iterable[int], version: int) -> None:
        """Note rows whose partitions are deleted as of a version."""
        for row in rows:
            self._retired[row] = version

    def release(self) -> list[int]:
        """Return retired rows that nobody has any more, some hundred at most; ``free`` them once on record."""
        taken_over = self._taken_over()
        closed = (
            row
            for row, version in self._retired.items()
            if version <= taken_over and self._table.state(row) == STATE_CLOSED
        )
        return list(islice(closed, MOST_LET_GO))

    def free(self, rows: Iterable[int], version: int) -> None:
        """Make rows from ``released`` available once everybody has taken over the version that took them off record."""
        for row in rows:
            del self._retired[row]
            self._resting.append((version, row))
