"""The target assignment of a consumer group, and the assignors that compute it (KIP-848).

Pure. An assignor gets the members' subscriptions and previous targets, and returns each member's partitions. The result
is deterministic and independent of the order of the input.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember


class Topic(Protocol):
    """The required properties of a topic."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """Its id, 16 bytes."""

    @property
    def partitions(self) -> Sequence[object]:
        """Its partitions."""

    @property
    def internal(self) -> bool:
        """Whether it belongs to the broker itself."""


class Topics(Protocol):
    """All existing topics: in a broker, the metadata cache."""

    @property
    def version(self) -> int:
        """The number of the last change."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic of that name, or None."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic of that id, or None."""

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""


def existing(topics: Topics, names: Iterable[str]) -> dict[bytes, int]:
    """Return the partition counts, by topic id, of the topics of these names that exist.

    They are in the order of the ids, and so are the assignments: records need that order, and sort it at no cost.
    """
    found = [topic for topic in map(topics.topic, names) if topic is not None]
    counts = {topic.topic_id: len(topic.partitions) for topic in found}
    return {topic_id: counts[topic_id] for topic_id in sorted(counts)}


def metadata_hash(counts: Mapping[bytes, int]) -> int:
    """Return a signed 64-bit hash of topics and partition counts; 0 for no topics."""
    if not counts:
        return 0
    parts = [topic_id + counts[topic_id].to_bytes(4, "big") for topic_id in sorted(counts)]
    digest = hashlib.blake2b(b"".join(parts), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def preferred_assignor(members: Iterable[ConsumerGroupMember], configured: Sequence[str]) -> str:
    """Return the assignor with most votes; on a tie or without votes, the first configured one."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in configured)
    return max(configured, key=lambda name: (votes[name], -configured.index(name)))


