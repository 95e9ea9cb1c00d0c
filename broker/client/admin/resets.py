"""New offsets for a group: the rules of Kafka's own tool, including clamping and fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.admin import offsets
from rotunda.broker.errors import RotundaError

if TYPE_CHECKING:
    from rotunda.broker.client.admin.offsets import Bounds
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.client.topic_partition import TopicPartition

NO_PARTITION: Final = "the partition does not exist; not changed"
ABOVE_LATEST: Final = "offset {} is higher than the latest offset; set to that"
BELOW_EARLIEST: Final = "offset {} is lower than the earliest offset; set to that"
NO_SUCH_TIME: Final = "no record of that time or later; set to the latest offset"
NO_OFFSET: Final = "the group has no offset there; set to the latest offset"


class Goal(Enum):
    """The target of a reset; its number in brackets."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    """(the offset)"""
    SHIFT = auto()
    """(records, forward or with a minus backward)"""
    TIME = auto()
    """(milliseconds since the epoch)"""
    CURRENT = auto()


class Reset(NamedTuple):
    """One partition's offset in the group, if any, and its new one; None if it cannot be reset."""

    partition: TopicPartition
    before: int | None
    after: int | None
    warning: str | None


class _Known(NamedTuple):
    """Known facts of one partition. `timed`: the first offset of the requested time."""

    before: int | None
    bounds: Bounds
    timed: int | None
    number: int


_Choice = tuple[int, str | None]


def plan(
    client: BlockingClient,
    goal: Goal,
    number: int,
    partitions: Collection[TopicPartition],
    current: Mapping[TopicPartition, int],
) -> list[Reset]:
    """Return the planned offset of each partition, in order; changes nothing.

    Raises ApiError, and RotundaError if a partition to be shifted has no offset.
    """
    bounds = offsets.bounds(client, partitions)
    unshiftable = [each for each in sorted(bounds) if goal is Goal.SHIFT and each not in current]
    if unshiftable:
        named = ", ".join(f"{each.topic}-{each.partition}" for each in unshiftable)
        raise RotundaError(f"cannot shift {named}: the group has no offset there; use another option")
    timed = offsets.at_time(client, bounds, number) if goal is Goal.TIME else {}
    resets = []
    for each in sorted(partitions):
        before = current.get(each)
        if each not in bounds:
            resets.append(Reset(each, before, None, NO_PARTITION))
            continue
        resets.append(Reset(each, before, *_CHOICES[goal](_Known(before, bounds[each], timed.get(each), number))))
    return resets


def _clamped(offset: int, bounds: Bounds) -> _Choice:
    if offset > bounds.end:
        return bounds.end, ABOVE_LATEST.format(offset)
    if offset < bounds.start:
        return bounds.start, BELOW_EARLIEST.format(offset)
    return offset, None


def _shifted(known: _Known) -> _Choice:
    return _clamped((known.before or 0) + known.number, known.bounds)


def _at_time(known: _Known) -> _Choice:
    return (known.bounds.end, NO_SUCH_TIME) if known.timed is None else (known.timed, None)


def _current(known: _Known) -> _Choice:
    return (known.bounds.end, NO_OFFSET) if known.before is None else (known.before, None)


_CHOICES: Final[Mapping[Goal, Callable[[_Known], _Choice]]] = {
    Goal.EARLIEST: lambda known: (known.bounds.start, None),
    Goal.LATEST: lambda known: (known.bounds.end, None),
    Goal.OFFSET: lambda known: _clamped(known.number, known.bounds),
    Goal.SHIFT: _shifted,
    Goal.TIME: _at_time,
    Goal.CURRENT: _current,
}
