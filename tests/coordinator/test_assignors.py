"""The assignors: each partition is assigned once, to a subscriber; uniform is balanced and moves as few as possible."""

import random

import pytest

from rotunda.broker.coordinator.consumer.assignment import Assignment, difference
from rotunda.broker.coordinator.consumer.target_assignment import (
    ASSIGNORS,
    MemberSubscription,
    assign_range,
    assign_uniform,
)

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
SEEDS = [random.randrange(2**32) for _ in range(30)]


def size_of(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def member(name: str, *topics: bytes, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(name, frozenset(topics), instance)


class Course:
    """A group with joining and leaving members; each step starts from the previous step's assignment."""

    def __init__(self, seed: int, *, alike: bool) -> None:
        self.random = random.Random(seed)
        self.alike = alike
        self.counts = {
            bytes([number]) * 16: self.random.randrange(1, 12) for number in range(self.random.randrange(1, 6))
        }
        self.members: dict[str, frozenset[bytes]] = {}
        self.assigned: dict[str, Assignment] = {}

    def change(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            if self.members and self.random.random() < 0.4:
                del self.members[self.random.choice(list(self.members))]
            else:
                some = self.random.sample(list(self.counts), self.random.randrange(len(self.counts) + 1))
                self.members[f"m{self.random.randrange(50)}"] = frozenset(self.counts if self.alike else some)

    def question(self) -> tuple[list[MemberSubscription], dict[bytes, int]]:
        asking = [
            MemberSubscription(name, topics, None, self.assigned.get(name, {})) for name, topics in self.members.items()
        ]
        wanted = frozenset[bytes]().union(*self.members.values())
        return asking, {topic: count for topic, count in self.counts.items() if topic in wanted}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_partition_is_given_once_to_a_subscriber(seed: int, alike: bool, name: str) -> None:
    course = Course(seed, alike=alike)
    for _ in range(10):
        course.change()
        asking, counts = course.question()
        course.assigned = ASSIGNORS[name](asking, counts)
        assert set(course.assigned) == set(course.members)
        given = [
            (topic, partition)
            for assignment in course.assigned.values()
            for topic, partitions in assignment.items()
            for partition in partitions
        ]
        assert sorted(given) == sorted((topic, each) for topic, count in counts.items() for each in range(count))
        for who, assignment in course.assigned.items():
            assert set(assignment) <= course.members[who]
            assert all(assignment.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_is_even_and_moves_no_more_than_it_has_to(seed: int) -> None:
    course = Course(seed, alike=True)
    for _ in range(10):
        course.change()
        asking, counts = course.question()
        if not asking:
            continue
        found = assign_uniform(asking, counts)
        loads = sorted((size_of(each.assignment) for each in asking), reverse=True)
        sizes = [size_of(assignment) for assignment in found.values()]
        assert max(sizes) - min(sizes) <= 1
        quota, larger = divmod(sum(counts.values()), len(asking))
        must_move = sum(max(0, load - quota - (place < larger)) for place, load in enumerate(loads))
        assert sum(size_of(difference(each.assignment, found[each.member_id])) for each in asking) == must_move
        course.assigned = found


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_is_as_even_as_subscriptions_allow(seed: int) -> None:
    """Moving any single partition does not improve the balance, and a repeated assignment is the same."""
    course = Course(seed, alike=False)
    for _ in range(10):
        course.change()
        asking, counts = course.question()
        course.assigned = assign_uniform(asking, counts)
        for assignment in course.assigned.values():
            for topic in assignment:
                takers = [course.assigned[who] for who, topics in course.members.items() if topic in topics]
                assert all(size_of(assignment) - size_of(taker) <= 1 for taker in takers)
        again, counts = course.question()
        course.random.shuffle(again)
        assert assign_uniform(again, counts) == course.assigned


def test_a_new_member_gets_partitions_of_the_largest_assignments() -> None:
    had = {"a": {A: frozenset({0, 1, 2})}, "b": {A: frozenset({3, 4, 5})}}
    asking = [member(name, A)._replace(assignment=had.get(name, {})) for name in ("a", "b", "c")]
    found = assign_uniform(asking, {A: 6})
    assert found["a"] == {A: frozenset({0, 1})}
    assert found["b"] == {A: frozenset({3, 4})}
    assert found["c"] == {A: frozenset({2, 5})}


def test_range_gives_runs_with_the_rest_to_the_first() -> None:
    found = assign_range([member("b", A, B), member("a", A), member("c", A, B)], {A: 7, B: 3})
    assert found == {
        "a": {A: frozenset({0, 1, 2})},
        "b": {A: frozenset({3, 4}), B: frozenset({0, 1})},
        "c": {A: frozenset({5, 6}), B: frozenset({2})},
    }


def test_range_puts_static_members_first_by_instance() -> None:
    asking = [member("z", A, instance="1"), member("a", A), member("y", A, instance="2")]
    found = assign_range(asking, {A: 3})
    assert [found[name][A] for name in ("z", "y", "a")] == [frozenset({0}), frozenset({1}), frozenset({2})]


def test_more_members_than_partitions_and_none_at_all() -> None:
    for assignor in ASSIGNORS.values():
        found = assignor([member("a", A), member("b", A), member("c")], {A: 1})
        assert sorted(size_of(assignment) for assignment in found.values()) == [0, 0, 1]
        assert assignor([], {}) == {}
        assert assignor([member("a")], {}) == {"a": {}}