def compute_target(
    assignor: str,
    members: Iterable[ConsumerGroupMember],
    subscriptions: Mapping[str, Mapping[bytes, int]],
    target: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return each member's target, given the previous ones and by member the partition counts of its topics."""
    counts: dict[bytes, int] = {}
    # Members with equal subscriptions share one set: it is hashed and compared once.
    shared: dict[int, frozenset[bytes]] = {}
    asking = []
    for member in members:
        topics = subscriptions[member.member_id]
        topic_ids = shared.get(id(topics))
        if topic_ids is None:
            topic_ids = shared[id(topics)] = frozenset(topics)
            counts.update(topics)
        so_far = target.get(member.member_id, NO_PARTITIONS)
        asking.append(MemberSubscription(member.member_id, topic_ids, member.instance_id, so_far))
    return ASSIGNORS[assignor](asking, counts)


# ---- assignors -------------------------------------------------------------------------------------------------------


class MemberSubscription(NamedTuple):
    """A member as input of an assignor: its subscribed, existing topics, and its previous target."""

    member_id: str
    topic_ids: frozenset[bytes]
    instance_id: str | None = None
    assignment: Assignment = NO_PARTITIONS


#: By topic id, the number of its partitions: all topics that any member subscribes to.
PartitionCounts = Mapping[bytes, int]

#: (members, counts) to the target of each member, by member id.
Assignor = Callable[[Sequence[MemberSubscription], PartitionCounts], dict[str, Assignment]]


def assign_range(members: Sequence[MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign consecutive partitions of every topic to each member; the first members get the remainder.

    Topics with equal partition counts and subscribers are divided identically, so that they can be joined. Static
    members are first, by instance id.
    """
    ordered = sorted(members, key=_range_order)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member.member_id: {} for member in ordered}
    for topic_id, subscribers in _subscribers(ordered, counts).items():
        if not subscribers:
            continue
        quota, left_over = divmod(counts[topic_id], len(subscribers))
        start = 0
        # With more members than partitions, the last members get none.
        for place, number in enumerate(subscribers if quota else subscribers[:left_over]):
            end = start + quota + (place < left_over)
            assigned[ordered[number].member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {**assigned}


def assign_uniform(members: Sequence[MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign equal numbers of partitions, as far as subscriptions allow, with as few moves as possible."""
    ordered = sorted(members, key=lambda member: member.member_id)
    balance = _Balance(ordered, counts)
    if len({member.topic_ids for member in members}) <= 1:
        balance.shed_above_quota()
    balance.hand_out()
    balance.even_out()
    return balance.result()


#: The assignors by the names that clients request.
ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})

#: Most rounds over all topics before an assignment counts as even. With equal subscriptions one is enough.
_MOST_ROUNDS: Final = 16

_NOBODY: Final = -1

#: Returns a shared set of partitions. Most topics have one of a few sets; each is stored once, and compared by
#: identity.
_shared_set = lru_cache(1024)(frozenset[int])


class _Balance:
    """An assignment under construction. Members are numbers, in the order of their ids."""

    def __init__(self, members: Sequence[MemberSubscription], counts: PartitionCounts) -> None:
        self._members = members
        #: Number of partitions of each member so far.
        self._loads = [0] * len(members)
        self._owners: dict[bytes, list[int]] = {topic_id: [_NOBODY] * counts[topic_id] for topic_id in counts}
        self._subscribers = _subscribers(members, counts)
        for number, member in enumerate(members):
            self._keep(number, member)
        # The least flexible first: topics with many partitions per subscriber, then those with few subscribers.
        self._topics = sorted(
            (topic_id for topic_id in counts if self._subscribers[topic_id]),
            key=lambda topic_id: (
                -counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )

    def shed_above_quota(self) -> None:
        """Free the partitions above each member's share, if all members subscribe to the same topics.

        Shares differ by one at most; the larger ones are for the members with most partitions.
        """
        total = sum(len(self._owners[topic_id]) for topic_id in self._topics)
        quota, larger = divmod(total, max(len(self._members), 1))
        by_load = sorted(range(len(self._members)), key=lambda number: (-self._loads[number], number))
        shares = {number: quota + (place < larger) for place, number in enumerate(by_load)}
        for topic_id in reversed(self._topics):
            owners = self._owners[topic_id]
            for partition in reversed(range(len(owners))):
                owner = owners[partition]
                if owner != _NOBODY and self._loads[owner] > shares[owner]:
                    owners[partition] = _NOBODY
                    self._loads[owner] -= 1

    def hand_out(self) -> None:
        """Assign free partitions to the subscribers with the fewest."""
        subscribers: Sequence[int] = ()
        by_load: list[tuple[int, int]] = []
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            free = [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            if not free:
                continue
            if self._subscribers[topic_id] is not subscribers:
                subscribers = self._subscribers[topic_id]
                by_load = [(self._loads[number], number) for number in subscribers]
                heapq.heapify(by_load)
            for partition in free:
                load, owner = by_load[0]
                heapq.heapreplace(by_load, (load + 1, owner))
                self._loads[owner] = load + 1
                owners[partition] = owner

    def even_out(self) -> None:
        """Move partitions from the most loaded to the least loaded members, until no move helps."""
        for _ in range(_MOST_ROUNDS):
            if max(self._loads, default=0) - min(self._loads, default=0) <= 1:
                return
            if not sum(self._even_out_topic(topic_id) for topic_id in self._topics):
                return

    def result(self) -> dict[str, Assignment]:
        found: list[dict[bytes, frozenset[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            shares: dict[int, list[int]] = {}
            for partition, owner in enumerate(owners):
                shares.setdefault(owner, []).append(partition)
            shares.pop(_NOBODY, None)
            for owner, partitions in shares.items():
                found[owner][topic_id] = _shared_set(tuple(partitions))
        return {member.member_id: topics for member, topics in zip(self._members, found, strict=True)}

    def _keep(self, number: int, member: MemberSubscription) -> None:
        """Retain a member's previous partitions if it still subscribes to them and no other member has them."""
        for topic_id, partitions in member.assignment.items():
            if topic_id not in member.topic_ids:
                continue
            owners = self._owners[topic_id]
            for partition in partitions:
                if partition < len(owners) and owners[partition] == _NOBODY:
                    owners[partition] = number
                    self._loads[number] += 1

    def _even_out_topic(self, topic_id: bytes) -> int:
        """Even out one topic among its subscribers; return the number of partitions moved."""
        subscribers = self._subscribers[topic_id]
        loads = [self._loads[number] for number in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        # Stale heap entries, with an outdated load, are dropped when they reach the top.
        givers = [(-self._loads[number], number) for number in subscribers if number in owned]
        takers = [(self._loads[number], number) for number in subscribers]
        heapq.heapify(givers)
        heapq.heapify(takers)
        moved = 0
        while givers:
            load, id_allocator = givers[0]
            if -load != self._loads[id_allocator] or not owned[id_allocator]:
                heapq.heappop(givers)
                continue
            if takers[0][0] != self._loads[takers[0][1]]:
                heapq.heappop(takers)
                continue
            taker = takers[0][1]
            if self._loads[id_allocator] - self._loads[taker] <= 1:
                break
            partition = owned[id_allocator].pop()
            self._owners[topic_id][partition] = taker
            owned.setdefault(taker, []).append(partition)
            for number, change in ((id_allocator, -1), (taker, 1)):
                self._loads[number] += change
                heapq.heappush(givers, (-self._loads[number], number))
                heapq.heappush(takers, (self._loads[number], number))
            moved += 1
        return moved


def _subscribers(members: Sequence[MemberSubscription], counts: PartitionCounts) -> dict[bytes, Sequence[int]]:
    """Return by topic the indices of its subscribers in ``members``, in order.

    The cost is linear in members and topics; it is multiplied only by the number of distinct subscriptions, which is
    one for most groups.
    """
    alike: dict[frozenset[bytes], list[int]] = {}
    for number, member in enumerate(members):
        alike.setdefault(member.topic_ids, []).append(number)
    if len(alike) == 1:
        everybody: Sequence[int]
        [everybody] = alike.values()
        return dict.fromkeys(counts, everybody)
    found: dict[bytes, list[list[int]]] = {topic_id: [] for topic_id in counts}
    for topic_ids, numbers in alike.items():
        for topic_id in topic_ids:
            found[topic_id].append(numbers)
    return {
        topic_id: each[0] if len(each) == 1 else sorted(chain.from_iterable(each)) for topic_id, each in found.items()
    }


def _range_order(member: MemberSubscription) -> tuple[bool, str]:
    instance_id = member.instance_id
    return (True, member.member_id) if instance_id is None else (False, instance_id)
