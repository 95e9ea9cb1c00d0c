"""Topic patterns: evaluated once per pattern and metadata version, in steps, on the topics visible to a client."""

from __future__ import annotations

import random
import re
import string
import time
from itertools import count

import pytest

from rotunda.broker.coordinator.consumer.topic_patterns import MOST_WAIT_NS, Matches, TopicPatterns
from rotunda.broker.metadata.topics.topic_regex import COST_AT_ONCE, MOST_COST, InvalidPatternError, TopicRegex
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from rotunda.broker.security.acl.authorizer import Authorizer
from rotunda.broker.security.session import Session
from rotunda.broker.steps import Steps, finished
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


# ---- one pattern -----------------------------------------------------------------------------------------------------


SEED = random.randrange(2**32)
ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "a-", r"\.", "(?:)", r"\b", "^", "$", "[a-c1-3]", r"[\w-]", r"\D"]
REPEATS = ["*", "+", "?", "{1,2}", "{2}", "{0,1}", "{1,}", "*?", "+?"]


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth > 3 or kind < 0.4:
        return chance.choice(ATOMS)
    if kind < 0.6:
        return random_pattern(chance, depth + 1) + random_pattern(chance, depth + 1)
    if kind < 0.75:
        return f"({random_pattern(chance, depth + 1)}|{random_pattern(chance, depth + 1)})"
    return f"(?:{random_pattern(chance, depth + 1)}){chance.choice(REPEATS)}"


def test_patterns_match_as_in_python() -> None:
    chance = random.Random(SEED)
    for _ in range(3000):
        pattern = random_pattern(chance)
        regex, oracle = TopicRegex(pattern), re.compile(pattern, re.ASCII)
        for _ in range(4):
            name = "".join(chance.choice("abc.-1") for _ in range(chance.randrange(6)))
            assert regex.matches(name) == bool(oracle.fullmatch(name)), (SEED, pattern, name)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders-1"),
        ("orders-.*", "orders-1", "my-orders-1"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?i:o)rders", "Orders", "ORDERS"),
        (r"\Qa.b\E.*", "a.b.c", "aXb"),
        ("[[:alpha:]]+", "abc", "ab1"),
        ("[^[:digit:]]+", "abc", "ab1"),
        (r"\pL+\p{Nd}", "abc1", "abc"),
        (r"\x61\x{62}", "ab", "x61"),
        ("(?P<name>a)(?<other>b)", "ab", "a"),
        ("a{,2}", "a{,2}", "aa"),
        ("", "", "a"),
        ("a|", "", "b"),
        ("^a$|^b$", "b", "ab"),
        (r"\Aa\z", "a", "aa"),
        ("[]a]+", "a]a", "b"),
        ("[a-]+", "a-a", "b"),
    ],
)
def test_the_syntax_is_that_of_re2(pattern: str, matching: str, other: str) -> None:
    regex = TopicRegex(pattern)
    assert regex.matches(matching)
    assert not regex.matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a**", "*", "a|*", "[a", "[b-a]", "[[:none:]]", "(?", "(?Pa)", "(?P<>a)", "\\"),
        *("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"\p{Klingon}", r"\xZZ"),
        *("a{2,1}", "a{1001}", "(((a{100}){100}){100})", "a" * 1025),
        *("([ab]?){1000}", r"\pL{4}", ".{300}"),
    ],
)
def test_patterns_that_re2_rejects_are_rejected(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicRegex(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*){40}b", "(a?){200}a{200}", "([a-z]+)+[0-9]"])
def test_no_pattern_keeps_a_handler_busy(pattern: str) -> None:
    """Python's own engine would not terminate on most of these."""
    began = time.process_time()
    assert not TopicRegex(pattern).matches("a" * 248 + "-")
    assert time.process_time() - began < 1


def test_many_names_are_matched_in_steps_of_bounded_cost() -> None:
    """For any pattern: between two yields one match, or as many as the cost budget allows."""
    chance = random.Random(SEED)
    names = ["".join(chance.choice("ab") for _ in range(chance.randrange(1, 250))) for _ in range(60)]
    for pattern in ("a.*", "([ab]?){700}", "[ab]*a[ab]{40}"):
        regex = TopicRegex(pattern)
        costs: list[list[int]] = [[]]

        def text_of(name: str, regex: TopicRegex = regex, costs: list[list[int]] = costs) -> str:
            costs[-1].append(regex.size * len(name))
            return name

        steps = regex.matching(names, text_of)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
            # The next one is matched after the yield.
            costs.append([costs[-1].pop()])
        assert found == [name for name in names if regex.matches(name)], (SEED, pattern)
        assert all(len(each) == 1 or sum(each) <= COST_AT_ONCE for each in costs), (SEED, pattern)


def test_a_text_that_is_too_slow_to_match_is_not_matched() -> None:
    regex = TopicRegex("[ab]*a[ab]{100}")
    longest = MOST_COST // regex.size
    assert finished(regex.matching(["a" * longest], str)) == ["a" * longest]
    for text in ("a" * (longest + 1), "\u00e4" * (longest // 2 + 1)):
        with pytest.raises(InvalidPatternError):
            finished(regex.matching([text], str))


def test_garbage_is_either_a_pattern_or_rejected() -> None:
    chance = random.Random(SEED)
    for _ in range(5000):
        text = "".join(chance.choice("()[]{}*+?|\\^$.-,:<>P=!aQE1" + string.printable[:20]) for _ in range(12))
        try:
            TopicRegex(text).matches("abc")
        except InvalidPatternError:
            continue
