"""Topic patterns: evaluated once per pattern and metadata version, in steps, on the topics visible to a client."""

from __future__ import annotations

from itertools import count

import pytest

from rotunda.broker.coordinator.consumer.topic_patterns import MOST_WAIT_NS, Matches, TopicPatterns
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from rotunda.broker.security.acl.authorizer import Authorizer
from rotunda.broker.security.session import Session
from rotunda.broker.steps import Steps
from tests.support.fakes import FakeClock
from tests.support.groups.coordinator import FakeTopics

#: Each match of it with one of the names costs more than the budget of a single step.
HEAVY = "(a?b?){300}.*"
TOPICS = 50
ALICE, BOB = Session("alice", "::1"), Session("bob", "::1")


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({f"{number:0>8}-{'ab' * 100}": 1 for number in range(TOPICS)})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def received(steps: Steps[Matches]) -> tuple[int, Matches]:
    """Return the number of steps and their result."""
    for number in count():
        try:
            next(steps)
        except StopIteration as end:
            return number, end.value
    raise AssertionError


def test_a_pattern_is_evaluated_once_for_all_waiting_requests(topics: FakeTopics, clock: FakeClock) -> None:
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    steps, first = received(patterns.resolve(None, {HEAVY}))
    assert steps > TOPICS / 2
    assert first == Matches(topics.version, {HEAVY: topics.topic_names()})
    for _ in range(10):
        assert received(patterns.resolve(None, {HEAVY})) == (0, first)


def test_a_new_topic_is_matched_alone(topics: FakeTopics, clock: FakeClock) -> None:
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    everything = {HEAVY, ".*new", "none"}
    received(patterns.resolve(None, everything))
    topics.make("ab-new", 1)
    steps, matches = received(patterns.resolve(None, everything))
    assert steps <= 2 * len(everything)
    assert matches.names == {HEAVY: topics.topic_names(), ".*new": {"ab-new"}, "none": frozenset()}
    topics.delete("ab-new")
    steps, matches = received(patterns.resolve(None, everything))
    assert steps <= 2 * len(everything)
    assert matches == Matches(topics.version, {HEAVY: topics.topic_names(), ".*new": frozenset(), "none": frozenset()})


def test_heartbeats_that_wait_at_once_share_the_work(topics: FakeTopics, clock: FakeClock) -> None:
    alone, _ = received(TopicPatterns(topics, None, clock.monotonic_ns).resolve(None, {HEAVY}))
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    waiting = [patterns.resolve(None, {HEAVY}) for _ in range(5)]
    found: list[Matches] = []
    steps = 0
    while waiting:
        for each in list(waiting):
            try:
                next(each)
                steps += 1
            except StopIteration as end:
                waiting.remove(each)
                found.append(end.value)
    assert len(found) == 5
    assert all(each.names == {HEAVY: topics.topic_names()} for each in found)
    assert steps <= alone + len(found)


def test_a_heartbeat_waits_for_a_second_and_the_next_one_continues(topics: FakeTopics, clock: FakeClock) -> None:
    alone, _ = received(TopicPatterns(topics, None, clock.monotonic_ns).resolve(None, {HEAVY}))
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    steps = heartbeats = 0
    while True:
        heartbeats += 1
        waiting = patterns.resolve(None, {HEAVY})
        matches = None
        while matches is None:
            try:
                next(waiting)
                steps += 1
            except StopIteration as end:
                matches = end.value
            clock.advance_ns(MOST_WAIT_NS // 10)
        if matches.names:
            break
        assert matches == Matches(topics.version, {})
    assert heartbeats >= alone // 10
    assert steps == alone
    assert matches.names == {HEAVY: topics.topic_names()}


def test_a_result_is_of_the_version_with_which_the_wait_began(topics: FakeTopics, clock: FakeClock) -> None:
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    waiting = patterns.resolve(None, {HEAVY})
    next(waiting)
    before = topics.version
    topics.make("ab-new", 1)
    assert received(waiting)[1].version == before
    assert received(patterns.resolve(None, {HEAVY}))[1] == Matches(topics.version, {HEAVY: topics.topic_names()})


def test_only_topics_that_the_client_may_describe_are_matched(topics: FakeTopics, clock: FakeClock) -> None:
    """Other topics cost nothing and are not matched."""
    seen = sorted(topics.topic_names())[:3]
    authorizer = Authorizer()
    allow = [
        Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
        for name in seen
    ]
    authorizer.update(allow, [])
    patterns = TopicPatterns(topics, authorizer, clock.monotonic_ns)
    steps, matches = received(patterns.resolve(ALICE, {HEAVY}))
    assert matches.names == {HEAVY: frozenset(seen)}
    assert steps <= len(seen) + 2
    steps, matches = received(patterns.resolve(BOB, {HEAVY}))
    assert (steps, matches.names) == (1, {HEAVY: frozenset()})
    authorizer.update([], allow[:1])
    topics.version += 1
    assert received(patterns.resolve(ALICE, {HEAVY}))[1].names == {HEAVY: frozenset(seen[1:])}
    assert not authorizer.denied


def test_a_pattern_of_an_earlier_version_that_is_too_large_matches_nothing(
    topics: FakeTopics, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    patterns = TopicPatterns(topics, None, clock.monotonic_ns)
    assert received(patterns.resolve(None, {"([ab]?){1000}"}))[1].names == {"([ab]?){1000}": frozenset()}
    assert "no longer matches any topic" in caplog.text
