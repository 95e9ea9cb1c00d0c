"""An assignment: partitions by topic, the single form in which assignments are stored, compared and computed.

Pure. An assignment is a mapping of topic id (16 bytes) to partitions, without empty entries, and is immutable: a change
creates another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

#: The partitions by topic id; no topic has an empty set.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})

_NONE: Final[frozenset[int]] = frozenset()


def assignment_of(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Assignment:
    """Return the assignment of a list of topics; a topic may occur more than once."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in topics:
        both = found.get(topic_id, frozenset()).union(partitions)
        if both:
            found[topic_id] = both
    return found


def recorded_assignment(topics: Iterable[Any]) -> Assignment:
    """Return the assignment in a record: a list of topics with ``topic_id`` and ``partitions``."""
    return assignment_of([(each.topic_id, each.partitions) for each in topics])


def intersection(left: Assignment, right: Assignment) -> Assignment:
    found = {}
    for topic_id, partitions in left.items():
        others = right.get(topic_id, _NONE)
        both = partitions if others is partitions else partitions & others
        if both:
            found[topic_id] = both
    return found


def difference(left: Assignment, right: Assignment) -> Assignment:
    if not right:
        return left
    found = {}
    for topic_id, partitions in left.items():
        others = right.get(topic_id, _NONE)
        if others is not partitions and (rest := partitions - others):
            found[topic_id] = rest
    return found


def union(left: Assignment, right: Assignment) -> Assignment:
    if not (left and right):
        return left or right
    return assignment_of([*left.items(), *right.items()])


def overlaps(left: Assignment, right: Assignment) -> bool:
    return any(not left[topic_id].isdisjoint(right[topic_id]) for topic_id in left if topic_id in right)


def is_within(inner: Assignment, outer: Assignment) -> bool:
    """Return whether every partition of ``inner`` is in ``outer``."""
    return all(partitions <= outer.get(topic_id, frozenset()) for topic_id, partitions in inner.items())
