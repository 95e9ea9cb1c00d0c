"""Classic groups from the first member to the last: waits, timeouts, and the state after a coordinator's death."""

from __future__ import annotations

import pytest

from rotunda.broker.coordinator.classic.protocol import NEW_MEMBER_JOIN_TIMEOUT_MS
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.coordinator import Coordinator
from tests.support.groups.members import (
    BOTH,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY_FIRST,
    heartbeat,
    join,
    join_twice,
    leave,
    settle,
    stable_group,
    sync,
)

UNKNOWN_MEMBER_ID = int(ErrorCode.UNKNOWN_MEMBER_ID)
REBALANCE_IN_PROGRESS = int(ErrorCode.REBALANCE_IN_PROGRESS)
FENCED = int(ErrorCode.FENCED_INSTANCE_ID)
MAX_SIZE = int(ErrorCode.GROUP_MAX_SIZE_REACHED)
NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def beat_for(coordinator: Coordinator, ms: int, *members: str) -> list[int]:
    """Advance the time while members send heartbeats; return the last error codes."""
    responses: list[int] = []
    for _ in range(ms // 1000):
        coordinator.advance_ms(1000)
        responses = [heartbeat(coordinator, member) for member in members]
    return responses


# ---- joining --------------------------------------------------------------------------------------------------------


def test_the_first_member_leads_and_gets_all_members(coordinator: Coordinator) -> None:
    first, first_responses = join_twice(coordinator, BOTH)
    second, second_responses = join_twice(coordinator, BOTH)
    coordinator.run_once()
    [leader], [follower] = first_responses, second_responses
    assert (leader.leader, leader.member_id, leader.generation) == (first, first, 1)
    assert [(each.member_id, each.metadata) for each in leader.members] == [(first, b"r"), (second, b"r")]
    assert (follower.leader, follower.generation, list(follower.members)) == (first, 1, [])
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_the_protocol_that_most_members_like_best_is_chosen(coordinator: Coordinator) -> None:
    stable_group(coordinator, (BOTH, STICKY_FIRST, STICKY_FIRST))
    assert coordinator.group.protocol_name == "sticky"
    join(coordinator, "", (("range", b"r"),), version=3)
    for member_id in list(coordinator.group.members)[:3]:
        join(coordinator, member_id, STICKY_FIRST)
    assert coordinator.group.protocol_name == "range"


def test_the_initial_delay_is_prolonged_by_each_member_that_joins() -> None:
    coordinator = Coordinator({"group.initial.rebalance.delay.ms": "3000"})
    first = join(coordinator, version=3)
    coordinator.advance_ms(2999)
    second = join(coordinator, version=3)
    coordinator.advance_ms(1)
    assert not first
    coordinator.advance_ms(2999)
    assert not first
    coordinator.advance_ms(1)
    assert first[0].generation == second[0].generation == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    coordinator = Coordinator({"group.initial.rebalance.delay.ms": "25000"})
    first = join(coordinator, version=3)
    for _ in range(2):
        coordinator.advance_ms(24_999)
        join(coordinator, version=3)
        coordinator.advance_ms(1)
    assert not first
    coordinator.advance_ms(9_999)
    assert not first
    coordinator.advance_ms(1)
    assert first[0].error_code == 0
    assert len(first[0].members) == 3


def test_no_more_members_than_the_group_may_have() -> None:
    coordinator = Coordinator({"group.max.size": "2"})
    members = stable_group(coordinator)
    assert join(coordinator)[0].error_code == MAX_SIZE
    assert join(coordinator, members[1])[0].error_code == 0


def test_a_member_that_never_returns_with_its_id_is_not_waited_for_long(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    pending = join(coordinator)[0].member_id
    responses = [join(coordinator, leader), join(coordinator, follower)]
    assert responses == [[], []]
    coordinator.advance_ms(SESSION_MS)
    assert [each[0].error_code for each in responses] == [0, 0]
    assert join(coordinator, pending)[0].error_code == UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_is_given_up_after_five_minutes(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    _, new = join_twice(coordinator)
    coordinator.group.members[follower].rebalance_timeout_ms = 10 * NEW_MEMBER_JOIN_TIMEOUT_MS
    join(coordinator, leader)
    coordinator.group.join_timer.cancel()  # type: ignore[union-attr]
    beat_for(coordinator, NEW_MEMBER_JOIN_TIMEOUT_MS, follower)
    assert new[0].error_code == UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_rejoin_in_time_is_removed_and_another_leads(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    responses = join(coordinator, follower, (("range", b"new"),))
    assert beat_for(coordinator, REBALANCE_MS - 1000, leader) == [REBALANCE_IN_PROGRESS]
    assert not responses
    coordinator.advance_ms(1000)
    assert (responses[0].error_code, responses[0].leader) == (0, follower)
    assert list(coordinator.group.members) == [follower]
    assert join(coordinator, leader)[0].error_code == UNKNOWN_MEMBER_ID


def test_a_join_that_is_sent_again_responses_the_earlier_one(coordinator: Coordinator) -> None:
    """After the loss of its connection a member repeats its request; the earlier request must not hang."""
    leader, follower = stable_group(coordinator)
    first = join(coordinator, leader)
    again = join(coordinator, leader)
    assert first[0].error_code == REBALANCE_IN_PROGRESS
    other = join(coordinator, follower)
    assert again[0].error_code == other[0].error_code == 0


def test_a_response_that_was_lost_is_given_again_without_another_rebalance(coordinator: Coordinator) -> None:
    """Users row 7: no extra rebalance."""
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    generation = coordinator.group.generation
    repeated = join(coordinator, leader)
    assert (repeated[0].error_code, repeated[0].generation, len(repeated[0].members)) == (0, generation, 2)
    settle(coordinator, [leader, follower])
    assert join(coordinator, follower)[0].generation == generation


def test_concurrent_rebalances_forget_no_member(coordinator: Coordinator) -> None:
    """Users row 7: no member that follows the protocol gets UNKNOWN_MEMBER_ID, with any number of joins."""
    members = stable_group(coordinator)
    for _ in range(5):
        newcomers = [join_twice(coordinator) for _ in range(3)]
        responses = {member: join(coordinator, member) for member in members}
        coordinator.run_once()
        responses |= dict(newcomers)
        assert {response[0].error_code for response in responses.values()} == {0}
        assert {response[0].generation for response in responses.values()} == {coordinator.group.generation}
        members = settle(coordinator, list(responses))
        assert all(heartbeat(coordinator, member) == 0 for member in members)


# ---- the assignment -------------------------------------------------------------------------------------------------


def test_nobody_gets_an_assignment_that_is_not_committed(coordinator: Coordinator) -> None:
    """I14: then each member gets its own."""
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    waiting = [sync(coordinator, follower), sync(coordinator, leader, {leader: b"L", follower: b"F"})]
    assert waiting == [[], []]
    coordinator.run_once()
    assert [each[0].assignment for each in waiting] == [b"F", b"L"]


def test_a_rebalance_overtakes_an_assignment_that_is_awaited(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    waiting = sync(coordinator, follower)
    join(coordinator, version=3)
    assert waiting[0].error_code == REBALANCE_IN_PROGRESS


def test_a_member_that_never_asks_for_its_assignment_is_removed(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    sync(coordinator, leader, {})
    coordinator.run_once()
    beat_for(coordinator, REBALANCE_MS, leader, follower)
    assert coordinator.group.state_name == "PreparingRebalance"
    assert list(coordinator.group.members) == [leader]


def test_members_missing_in_the_leaders_assignment_get_an_empty_one(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    waiting = sync(coordinator, follower)
    sync(coordinator, leader, {leader: b"L"})
    coordinator.run_once()
    assert (waiting[0].error_code, waiting[0].assignment) == (0, b"")


# ---- sessions -------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_when_its_session_ends(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    assert beat_for(coordinator, SESSION_MS - 1000, leader) == [0]
    assert follower in coordinator.group.members
    assert beat_for(coordinator, 1000, leader) == [REBALANCE_IN_PROGRESS]
    assert list(coordinator.group.members) == [leader]
    assert ("expire", follower) in coordinator.events


def test_a_commit_keeps_a_session_alive(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    for _ in range(3):
        coordinator.advance_ms(SESSION_MS - 1)
        for member in (leader, follower):
            coordinator.classic.committed(coordinator.shard, coordinator.group, member)
    assert coordinator.group.state_name == "Stable"


def test_a_member_that_waits_for_others_does_not_expire(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    waiting = join(coordinator, leader)
    beat_for(coordinator, 5 * SESSION_MS, follower)
    assert not waiting
    assert leader in coordinator.group.members
    join(coordinator, follower)
    assert waiting[0].error_code == 0
    coordinator.advance_ms(SESSION_MS)
    assert leader not in coordinator.group.members


# ---- leaving --------------------------------------------------------------------------------------------------------


def test_without_its_last_member_a_group_is_empty_and_has_its_generation(coordinator: Coordinator) -> None:
    """I13: one request removes both members and names the unknown one."""
    members = stable_group(coordinator)
    assert leave(coordinator, *[(member, None) for member in members], ("nobody", None)) == [0, 0, UNKNOWN_MEMBER_ID]
    assert (coordinator.group.state_name, coordinator.group.generation) == ("Empty", 2)
    coordinator.replace()
    assert (coordinator.group.state_name, coordinator.group.generation) == ("Empty", 2)
    assert coordinator.group.protocol_type == "consumer"


def test_the_others_join_again_when_one_leaves(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    assert leave(coordinator, (leader, None)) == [0]
    assert heartbeat(coordinator, follower) == REBALANCE_IN_PROGRESS
    responses = join(coordinator, follower)
    assert (responses[0].error_code, responses[0].leader) == (0, follower)


def test_a_member_that_leaves_while_it_waits_gets_a_response(coordinator: Coordinator) -> None:
    leader, _ = stable_group(coordinator)
    waiting = join(coordinator, leader)
    assert leave(coordinator, (leader, None)) == [0]
    assert waiting[0].error_code == UNKNOWN_MEMBER_ID


# ---- static members -------------------------------------------------------------------------------------------------


def static_group(coordinator: Coordinator) -> list[str]:
    responses = [join(coordinator, instance_id=name) for name in ("a", "b")]
    coordinator.run_once()
    return settle(coordinator, [each[0].member_id for each in responses])


def test_a_static_member_returns_without_a_rebalance(coordinator: Coordinator) -> None:
    """KIP-345: a new id, the same assignment; the old id is fenced."""
    leader, follower = static_group(coordinator)
    generation = coordinator.group.generation
    responses = join(coordinator, instance_id="b")
    assert not responses
    coordinator.run_once()
    [result] = responses
    assert (result.error_code, result.generation, result.leader) == (0, generation, leader)
    assert result.member_id != follower
    assert heartbeat(coordinator, follower, instance_id="b") == FENCED
    assert heartbeat(coordinator, result.member_id, instance_id="b") == 0
    assert sync(coordinator, result.member_id, instance_id="b")[0].assignment == follower.encode()
    coordinator.replace()
    assert coordinator.group.static_members["b"] == result.member_id


@pytest.mark.parametrize(("version", "skip", "members"), [(9, True, 2), (8, False, 0)])
def test_a_static_leader_that_returns_need_not_assign(
    coordinator: Coordinator, version: int, skip: bool, members: int
) -> None:
    """KIP-814: its response skips the assignment or, before version 9, names another leader."""
    leader, _ = static_group(coordinator)
    responses = join(coordinator, instance_id="a", version=version)
    coordinator.run_once()
    [result] = responses
    assert (result.skip_assignment, len(result.members)) == (skip, members)
    assert result.leader == (result.member_id if skip else leader)


def test_a_static_member_that_returns_in_a_rebalance_fences_its_predecessor(coordinator: Coordinator) -> None:
    leader, follower = static_group(coordinator)
    old = join(coordinator, leader, instance_id="a")
    new = join(coordinator, instance_id="a")
    assert old[0].error_code == FENCED
    join(coordinator, follower, instance_id="b")
    assert (new[0].error_code, new[0].leader) == (0, new[0].member_id)


def test_a_static_member_is_removed_by_its_instance(coordinator: Coordinator) -> None:
    leader, follower = static_group(coordinator)
    assert leave(coordinator, ("", "b"), ("", "c"), (leader, "b")) == [0, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]
    assert follower not in coordinator.group.members


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends(coordinator: Coordinator) -> None:
    leader, follower = static_group(coordinator)
    waiting = join(coordinator, leader, instance_id="a")
    for _ in range(REBALANCE_MS // 1000):
        coordinator.advance_ms(1000)
        heartbeat(coordinator, follower, instance_id="b")
    assert waiting[0].error_code == 0
    assert follower in coordinator.group.members
    coordinator.advance_ms(SESSION_MS)
    assert follower not in coordinator.group.members


# ---- coordinator deaths ---------------------------------------------------------------------------------------------


def test_a_stable_group_continues_under_another_coordinator(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    coordinator.replace()
    assert coordinator.group.state_name == "Stable"
    assert [heartbeat(coordinator, member) for member in (leader, follower)] == [0, 0]
    assert sync(coordinator, follower)[0].assignment == follower.encode()
    coordinator.advance_ms(SESSION_MS)
    assert not coordinator.group.members


def test_a_rebalance_that_is_cut_off_begins_again(coordinator: Coordinator) -> None:
    """Members of the last committed generation are known and must join again; no request hangs."""
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    lost = coordinator.group.generation
    coordinator.replace()
    assert [heartbeat(coordinator, member, lost) for member in (leader, follower)] == [22, 22]
    responses = [join(coordinator, member) for member in (leader, follower)]
    assert [each[0].error_code for each in responses] == [0, 0]
    settle(coordinator, [leader, follower])


@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_another_coordinator_does_not_wait_for_departed_members(coordinator: Coordinator, how: str) -> None:
    """The departure is committed before LeaveGroup returns, and the other members must join again."""
    leader, second, third = stable_group(coordinator, (RANGE, RANGE, RANGE))
    if how == "leaves":
        assert leave(coordinator, (leader, None)) == [0]
    else:
        beat_for(coordinator, SESSION_MS, second, third)
    generation = coordinator.group.generation
    coordinator.replace()
    assert list(coordinator.group.members) == [second, third]
    assert (coordinator.group.state_name, coordinator.group.leader) == ("PreparingRebalance", second)
    assert [heartbeat(coordinator, member, generation) for member in (second, third)] == [REBALANCE_IN_PROGRESS] * 2
    responses = [join(coordinator, member) for member in (second, third)]
    assert [each[0].error_code for each in responses] == [0, 0]
    settle(coordinator, [second, third])
    coordinator.replace()
    assert coordinator.group.state_name == "Stable"


def test_a_departure_while_an_assignment_is_awaited_is_remembered(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    assert leave(coordinator, (leader, None)) == [0]
    coordinator.replace()
    assert list(coordinator.group.members) == [follower]
    assert join(coordinator, follower)[0].error_code == 0


def test_an_assignment_that_was_not_committed_is_not_known(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    sync(coordinator, leader, {leader: b"new"})
    coordinator.replace()
    assert coordinator.group.generation == 1
    assert coordinator.group.members[leader].assignment == leader.encode()


def test_waiting_members_get_an_error_when_the_partition_moves(coordinator: Coordinator) -> None:
    leader, _ = stable_group(coordinator)
    waiting = join(coordinator, leader)
    coordinator.shard.close()
    coordinator.classic.closed(coordinator.shard, coordinator.group)
    assert waiting[0].error_code == NOT_COORDINATOR
    coordinator.advance_ms(10 * REBALANCE_MS)


def test_an_assignment_that_cannot_be_written_reaches_nobody(coordinator: Coordinator) -> None:
    leader, follower = stable_group(coordinator)
    join(coordinator, leader)
    join(coordinator, follower)
    waiting = sync(coordinator, leader, {leader: b"new"})
    coordinator.run_once(error=56)
    assert not waiting
    assert coordinator.shard.has_failed
    coordinator.shard.close()
    coordinator.classic.closed(coordinator.shard, coordinator.group)
    assert waiting[0].error_code == NOT_COORDINATOR
