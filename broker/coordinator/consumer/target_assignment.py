"""The target assignment of a consumer group: all members' partitions, computed anew when its epoch has moved.

Pure. Looks the subscribed topics up, has the assignor that most members ask for divide them, and says for whom that
is a change.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment
from broker.coordinator.consumer.assignors import ASSIGNORS, MemberSubscription
from broker.coordinator.consumer.member import ConsumerGroupMember


class Topic(Protocol):
    """What is needed of a topic."""

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
    """The topics that there are: the metadata cache, in a broker."""

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
    """Return the topics of these names that exist: the number of partitions by topic id."""
    found = (topics.topic(name) for name in names)
    return {topic.topic_id: len(topic.partitions) for topic in found if topic is not None}


def metadata_hash(counts: Mapping[bytes, int]) -> int:
    """Return a signed 64-bit number that changes when topics come, go or grow; 0 for no topics."""
    if not counts:
        return 0
    parts = [topic_id + counts[topic_id].to_bytes(4, "big") for topic_id in sorted(counts)]
    digest = hashlib.blake2b(b"".join(parts), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def preferred_assignor(members: Iterable[ConsumerGroupMember], configured: Sequence[str]) -> str:
    """Return the assignor that most members ask for; where they are even or ask for none, the first configured."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in configured)
    return max(configured, key=lambda name: (votes[name], -configured.index(name)))


def compute_target(
    assignor: str,
    members: Iterable[ConsumerGroupMember],
    subscriptions: Mapping[str, Mapping[bytes, int]],
    target: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return what each member is to have. ``target`` is so far; ``subscriptions``: topics and partitions, by member."""
    counts: dict[bytes, int] = {}
    # Of members who subscribe to the same, one set stands for all: it is hashed and compared once.
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
