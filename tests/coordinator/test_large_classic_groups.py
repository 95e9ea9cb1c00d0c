"""Classic groups with too many members to send all responses in one turn: events between two responses."""

from __future__ import annotations

import pytest

from rotunda.broker.coordinator.classic import rebalance
from rotunda.broker.coordinator.classic.group import ClassicGroup, ClassicMember
from rotunda.broker.coordinator.group import JoinResult
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling import timers
from rotunda.broker.steps import ELEMENTS_AT_ONCE, finished
from tests.support.groups.coordinator import Coordinator
from tests.support.groups.members import SESSION_MS, heartbeat, join, join_twice, leave, sync
from tests.support.results import present

AT_ONCE = 3
MEMBERS = 8
NONE = 0

MANY = {f"m-{number}": b"assigned %d" % number for number in range(4 * ELEMENTS_AT_ONCE)}


@pytest.fixture(autouse=True)
def few_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a group to three responses at first, and then one per turn."""
    monkeypatch.setattr(rebalance, "MOST_RESPONSES_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(timers, "AT_ONCE_NS", 0)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def joining(coordinator: Coordinator) -> dict[str, list[JoinResult]]:
    """Join all members and run until the first responses are sent."""
    responses = dict(join_twice(coordinator) for _ in range(MEMBERS))
    while not any(responses.values()):
        coordinator.run_once()
    return responses


def rounds_until_all(coordinator: Coordinator, responses: dict[str, list[JoinResult]]) -> int:
    rounds = 0
    while not all(responses.values()):
        coordinator.run_once()
        rounds += 1
        assert rounds <= 2 * MEMBERS
    return rounds


def test_members_get_their_generation_in_several_steps(coordinator: Coordinator) -> None:
    responses = joining(coordinator)
    assert sum(map(len, responses.values())) == AT_ONCE
    assert sum(member.is_new for member in coordinator.group.members.values()) == MEMBERS - AT_ONCE
    assert rounds_until_all(coordinator, responses) >= MEMBERS - AT_ONCE
    results = {member_id: result for member_id, [result] in responses.items()}
    assert {member_id: result.member_id for member_id, result in results.items()} == {each: each for each in responses}
    assert {(result.error_code, result.generation) for result in results.values()} == {(NONE, 1)}
    leader = coordinator.group.leader
    reported = {member_id: [each.member_id for each in result.members] for member_id, result in results.items()}
    assert reported == {each: list(responses) if each == leader else [] for each in responses}
    assert not any(member.is_new for member in coordinator.group.members.values())


def test_a_member_that_leaves_meanwhile_is_unknown_afterwards(coordinator: Coordinator) -> None:
    responses = joining(coordinator)
    ended = next(member_id for member_id, results in responses.items() if not results)
    assert leave(coordinator, (ended, None)) == [NONE]
    rounds_until_all(coordinator, responses)
    assert responses[ended][0].generation == 1
    assert sync(coordinator, ended, generation=1)[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    others = [member_id for member_id in responses if member_id != ended]
    assert {heartbeat(coordinator, each, 1) for each in others} == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_one_that_joins_again_meanwhile_has_both_responses(coordinator: Coordinator) -> None:
    responses = joining(coordinator)
    late = list(responses)[-1]
    again = join(coordinator, late, (("range", b"other"),))
    rounds_until_all(coordinator, responses)
    assert not again
    next_ones = {each: join(coordinator, each) for each in responses if each != late}
    rounds_until_all(coordinator, {**next_ones, late: again})
    assert {each[0].generation for each in (*next_ones.values(), again)} == {2}


@pytest.mark.parametrize("syncs", [False, True])
def test_no_member_expires_while_it_waits_for_a_response(coordinator: Coordinator, syncs: bool) -> None:
    """All sessions start with the first response, after any wait."""
    responses = joining(coordinator)
    if syncs:
        rounds_until_all(coordinator, responses)
        for member_id in responses:
            sync(coordinator, member_id)
        coordinator.clock.advance_ms(SESSION_MS - 1)
        sync(coordinator, coordinator.group.leader or "", {each: each.encode() for each in responses})
        coordinator.run_once()
    deadlines = [member.deadline_ns for member in coordinator.group.members.values()]
    assert min(deadlines) >= coordinator.clock.monotonic_ns() + SESSION_MS * 1_000_000 - 1_000_000


def test_an_assignment_is_the_one_of_its_generation(coordinator: Coordinator) -> None:
    responses = joining(coordinator)
    rounds_until_all(coordinator, responses)
    leader = present(coordinator.group.leader)
    given = {each: sync(coordinator, each) for each in responses if each != leader}
    given[leader] = sync(coordinator, leader, {each: each.encode() for each in responses})
    coordinator.run_once()
    assert sum(map(len, given.values())) == AT_ONCE
    # Simulate an assignment of the next generation before the last response of this one.
    for member in coordinator.group.members.values():
        member.assignment = b"next"
    for _ in range(MEMBERS):
        coordinator.run_once()
    assert {each: results[0].assignment for each, results in given.items()} == {
        each: each.encode() for each in responses
    }


def test_a_group_of_many_is_read_back_in_steps_and_is_there_when_all_of_it_has_been_read(
    coordinator: Coordinator,
) -> None:
    group = ClassicGroup("many")
    protocols = (("range", b"subscribed"),)
    members = [ClassicMember(each, None, "client", "/host", 9, 8, protocols, given) for each, given in MANY.items()]
    group.protocol_name = "range"
    finished(group.restore("consumer", 7, members))
    record = group.record(MANY)
    steps = present(coordinator.shard.replay(*record, -1))
    received = 0
    for _ in steps:
        received += 1
        assert "many" not in coordinator.shard.groups
    assert received >= len(MANY) // ELEMENTS_AT_ONCE
    read = coordinator.shard.groups["many"]
    assert isinstance(read, ClassicGroup)
    assert list(read.members) == list(MANY)
    assert read.record({each: member.assignment for each, member in read.members.items()}) == record
