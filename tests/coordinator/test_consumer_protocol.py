"""Consumer groups request by request: the response in each state, and the effect of timeouts and deaths on a group."""

from itertools import count
from typing import Any

import pytest

from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.heartbeat import reports_nothing
from rotunda.broker.coordinator.consumer.member import MemberState
from rotunda.broker.coordinator.consumer.topic_patterns import MOST_WAIT_NS, TopicPatterns
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.coordinator import (
    GROUP,
    Coordinator,
    FakeTopics,
    HeartbeatAnswer,
    described,
    heartbeat_request,
)
from tests.support.results import present

A, B = (number.to_bytes(16, "big") for number in (1, 2))
ALL = frozenset(range(4))


@pytest.fixture
def coordinator() -> Coordinator:
    """Return a coordinator with topic "a" of 4 partitions and "b" of 2."""
    return Coordinator(topics=FakeTopics({"a": 4, "b": 2}))


def two_members(coordinator: Coordinator) -> None:
    """Assign topic "a" to m1 (0 and 1) and m2 (2 and 3)."""
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    kept = {A: frozenset({0, 1})}
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions=kept)
    coordinator.ask(member_id="m2", member_epoch=3)
    coordinator.ask(member_id="m2", member_epoch=3, topic_partitions={A: ALL - kept[A]})
    assert coordinator.consumer_group.state_name == "Stable"
    assert coordinator.consumer_group.members["m2"].assigned == {A: frozenset({2, 3})}


# ---- joining, revoking, leaving -----------------------------------------------------------------------------------


def test_the_first_member_gets_everything_and_hears_no_more_of_it(coordinator: Coordinator) -> None:
    assert coordinator.join("m1", "a", "b") == HeartbeatAnswer(0, None, "m1", 2, 5000, {A: ALL, B: frozenset({0, 1})})
    assert coordinator.ask(member_id="m1", member_epoch=2) == HeartbeatAnswer(0, None, "m1", 2, 5000)
    written = len(coordinator.committed)
    coordinator.ask(member_id="m1", member_epoch=2)
    assert len(coordinator.committed) == written


def test_partitions_change_hands_only_when_they_have_been_given_up(coordinator: Coordinator) -> None:
    """I68: a member first revokes its partitions, then another receives them."""
    coordinator.join("m1", "a")
    assert coordinator.join("m2", "a").assignment == {}
    reported = coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    assert reported.member_epoch == 2
    kept = present(reported.assignment)
    assert len(kept[A]) == 2
    assert coordinator.ask(member_id="m1", member_epoch=2).member_epoch == 2, "it has not reported its partitions"
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment is None
    assert coordinator.ask(member_id="m1", member_epoch=2, topic_partitions=kept).member_epoch == 3
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment == {A: ALL - kept[A]}
    assert coordinator.consumer_group.state_name == "Stable"


def test_partitions_that_a_member_has_not_acknowledged_stay_assigned(coordinator: Coordinator) -> None:
    """A member may start consuming an assigned partition at any time: only its reports after the revocation count."""
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={})
    assert coordinator.consumer_group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment is None
    # A heartbeat without partitions repeats the last report, which was an empty list.
    coordinator.ask(member_id="m1", member_epoch=2)
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment is not None


def test_a_member_that_leaves_frees_its_partitions(coordinator: Coordinator) -> None:
    two_members(coordinator)
    left = coordinator.ask(member_id="m1", member_epoch=-1)
    assert left == HeartbeatAnswer(0, None, "m1", -1)
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment == {A: ALL}
    coordinator.ask(member_id="m2", member_epoch=-1)
    assert coordinator.consumer_group.state_name == "Empty"
    assert described(coordinator.shard) == coordinator.replayed()
    assert coordinator.join("m3", "a").member_epoch == coordinator.consumer_group.epoch


def test_a_subscription_that_changes_is_given_up_at_once(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", "b")
    owned = {A: ALL, B: frozenset({0, 1})}
    changed = coordinator.ask(
        member_id="m1", member_epoch=2, subscribed_topic_names=("b",), topic_partitions=owned, rebalance_timeout_ms=1
    )
    assert changed.assignment == {B: frozenset({0, 1})}
    assert coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={B: frozenset({0, 1})}).member_epoch == 3


