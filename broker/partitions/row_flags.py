"""The flags of rows: the handlers that wait for a partition to move, and whose bells then ring.

Runs in handler processes and the controller. A handler raises its own flags, in the rows of any owner; the owner of a
row checks them when the row has moved. Must not know about the waiting requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.tables.partitions import PartitionTable


class RowFlags:
    """The flags of one handler, and the flags of other handlers in its rows."""

    def __init__(self, partitions: PartitionTable, index: int, bells: Sequence[SemaphoreBell]) -> None:
        self._partitions = partitions
        self._index = index
        self._bells = bells

    def raise_all(self, rows: list[int]) -> None:
        """Raise this handler's flags for rows; their owners then announce every move."""
        self._partitions.raise_flags(rows, self._index)

    def lower(self, row: int) -> None:
        """Lower this handler's flag for a row."""
        self._partitions.set_waiting(row, self._index, False)

    def announce_all(self) -> None:
        """Make every handler check all rows it waits for: a predecessor may have died before it announced a move."""
        self._partitions.moved_rows.note_all(self._index)
        for bell in self._bells:
            bell.ring()

    def announce(self, rows: list[int]) -> None:
        """Record this handler's moved rows for the handlers that wait for them, and ring their bells."""
        to_ring: set[int] = set()
        for row in rows:
            for target in self._partitions.waiters(row):
                if target != self._index:
                    self._partitions.moved_rows.note(self._index, target, row)
                    to_ring.add(target)
        for target in to_ring:
            self._bells[target].ring()
