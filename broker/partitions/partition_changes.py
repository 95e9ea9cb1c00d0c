"""Pending changes of a handler's partitions after metadata changes or a full disk: open, delete or update logs.

Runs in handler processes. Creating the directory of a partition needs a large part of a millisecond, so thousands of
changes run in slices (`slices`), and requests are served in between. The delay is not visible: a request for a
partition with pending changes first opens it, closes it if it was deleted, or updates it, so that acknowledged settings
apply to all later requests. Changes of partitions with the same name run in the order they were added: a topic that is
deleted and recreated reuses its directory's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rotunda.broker.scheduling.slices import SlicedWork, Slices, Work

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
    from rotunda.broker.partitions.owned_partition import OwnedPartition

#: Topic name and partition number.
Place = tuple[str, int]

Deleted: TypeAlias = "Sequence[tuple[TopicInfo, PartitionInfo]]"


class PartitionChanges:
    """The pending steps, by partition."""

    def __init__(self) -> None:
        self._steps: dict[Place, list[Callable[[], None]]] = {}
        #: Partitions with a pending open, by row, and the inverse.
        self._to_open: dict[int, Place] = {}
        self._rows: dict[Place, int] = {}
        #: Rows of deleted partitions that may still be open.
        self._to_close: dict[int, Place] = {}
        #: Rows with changed settings, or with a failed write to recover from, and the function that updates a row.
        self._to_alter: dict[int, Callable[[int], None]] = {}
        self._is_begun = False

    def __len__(self) -> int:
        return len(self._steps) + len(self._to_alter)

    def add(self, place: Place, step: Callable[[], None], *, opens: int | None = None) -> None:
        """Add a step, after the pending steps of the same partition; it opens the row ``opens``."""
        self._steps.setdefault(place, []).append(step)
        if opens is not None:
            self._to_open[opens] = place
            self._rows[place] = opens

    def delete(self, deleted: Deleted, forget: Callable[[TopicInfo, PartitionInfo], None]) -> None:
        """Add the deletion of partitions, after the pending steps of the same names; there may be ten thousand.

        A request for one of their rows runs the deletion at once. ``forget`` must call `closed`.
        """
        steps, to_close, is_waited_for = self._steps, self._to_close, self._to_open or self._to_alter
        for topic, partition in deleted:
            index, row, _ = partition
            if is_waited_for:
                self.cancel(row)
            place = to_close[row] = topic.name, index
            step = partial(forget, topic, partition)
            if place in steps:
                steps[place].append(step)
            else:
                steps[place] = [step]

    def closed(self, row: int) -> None:
        """Record that the partition of a row is closed."""
        self._to_close.pop(row, None)

    def alter(self, rows: Iterable[int], bring_up_to_date: Callable[[int], None]) -> None:
        """Add an update of each of these rows; replaces an update that is pending for a row."""
        self._to_alter.update(dict.fromkeys(rows, bring_up_to_date))

    def cancel(self, row: int) -> None:
        """Cancel the pending open and update of a row: its partition has been deleted since."""
        self._to_alter.pop(row, None)
        place = self._to_open.pop(row, None)
        if place is not None:
            del self._rows[place]

    def open_now(self, row: int) -> bool:
        """Run the steps that open a row; False if none is pending."""
        place = self._to_open.get(row)
        if place is None:
            return False
        self._run(place)
        return True

    def close_now(self, row: int) -> None:
        """Run the pending deletion of the partition of a row, if any."""
        place = self._to_close.get(row)
        if place is not None:
            self._run(place)

    def alter_now(self, row: int) -> None:
        """Run the pending update of a row, if any."""
        bring_up_to_date = self._to_alter.pop(row, None)
        if bring_up_to_date is not None:
            bring_up_to_date(row)

    def begin(self, slices: Slices, progress: Callable[[], None], done: Callable[[], None]) -> None:
        """Run the steps in slices, unless this is already in progress.

        Calls ``progress`` after the steps of each partition, ``done`` when no steps remain.
        """
        if self._is_begun or not len(self):
            return

        def end(_: object = None) -> None:
            self._is_begun = False
            done()

        self._is_begun = True
        slices.add_now(SlicedWork(self.work(progress), "changes", end, end, ("opening and removing logs", "")))

    def work(self, progress: Callable[[], None] | None = None) -> Work:
        """Run all steps, one partition per slice, including steps added meanwhile."""
        while len(self):
            if self._to_alter:
                self.alter_now(next(iter(self._to_alter)))
            else:
                self._run(next(iter(self._steps)))
            if progress is not None:
                progress()
            yield None

    def finish(self, progress: Callable[[], None] | None = None) -> None:
        """Run all steps at once; calls `progress` after those of each partition."""
        for _ in self.work(progress):
            pass

    def _run(self, place: Place) -> None:
        row = self._rows.pop(place, None)
        if row is not None:
            del self._to_open[row]
        for step in self._steps.pop(place):
            step()


class OwnedPartitions(dict[int, "OwnedPartition"]):
    """The partitions of this handler by row. Access to a partition first runs its pending changes."""

    def __init__(self, changes: PartitionChanges) -> None:
        super().__init__()
        self._changes = changes

    def get(self, row: int, default: Any = None) -> Any:
        """Return the partition of a row, or None if this handler has none there."""
        self._changes.close_now(row)
        self._changes.alter_now(row)
        owned = super().get(row)
        if owned is None and self._changes.open_now(row):
            owned = super().get(row)
        return default if owned is None else owned
