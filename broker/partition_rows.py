"""Which row of the shared partition table each partition gets, and when a row may be used again.

Held by the controller, which hands rows out; it never writes to one. A row belongs to the owner of its
partition until that owner has marked it closed, which it does once it has seen that the topic is deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from broker.clock import Clock
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from shm.partitions import STATE_CLOSED, PartitionTable

#: A row that was handed out while still marked closed by its former owner, and whose partition was deleted
#: before its new owner opened it, shows no sign of having been let go. It is used again after this time, far
#: longer than an owner needs to notice.
UNSEEN_CLOSE_NS = 30_000_000_000


#: Rows that are taken off the record with one change: ten milliseconds of it.
MOST_LET_GO = 1000


class PartitionRows:
    """The rows that are free, and those of deleted partitions that wait for their owners to let go."""

    def __init__(self, table: PartitionTable, taken: Sequence[tuple[int, bool]], clock: Clock) -> None:
        """``taken``: every row that is taken, with whether its topic is deleted, in order of rows."""
        self._table = table
        self._clock = clock
        self._never_used = taken[-1][0] + 1 if taken else 0
        in_use = {row for row, _ in taken}
        self._free = deque(row for row in range(self._never_used) if row not in in_use)
        now_ns = clock.monotonic_ns()
        self._retired = {row: now_ns for row, deleted in taken if deleted}
        #: Rows whose "closed" was written by the owner before the present one.
        self._closed_before = {row for row, deleted in taken if not deleted and self._is_closed(row)}

    @property
    def available(self) -> int:
        """How many rows can be taken at once."""
        return self._table.rows - self._never_used + len(self._free)

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
        self._closed_before.update(row for row in rows if self._is_closed(row))
        return rows

    def put_back(self, rows: Iterable[int]) -> None:
        """Free rows that were taken for a change that then failed."""
        self._free.extend(rows)

    def retire(self, rows: Iterable[int]) -> None:
        """Note rows whose partitions are deleted."""
        now_ns = self._clock.monotonic_ns()
        for row in rows:
            self._retired[row] = now_ns
            if not self._is_closed(row):
                self._closed_before.discard(row)

    def let_go(self) -> list[int]:
        """Return retired rows that their owners have closed, some hundred at most; ``free`` them once on record."""
        closed = (row for row, retired_ns in self._retired.items() if self._is_let_go(row, retired_ns))
        return list(islice(closed, MOST_LET_GO))

    def free(self, rows: Iterable[int]) -> None:
        """Make rows from ``let_go`` available."""
        for row in rows:
            del self._retired[row]
            self._closed_before.discard(row)
            self._free.append(row)

    def _is_let_go(self, row: int, retired_ns: int) -> bool:
        if not self._is_closed(row):
            return False
        return row not in self._closed_before or self._clock.monotonic_ns() - retired_ns > UNSEEN_CLOSE_NS

    def _is_closed(self, row: int) -> bool:
        return self._table.state(row) == STATE_CLOSED
