"""The row allocator: assigns partitions their rows in the shared partition table, and reuses released rows.

Held by the controller, which assigns rows; it never writes to one. A row never has two owners, however long a process
is stopped: each handler publishes the version of the metadata up to which it has applied changes, to the last affected
log, and a row is reused in three steps.

- Its topic is deleted. The row stays recorded until every handler has applied that and its owner has marked it closed.
- The record of the row is deleted, with the next change. No handler uses the row any more, but a handler may still have
  an unread message about it.
- Every handler has applied that change, and so has read all earlier messages.

A handler that is stopped, or dead and not yet replaced, applies nothing, so no row that it may write to is reused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.partitions import STATE_CLOSED, PartitionTable

#: Limit of rows released with one change: they add ten milliseconds to it.
MOST_LET_GO = 1000


class PartitionRows:
    """The free rows, and the rows of deleted partitions that their owners have not released."""

    def __init__(
        self,
        table: PartitionTable,
        assigned: Sequence[tuple[int, bool]],
        version: int,
        applied_version: Callable[[], int],
    ) -> None:
        """Start with ``assigned``: every recorded row, in order, and whether its topic is deleted, as of ``version``.

        ``applied_version`` returns the version of the metadata that every handler has applied.
        """
        self._table = table
        self._applied_version = applied_version
        self._never_used = assigned[-1][0] + 1 if assigned else 0
        in_use = {row for row, _ in assigned}
        self._free: deque[int] = deque()
        #: Rows without a record, with the version that deleted it, in order of versions.
        self._resting = deque((version, row) for row in range(self._never_used) if row not in in_use)
        #: Rows of deleted topics, with the version of the deletion.
        self._retired = {row: version for row, deleted in assigned if deleted}

    @property
    def available(self) -> int:
        """Number of rows that can be assigned now."""
        if self._resting:
            applied_version = self._applied_version()
            while self._resting and self._resting[0][0] <= applied_version:
                self._free.append(self._resting.popleft()[1])
        return self._table.rows - self._never_used + len(self._free)

    @property
    def run_short(self) -> bool:
        """Whether less than a tenth of the rows can be assigned."""
        return self.available * 10 < self._table.rows

    def allocate(self, count: int) -> list[int]:
        """Return ``count`` free rows. Raises ApiError(INVALID_PARTITIONS) when there are fewer."""
        if count > self.available:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"Unable to add {count} partition(s): max.partitions is {self._table.rows}, of which "
                f"{self.available} are left.",
            )
        fresh = min(count, self._table.rows - self._never_used)
        rows = list(range(self._never_used, self._never_used + fresh))
        self._never_used += fresh
        # A row rests as long as possible before it is reused: unused rows first, then the longest free.
        rows += [self._free.popleft() for _ in range(count - fresh)]
        return rows

    def put_back(self, rows: Iterable[int]) -> None:
        """Free rows that were assigned for a change that then failed."""
        self._free.extend(rows)

    def retire(self, rows: Iterable[int], version: int) -> None:
        """Record rows of partitions that are deleted as of a version."""
        for row in rows:
            self._retired[row] = version

    def release(self) -> list[int]:
        """Return retired rows that no handler uses any more, MOST_LET_GO at most; ``free`` them once recorded."""
        applied_version = self._applied_version()
        closed = (
            row
            for row, version in self._retired.items()
            if version <= applied_version and self._table.state(row) == STATE_CLOSED
        )
        return list(islice(closed, MOST_LET_GO))

    def free(self, rows: Iterable[int], version: int) -> None:
        """Free rows from ``release`` once every handler has applied the version that deleted their records."""
        for row in rows:
            del self._retired[row]
            self._resting.append((version, row))
