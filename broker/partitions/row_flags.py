"""The flags of rows: which handlers wait for a partition to move, and who is rung when it has.

Runs in handler processes and the controller. A handler raises its own flags, in the rows of whomever they belong to;
the owner of a row looks at them when the row has moved. Knows nothing of what waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.tables.partitions import PartitionTable


class RowFlags:
    """The flags of one handler, and those that others have raised in its rows."""

    def __init__(self, partitions: PartitionTable, index: int, bells: Sequence[SemaphoreBell]) -> None:
        self._partitions = partitions
        self._index = index
        self._bells = bells

    def raise_all(self, rows: list[int]) -> None:
        """Raise this handler's flags for rows; from then on their owners announce that they have moved."""
        self._partitions.raise_flags(rows, self._index)

    def lower(self, row: int) -> None:
        """Lower this handler's flag for a row."""
        self._partitions.set_waiting(row, self._index, False)

    def announce_all(self) -> None:
        """Let every handler look at all rows that it waits for: a predecessor had no time to announce what moved."""
        self._partitions.moved_rows.note_all(self._index)
        for bell in self._bells:
            bell.ring()

    def announce(self, rows: list[int]) -> None:
        """Note own rows that have moved for the handlers that wait for them, and ring their bells."""
        to_ring: set[int] = set()
        for row in rows:
            for target in self._partitions.waiters(row):
                if target != self._index:
                    self._partitions.moved_rows.note(self._index, target, row)
                    to_ring.add(target)
        for target in to_ring:
            self._bells[target].ring()
