"""What is still to be done to a handler's partitions since the metadata changed: logs to remove, to open, to change.

Runs in handler processes. To make the directory of a partition takes a good part of a millisecond, so a change of
thousands of partitions is worked off in slices (`slices`), in which the rest is served. Nobody notices an order: a
partition that somebody asks for is opened there and then. What is to be done to partitions of one name is done in the
order in which it was asked for: a topic that was deleted and made again keeps its directory's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.server.slices import Work, finish

if TYPE_CHECKING:
    from broker.server.partition_appends import OwnedPartition

#: A partition by topic and number.
Place = tuple[str, int]


class PartitionChanges:
    """The steps that are to be taken, by partition."""

    def __init__(self) -> None:
        self._steps: dict[Place, list[Callable[[], None]]] = {}
        #: The partitions among them that are to be opened, by row, and their rows.
        self._to_open: dict[int, Place] = {}
        self._rows: dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, place: Place, step: Callable[[], None], *, opens: int | None = None) -> None:
        """Let a step be taken, after those that wait for the same place; it opens the row ``opens``."""
        self._steps.setdefault(place, []).append(step)
        if opens is not None:
            self._to_open[opens] = place
            self._rows[place] = opens

    def is_to_open(self, row: int) -> bool:
        """Return whether a row waits to be opened."""
        return row in self._to_open

    def cancel_opening(self, row: int) -> None:
        """Let nobody who asks for a row open it any more: its partition has been deleted since."""
        place = self._to_open.pop(row, None)
        if place is not None:
            del self._rows[place]

    def open_now(self, row: int) -> bool:
        """Take the steps that end with a row open; False if it does not wait for that."""
        place = self._to_open.get(row)
        if place is None:
            return False
        self._take(place)
        return True

    def work(self) -> Work:
        """Take all steps, those of one partition in each slice."""
        while self._steps:
            self._take(next(iter(self._steps)))
            yield None

    def finish(self) -> None:
        """Take all steps at once."""
        finish(self.work())

    def _take(self, place: Place) -> None:
        row = self._rows.pop(place, None)
        if row is not None:
            del self._to_open[row]
        for step in self._steps.pop(place):
            step()


class OwnedPartitions(dict[int, "OwnedPartition"]):
    """The partitions of this handler by row. One that waits to be opened is opened when it is asked for."""

    def __init__(self, changes: PartitionChanges) -> None:
        super().__init__()
        self._changes = changes

    def get(self, row: int, default: Any = None) -> Any:
        """Return the partition of a row, or None when this handler has none there."""
        owned = super().get(row)
        if owned is None and self._changes.open_now(row):
            owned = super().get(row)
        return default if owned is None else owned
