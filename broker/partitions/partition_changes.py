"""The changes of a handler's partitions that metadata or a full disk asks for: logs to remove, open, bring up to date.

Runs in handler processes. To make the directory of a partition takes a good part of a millisecond, so a change of
thousands of partitions is worked off in slices (`slices`), in which the rest is served. Nobody notices an order: a
partition that somebody asks for is opened there and then, or closed if it has been deleted, and is up to date: what
an admin was told is in force for whatever is sent after that. What is to be done to partitions of one name is done in
the order in which it was asked for: a topic that was deleted and made again keeps its directory's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rotunda.broker.scheduling.slices import SlicedWork, Slices, Work

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
    from rotunda.broker.partitions.owned_partition import OwnedPartition

#: A partition by topic and number.
Place = tuple[str, int]

Deleted: TypeAlias = "Sequence[tuple[TopicInfo, PartitionInfo]]"


class PartitionChanges:
    """The steps that are to be taken, by partition."""

    def __init__(self) -> None:
        self._steps: dict[Place, list[Callable[[], None]]] = {}
        #: The partitions among them that are to be opened, by row, and their rows.
        self._to_open: dict[int, Place] = {}
        self._rows: dict[Place, int] = {}
        #: Rows of deleted partitions that may still be open.
        self._to_close: dict[int, Place] = {}
        #: Rows whose settings have changed, or that a write has left to be restored, and what does that to a row.
        self._to_alter: dict[int, Callable[[int], None]] = {}
        self._is_begun = False

    def __len__(self) -> int:
        return len(self._steps) + len(self._to_alter)

    def add(self, place: Place, step: Callable[[], None], *, opens: int | None = None) -> None:
        """Let a step be taken, after those that wait for the same place; it opens the row ``opens``."""
        self._steps.setdefault(place, []).append(step)
        if opens is not None:
            self._to_open[opens] = place
            self._rows[place] = opens

    def delete(self, deleted: Deleted, forget: Callable[[TopicInfo, PartitionInfo], None]) -> None:
        """Let partitions be forgotten, after what waits for the same places; there may be ten thousand.

        Whoever asks for one of their rows has it forgotten at once. ``forget`` says `closed`.
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
        """Take note that the partition of a row is closed."""
        self._to_close.pop(row, None)

    def alter(self, rows: Iterable[int], bring_up_to_date: Callable[[int], None]) -> None:
        """Let each of these rows be brought up to date, by this instead of what waits for that already."""
        self._to_alter.update(dict.fromkeys(rows, bring_up_to_date))

    def cancel(self, row: int) -> None:
        """Let nobody who asks for a row open or alter it any more: its partition has been deleted since."""
        self._to_alter.pop(row, None)
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

    def close_now(self, row: int) -> None:
        """Forget the partition of a row if it has been deleted."""
        place = self._to_close.get(row)
        if place is not None:
            self._take(place)

    def alter_now(self, row: int) -> None:
        """Bring a row up to date if it waits for that."""
        bring_up_to_date = self._to_alter.pop(row, None)
        if bring_up_to_date is not None:
            bring_up_to_date(row)

    def begin(self, slices: Slices, taken: Callable[[], None], done: Callable[[], None]) -> None:
        """Have the steps taken in slices, unless that is being done.

        ``taken`` is called after those of each partition, ``done`` when none is left.
        """
        if self._is_begun or not len(self):
            return

        def end(_: object = None) -> None:
            self._is_begun = False
            done()

        self._is_begun = True
        slices.add_now(SlicedWork(self.work(taken), "changes", end, end, ("opening and removing logs", "")))

    def work(self, taken: Callable[[], None] | None = None) -> Work:
        """Take all steps, those of one partition in each slice; also those that are added meanwhile."""
        while len(self):
            if self._to_alter:
                self.alter_now(next(iter(self._to_alter)))
            else:
                self._take(next(iter(self._steps)))
            if taken is not None:
                taken()
            yield None

    def finish(self, taken: Callable[[], None] | None = None) -> None:
        """Take all steps at once; `taken` is called after those of each partition."""
        for _ in self.work(taken):
            pass

    def _take(self, place: Place) -> None:
        row = self._rows.pop(place, None)
        if row is not None:
            del self._to_open[row]
        for step in self._steps.pop(place):
            step()


class OwnedPartitions(dict[int, "OwnedPartition"]):
    """The partitions of this handler by row. What waits to be done to one is done when it is asked for."""

    def __init__(self, changes: PartitionChanges) -> None:
        super().__init__()
        self._changes = changes

    def get(self, row: int, default: Any = None) -> Any:
        """Return the partition of a row, or None when this handler has none there."""
        self._changes.close_now(row)
        self._changes.alter_now(row)
        owned = super().get(row)
        if owned is None and self._changes.open_now(row):
            owned = super().get(row)
        return default if owned is None else owned
