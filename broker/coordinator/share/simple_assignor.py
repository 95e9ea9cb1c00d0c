"""The assignor of share groups: each partition goes to as many members as it needs for all to have an equal part.

Pure. With M members and P partitions, W = ceil(M / P) members share each partition, and the numbers of partitions of
two members differ by at most one. Members keep their partitions as far as these numbers permit. Members with different
subscriptions are assigned topic by topic, each topic among its subscribers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment, assignment_of

NAME: Final = "simple"

#: (topic id, index)
Partition = tuple[bytes, int]


class Subscriber(NamedTuple):
    """A member: the ids of its topics, and its target so far."""

    member_id: str
    topic_ids: frozenset[bytes]
    target: Assignment = NO_PARTITIONS


def assign(subscribers: Iterable[Subscriber], assignable: Assignment) -> dict[str, Assignment]:
    """Return each member's target; `assignable`: by topic id, the partitions that may be assigned."""
    members = sorted(subscribers)
    found: dict[str, list[Partition]] = {member.member_id: [] for member in members}
    for topic_ids, group in _groups(members, assignable):
        dealer = _Dealer([(topic, index) for topic in sorted(topic_ids) for index in sorted(assignable[topic])], group)
        for member_id, partitions in dealer.dealt().items():
            found[member_id] += partitions
    return {
        member_id: assignment_of([(topic, (index,)) for topic, index in partitions])
        for member_id, partitions in found.items()
    }


def _groups(
    members: Sequence[Subscriber], assignable: Assignment
) -> Iterable[tuple[frozenset[bytes], Sequence[Subscriber]]]:
    """Yield sets of topics with their subscribers: one if all members subscribe alike, else one a topic."""
    topics = frozenset(assignable)
    subscriptions = {member.topic_ids & topics for member in members}
    if len(subscriptions) == 1:
        yield next(iter(subscriptions)), members
        return
    for topic_id in frozenset[bytes]().union(*subscriptions):
        yield frozenset({topic_id}), [member for member in members if topic_id in member.topic_ids]


class _Dealer:
    """Deals partitions to the members that subscribe to all of them."""

    def __init__(self, partitions: Sequence[Partition], members: Sequence[Subscriber]) -> None:
        self._holders: dict[Partition, set[str]] = {partition: set() for partition in partitions}
        self._held: dict[str, set[Partition]] = {}
        for member in members:
            kept = {(topic, index) for topic, each in member.target.items() for index in each} & self._holders.keys()
            self._held[member.member_id] = kept
            for partition in kept:
                self._holders[partition].add(member.member_id)
        #: Number of members of each partition, and of partitions of each member: larger ones for those with most.
        self._width = -(-len(members) // len(partitions)) if partitions else 0
        places = self._width * len(partitions)
        by_load = sorted(self._held, key=lambda member_id: (-len(self._held[member_id]), member_id))
        counts = sorted((_part(places, number, len(members)) for number in range(len(members))), reverse=True)
        self._counts: Mapping[str, int] = dict(zip(by_load, counts, strict=True))

    def dealt(self) -> Mapping[str, set[Partition]]:
        """Return the partitions of each member."""
        for member_id in self._held:
            self._shed(member_id)
        for partition, holders in self._holders.items():
            over = sorted(holders, key=lambda member_id: (-len(self._held[member_id]), member_id))
            for member_id in over[: max(0, len(holders) - self._width)]:
                self._drop(member_id, partition)
        self._fill()
        return self._held

    def _shed(self, member_id: str) -> None:
        """Drop the partitions of a member above its number, those with most members first."""
        held = self._held[member_id]
        surplus = len(held) - self._counts[member_id]
        if surplus > 0:
            by_width = sorted(held, key=lambda partition: (-len(self._holders[partition]), partition))
            for partition in by_width[:surplus]:
                self._drop(member_id, partition)

    def _fill(self) -> None:
        """Fill up members with the partitions that have fewest members."""
        free = [(len(holders), partition) for partition, holders in self._holders.items() if len(holders) < self._width]
        heapq.heapify(free)
        for member_id, held in self._held.items():
            set_aside = []
            while free and len(held) < self._counts[member_id]:
                width, partition = heapq.heappop(free)
                if width != len(self._holders[partition]):
                    # An exchange has given it another member.
                    self._put(free, partition)
                    continue
                if partition not in held:
                    self._assign(member_id, partition)
                set_aside.append(partition)
            for partition in set_aside:
                self._put(free, partition)
            while len(held) < self._counts[member_id]:
                self._exchange(member_id)

    def _exchange(self, member_id: str) -> None:
        """Take a full partition from another member, which gets a place that this member cannot use itself.

        All partitions with places are this member's here. A full one that it lacks has more members than one of those.
        """
        held = self._held[member_id]
        place = next(partition for partition in sorted(held) if len(self._holders[partition]) < self._width)
        wanted = next(partition for partition in self._holders if partition not in held)
        other = min(self._holders[wanted] - self._holders[place])
        self._drop(other, wanted)
        self._assign(member_id, wanted)
        self._assign(other, place)

    def _put(self, free: list[tuple[int, Partition]], partition: Partition) -> None:
        """Put a partition among the free ones if it has places."""
        width = len(self._holders[partition])
        if width < self._width:
            heapq.heappush(free, (width, partition))

    def _assign(self, member_id: str, partition: Partition) -> None:
        self._held[member_id].add(partition)
        self._holders[partition].add(member_id)

    def _drop(self, member_id: str, partition: Partition) -> None:
        self._held[member_id].discard(partition)
        self._holders[partition].discard(member_id)


def _part(places: int, number: int, members: int) -> int:
    """Return the places of one of the members: ceil(c * (number + 1)) - ceil(c * number) with c = places / members."""
    return -(-places * (number + 1) // members) - -(-places * number // members)