def test_the_assignor_that_most_want_divides(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", server_assignor="range")
    coordinator.join("m2", "a", server_assignor="range")
    coordinator.join("m3", "a")
    assert coordinator.consumer_group.target == {
        "m1": {A: frozenset({0, 1})},
        "m2": {A: frozenset({2})},
        "m3": {A: frozenset({3})},
    }


# ---- topics -------------------------------------------------------------------------------------------------------


def test_an_assignment_stays_for_as_long_as_is_set() -> None:
    """Members that join meanwhile get no partitions; the first heartbeat afterwards computes the next assignment."""
    topics = FakeTopics({"a": 4})
    coordinator = Coordinator({"group.consumer.assignment.interval.ms": "1000"}, topics)
    assert coordinator.join("m1", "a").assignment == {A: ALL}, "the first is made at once"
    coordinator.advance_ms(999)
    joined = coordinator.join("m2", "a")
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert coordinator.ask(member_id="m1", member_epoch=2).assignment is None
    group = coordinator.consumer_group
    assert (group.epoch, group.assignment_epoch, group.state_name) == (3, 2, "Assigning")
    coordinator.advance_ms(1)
    coordinator.ask(member_id="m2", member_epoch=2)
    assert (group.epoch, group.assignment_epoch, group.state_name) == (3, 3, "Reconciling")
    assert coordinator.ask(member_id="m1", member_epoch=2).assignment == {A: group.target["m1"][A]}
    coordinator.ask(member_id="m1", member_epoch=-1)
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment == {A: group.target["m2"][A]}
    assert (group.epoch, group.assignment_epoch) == (4, 3), "the other's partitions are not reassigned yet"
    coordinator.advance_ms(1000)
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment == {A: ALL}


def test_nobody_waits_for_an_assignment_interval_that_another_coordinator_began() -> None:
    coordinator = Coordinator({"group.consumer.assignment.interval.ms": "1000"}, FakeTopics({"a": 4}))
    coordinator.join("m1", "a")
    coordinator.replace()
    coordinator.join("m2", "a")
    assert coordinator.consumer_group.assignment_epoch == 3


def test_created_extended_and_deleted_topics_raise_the_epoch(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", "later")
    later = coordinator.topics.make("later", 2)
    coordinator.topics_changed()
    assert coordinator.ask(member_id="m1", member_epoch=2).assignment == {A: ALL, later: frozenset({0, 1})}
    coordinator.topics.make("unread", 2)
    coordinator.topics_changed()
    assert coordinator.ask(member_id="m1", member_epoch=3).member_epoch == 3
    coordinator.topics.make("later", 3)
    coordinator.topics_changed()
    assert coordinator.ask(member_id="m1", member_epoch=3).member_epoch == 4
    coordinator.topics.delete("later")
    coordinator.topics_changed()
    assert coordinator.ask(member_id="m1", member_epoch=4).assignment == {A: ALL}


def test_a_pattern_is_resolved_again_when_topics_change(coordinator: Coordinator) -> None:
    joined = coordinator.join("m1", subscribed_topic_names=None, subscribed_topic_regex="a|later.*")
    assert joined.assignment == {A: ALL}
    later = coordinator.topics.make("later-1", 1)
    coordinator.topics_changed()
    assert coordinator.ask(member_id="m1", member_epoch=2).assignment == {A: ALL, later: frozenset({0})}
    assert described(coordinator.shard) == coordinator.replayed()
    assert coordinator.consumer_group.is_subscribed("later-1")
    coordinator.ask(member_id="m1", member_epoch=3, subscribed_topic_regex="")
    assert not coordinator.consumer_group.regexes
    assert described(coordinator.shard) == coordinator.replayed()


# ---- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": {A: ALL}}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a**"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_request_that_is_wrong_makes_no_group(coordinator: Coordinator, fields: dict[str, Any], error: int) -> None:
    rejected = coordinator.join("m1", "a", **fields)
    assert rejected.error_code == error
    assert rejected.error_message
    assert not coordinator.shard.groups
    assert not coordinator.committed


def test_an_old_client_need_not_bring_an_id(coordinator: Coordinator) -> None:
    """The handler generates one for version 0."""
    rejected = coordinator.join("", "a", version=0, member_epoch=2)
    assert rejected.error_code == ErrorCode.INVALID_REQUEST


def test_epochs_that_do_not_fit_are_fenced(coordinator: Coordinator) -> None:
    two_members(coordinator)
    assert coordinator.ask(member_id="m1", member_epoch=4).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert coordinator.ask(member_id="m1", member_epoch=2).error_code == 0, "the epoch before is good"
    foreign = coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    assert foreign.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert coordinator.ask(member_id="m3", member_epoch=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.ask(member_id="m3", member_epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_previous_epoch_gets_the_response_that_the_member_missed(coordinator: Coordinator) -> None:
    two_members(coordinator)
    missed = coordinator.ask(member_id="m1", member_epoch=2)
    assert (missed.member_epoch, missed.assignment) == (3, {A: frozenset({0, 1})})
    written = len(coordinator.committed)
    assert coordinator.join("m2", "a").assignment == {A: frozenset({2, 3})}, "a join that comes twice"
    assert len(coordinator.committed) == written


def test_a_fenced_member_joins_again_under_its_id(coordinator: Coordinator) -> None:
    """A fenced member has lost its partitions: no other member waits for its revocation."""
    two_members(coordinator)
    assert coordinator.ask(member_id="m1", member_epoch=8).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = coordinator.join("m1", "b")
    assert (again.error_code, again.member_epoch) == (0, 4)
    assert again.assignment == {B: frozenset({0, 1})}
    assert coordinator.ask(member_id="m2", member_epoch=3).assignment == {A: ALL}


def test_a_full_group_rejects_members() -> None:
    coordinator = Coordinator({"group.consumer.max.size": "1"}, FakeTopics({"a": 4}))
    coordinator.join("m1", "a")
    assert coordinator.join("m2", "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.ask(member_id="m1", member_epoch=2).error_code == 0


# ---- static members -----------------------------------------------------------------------------------------------


def test_a_static_member_returns_to_its_partitions(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", instance_id="one")
    coordinator.join("m2", "a", instance_id="two")
    epoch = coordinator.consumer_group.epoch
    rejected = coordinator.join("m3", "a", instance_id="one")
    assert rejected.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    left = coordinator.ask(member_id="m1", member_epoch=-2, instance_id="one")
    assert (left.error_code, left.member_epoch) == (0, -2)
    had = coordinator.consumer_group.target["m1"]
    back = coordinator.join("m3", "a", instance_id="one")
    assert back.assignment == had
    assert coordinator.consumer_group.epoch == epoch, "nobody else notices"
    assert coordinator.join("m3", "a", instance_id="one").assignment == had, "a join that comes twice"
    late = coordinator.ask(member_id="m1", member_epoch=2, instance_id="one")
    assert late.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.ask(member_id="m9", member_epoch=2, instance_id="x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert described(coordinator.shard) == coordinator.replayed()


def test_a_static_member_that_stays_away_is_forgotten(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", instance_id="one")
    coordinator.ask(member_id="m1", member_epoch=-2, instance_id="one")
    assert coordinator.consumer_group.members
    coordinator.advance_ms(45_001)
    assert coordinator.consumer_group.is_empty


# ---- time ---------------------------------------------------------------------------------------------------------


def test_a_session_ends_without_a_heartbeat(coordinator: Coordinator) -> None:
    two_members(coordinator)
    for _ in range(4):
        coordinator.advance_ms(20_000)
        coordinator.ask(member_id="m2", member_epoch=3)
    assert set(coordinator.consumer_group.members) == {"m2"}
    assert coordinator.consumer_group.members["m2"].assigned == {A: ALL}


def test_a_group_has_timeouts_of_its_own(coordinator: Coordinator) -> None:
    coordinator.group_configs[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    assert coordinator.join("m1", "a").heartbeat_interval_ms == 7000
    coordinator.advance_ms(49_000)
    assert coordinator.consumer_group.members
    coordinator.advance_ms(1_001)
    assert coordinator.consumer_group.is_empty


def test_a_member_that_does_not_give_up_in_time_is_fenced(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", rebalance_timeout_ms=10_000)
    coordinator.join("m2", "a")
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    for _ in range(3):
        coordinator.advance_ms(4_000)
        coordinator.ask(member_id="m1", member_epoch=2)
        coordinator.ask(member_id="m2", member_epoch=coordinator.consumer_group.members["m2"].epoch)
    assert set(coordinator.consumer_group.members) == {"m2"}
    coordinator.ask(member_id="m2", member_epoch=coordinator.consumer_group.members["m2"].epoch)
    assert coordinator.consumer_group.members["m2"].assigned == {A: ALL}


def test_a_heartbeat_that_reports_nothing() -> None:
    stated = {"member_id": "m", "member_epoch": 3, "instance_id": "i"}
    assert reports_nothing(heartbeat_request(**stated))
    for name, value in (
        ("rack_id", "r"),
        ("rebalance_timeout_ms", 1),
        ("subscribed_topic_names", ()),
        ("subscribed_topic_regex", ""),
        ("server_assignor", "range"),
        ("topic_partitions", {}),
    ):
        assert not reports_nothing(heartbeat_request(**stated, **{name: value}))


# ---- commits, failures and deaths ---------------------------------------------------------------------------------


def test_nothing_is_reported_before_it_is_committed(coordinator: Coordinator) -> None:
    responses: list[HeartbeatAnswer] = []
    fields = {"rebalance_timeout_ms": 1, "topic_partitions": {}, "subscribed_topic_names": ("a",)}
    coordinator.heartbeat(responses.append, member_id="m1", member_epoch=0, **fields)
    coordinator.heartbeat(responses.append, member_id="m1", member_epoch=2)
    assert not responses
    coordinator.run_once()
    assert [response.member_epoch for response in responses] == [2, 2]


def test_a_failed_write_is_an_error_for_all_waiting_members(coordinator: Coordinator) -> None:
    responses: list[HeartbeatAnswer] = []
    fields = {"rebalance_timeout_ms": 1, "topic_partitions": {}, "subscribed_topic_names": ("a",)}
    coordinator.heartbeat(responses.append, member_id="m1", member_epoch=0, **fields)
    coordinator.heartbeat(responses.append, member_id="m1", member_epoch=2)
    coordinator.run_once(error=56)
    assert [response.error_code for response in responses] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


def test_a_group_is_read_back_with_new_sessions(coordinator: Coordinator) -> None:
    two_members(coordinator)
    known = described(coordinator.shard)
    coordinator.advance_ms(40_000)
    coordinator.replace()
    assert described(coordinator.shard) == known
    coordinator.advance_ms(40_000)
    assert len(coordinator.consumer_group.members) == 2
    coordinator.advance_ms(5_001)
    assert coordinator.consumer_group.is_empty


def test_a_rebalance_timeout_begins_again_with_a_new_coordinator(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", rebalance_timeout_ms=10_000)
    coordinator.join("m2", "a")
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    coordinator.replace()
    coordinator.advance_ms(10_001)
    assert set(coordinator.consumer_group.members) == {"m2"}


def test_owned_partitions_in_a_resent_request_are_not_trusted(coordinator: Coordinator) -> None:
    """The predecessor may have sent its response, with partitions that the member does not yet own."""
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    coordinator.ask(member_id="m1", member_epoch=2, topic_partitions={A: ALL})
    coordinator.replace()
    kept = coordinator.consumer_group.members["m1"].assigned
    assert coordinator.ask(member_id="m1", member_epoch=2, topic_partitions=kept).member_epoch == 2
    reported = coordinator.ask(member_id="m1", member_epoch=2)
    assert (reported.member_epoch, reported.assignment) == (3, kept), "the next one counts, and gets everything"
    assert coordinator.ask(member_id="m1", member_epoch=3).assignment is None


# ---- patterns -----------------------------------------------------------------------------------------------------


def test_a_slow_pattern_is_applied_when_it_has_been_resolved() -> None:
    """Until then the member is assigned no topics of the pattern, and no response claims an unchanged assignment."""
    topics = FakeTopics({"a": 4, "b": 2})
    coordinator = Coordinator(topics=topics)
    times = count(0, MOST_WAIT_NS)
    coordinator.patterns = TopicPatterns(topics, None, lambda: next(times))
    joined = coordinator.join("m1", subscribed_topic_names=None, subscribed_topic_regex="a")
    assert (joined.error_code, joined.member_epoch, joined.assignment) == (0, 2, {})
    assert coordinator.ask(member_id="m1", member_epoch=2).assignment is None
    coordinator.patterns = TopicPatterns(topics, None, coordinator.clock.monotonic_ns)
    reported = coordinator.ask(member_id="m1", member_epoch=2)
    assert (reported.member_epoch, reported.assignment) == (3, {A: ALL})
    written = len(coordinator.committed)
    assert coordinator.ask(member_id="m1", member_epoch=3).assignment is None
    assert len(coordinator.committed) == written


def test_members_that_leave_and_expire_wait_for_no_pattern(coordinator: Coordinator) -> None:
    for member, pattern in (("m1", "a"), ("m2", "b"), ("m3", "a|b")):
        coordinator.join(member, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    coordinator.topics.make("a", 8)
    coordinator.topics_changed()
    coordinator.ask(member_id="m1", member_epoch=-1)
    assert set(coordinator.consumer_group.regexes) == {"b", "a|b"}
    coordinator.advance_ms(44_000)
    coordinator.ask(member_id="m2", member_epoch=coordinator.consumer_group.members["m2"].epoch)
    coordinator.advance_ms(2_000)
    assert set(coordinator.consumer_group.members) == {"m2"}
    assert set(coordinator.consumer_group.regexes) == {"b"}
    assert described(coordinator.shard) == coordinator.replayed()


# ---- commits of offsets -------------------------------------------------------------------------------------------


def test_only_members_of_the_epoch_commit_and_fetch(coordinator: Coordinator) -> None:
    two_members(coordinator)
    group = coordinator.consumer_group

    def commit(member: str, epoch: int, version: int = 9, *, transactional: bool = False) -> int:
        return group.validate_offset_commit(member, None, epoch, version, transactional=transactional)

    assert commit("m1", 3) == 0
    assert commit("m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m1", 3, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("m1", 3, 3, transactional=True) == 0
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_offset_fetch(None, -1) == 0
    assert group.validate_offset_fetch("m1", 3) == 0
    assert group.validate_offset_fetch("m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_offset_fetch("m9", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_delete() == ErrorCode.NON_EMPTY_GROUP
    coordinator.ask(member_id="m1", member_epoch=-1)
    coordinator.ask(member_id="m2", member_epoch=-1)
    assert commit("", -1) == 0
    assert group.validate_delete() == group.validate_offset_delete() == 0


def test_v06_a_member_commits_the_partitions_of_an_older_epoch(coordinator: Coordinator) -> None:
    """KIP-1251: it may not have heard of the new epoch yet; a partition that it got later is another matter."""
    two_members(coordinator)
    coordinator.ask(member_id="m2", member_epoch=-1)
    coordinator.ask(member_id="m1", member_epoch=3)
    for group in (coordinator.consumer_group, coordinator.replayed_group()):
        assert group.members["m1"].epoch == 4

        def had(epoch: int, *partitions: int, group: ConsumerGroup = group) -> bool:
            return group.had_partitions("m1", epoch, [(A, each) for each in partitions])

        assert [had(epoch, 0, 1) for epoch in (1, 2, 3)] == [False, True, True]
        assert [had(3, 0, 2), had(4, 0, 2), had(5, 0)] == [False, True, False]
        assert not group.had_partitions("m1", 3, [(B, 0)])
        assert not group.had_partitions("m2", 3, [(A, 2)])


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("member", "instance", "epoch", "error"),
    [
        ("", None, -1, 0),
        ("", None, -2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m9", None, -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", None, -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", None, 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", None, 3, 0),
        ("m1", "i", 3, 0),
    ],
)
def test_a_transaction_commits_for_a_group_with_members(
    coordinator: Coordinator, version: int, member: str, instance: str | None, epoch: int, error: int
) -> None:
    """Producers that name only the group send generation -1 and no member: Kafka accepts that in a transaction."""
    two_members(coordinator)
    validate = coordinator.consumer_group.validate_offset_commit
    assert validate(member, instance, epoch, version, transactional=True) == error
