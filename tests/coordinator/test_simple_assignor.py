"""The assignor of share groups: Kafka's numbers, every partition with a member, and no needless moves."""

from __future__ import annotations

import random
from collections import Counter
from math import ceil

import pytest

from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.share.simple_assignor import Subscriber, assign

A = bytes([1]) * 16
SEEDS = [random.randrange(2**32) for _ in range(30)]

Places = set[tuple[bytes, int]]


def places(assignment: Assignment) -> Places:
    return {(topic, index) for topic, indexes in assignment.items() for index in indexes}


@pytest.mark.parametrize(
    ("members", "partitions", "counts"),
    [(1, 4, [4]), (3, 1, [1, 1, 1]), (3, 4, [2, 1, 1]), (4, 3, [2, 2, 1, 1]), (2, 0, [0, 0])],
)
def test_members_have_kafkas_numbers_of_partitions(members: int, partitions: int, counts: list[int]) -> None:
    """S34."""
    asking = [Subscriber(f"m{number}", frozenset({A})) for number in range(members)]
    found = assign(asking, {A: frozenset(range(partitions))} if partitions else {})
    assert sorted((len(places(each)) for each in found.values()), reverse=True) == counts
    widths = Counter(place for each in found.values() for place in places(each))
    assert set(widths.values()) <= {ceil(members / max(partitions, 1))}


class Course:
    """A group with joining and leaving members, and topics that grow."""

    def __init__(self, seed: int, *, alike: bool) -> None:
        self.random = random.Random(seed)
        self.alike = alike
        self.counts = {
            bytes([number]) * 16: self.random.randrange(1, 9) for number in range(self.random.randrange(1, 5))
        }
        self.members: dict[str, frozenset[bytes]] = {}
        self.target: dict[str, Assignment] = {}

    def change(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            chance = self.random.random()
            if self.members and chance < 0.4:
                del self.members[self.random.choice(list(self.members))]
            elif chance < 0.5:
                self.counts[self.random.choice(list(self.counts))] += 1
            else:
                some = self.random.sample(list(self.counts), self.random.randrange(len(self.counts) + 1))
                self.members[f"m{self.random.randrange(50)}"] = frozenset(self.counts if self.alike else some)

    def assign(self) -> None:
        asking = [Subscriber(name, topics, self.target.get(name, {})) for name, topics in self.members.items()]
        self.random.shuffle(asking)
        self.target = assign(asking, {topic: frozenset(range(count)) for topic, count in self.counts.items()})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("alike", [True, False])
def test_partitions_are_with_subscribers_and_parts_are_even(seed: int, alike: bool) -> None:
    """S36, S37."""
    course = Course(seed, alike=alike)
    for _ in range(12):
        course.change()
        course.assign()
        assert course.target.keys() == course.members.keys()
        covered = set[tuple[bytes, int]]().union(*map(places, course.target.values()))
        for name, assignment in course.target.items():
            assert assignment.keys() <= course.members[name]
            assert all(assignment.values())
        wanted = frozenset[bytes]().union(*course.members.values())
        assert covered == {(topic, index) for topic in wanted for index in range(course.counts[topic])}
        loads = [len(places(each)) for each in course.target.values()]
        if alike:
            assert max(loads, default=0) - min(loads, default=0) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_an_unchanged_group_keeps_its_target_and_a_departure_moves_few_others(seed: int) -> None:
    """S35, S37: the places of a departed member go to the others."""
    course = Course(seed, alike=True)
    for _ in range(12):
        course.change()
        course.assign()
        before = course.target
        course.assign()
        assert course.target == before
        if len(course.members) < 2:
            continue
        departed = course.random.choice(list(course.members))
        del course.members[departed]
        course.assign()
        total, members = sum(course.counts.values()), len(course.members)
        if ceil((members + 1) / total) == ceil(members / total):
            lost = sum(len(places(before[name]) - places(after)) for name, after in course.target.items())
            # Only an exchange moves a place of a member that stays.
            assert lost <= len(places(before[departed]))


def test_the_members_with_most_partitions_keep_the_larger_numbers() -> None:
    """S35."""
    targets = {"a": frozenset({0}), "b": frozenset({1, 2})}
    members = [Subscriber(member, frozenset({A}), {A: held}) for member, held in targets.items()]
    assigned = assign(members, {A: frozenset(range(3))})
    assert {member: each[A] for member, each in assigned.items()} == targets
