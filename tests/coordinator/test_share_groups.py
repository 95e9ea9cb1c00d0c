"""Share groups request by request: the response in each state, the order of records, and what a death leaves."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.coordinator import HeartbeatAnswer
from tests.support.groups.share_coordinator import GROUP, ShareCoordinator, described

A, B = (number.to_bytes(16, "big") for number in (1, 2))
ALL = frozenset(range(4))
SEEDS = [random.randrange(2**32) for _ in range(20)]


@pytest.fixture
def coordinator() -> ShareCoordinator:
    """Return a coordinator with topic "a" of 4 partitions and "b" of 2."""
    return ShareCoordinator({"a": 4, "b": 2})


def record_types(coordinator: ShareCoordinator, since: int = 0) -> list[int]:
    """Return the types of committed records; tombstones are negative."""
    types = [(int.from_bytes(key[:2], "big"), value) for key, value in coordinator.committed[since:]]
    return [-number if value is None else number for number, value in types]


# ---- joining and leaving -------------------------------------------------------------------------------------------


def test_the_first_response_has_the_assignment(coordinator: ShareCoordinator) -> None:
    """S32, S17: state is initialized before the response; all records of a step are in order."""
    assert coordinator.join("m1", "a", "b") == HeartbeatAnswer(0, None, "m1", 2, 5000, {A: ALL, B: frozenset({0, 1})})
    assert coordinator.states.initialized == [(A, (0, 1, 2, 3), -1), (B, (0, 1), -1)]
    assert record_types(coordinator) == [10, 11, 15, 15, 15, 11, 13, 12, 14]
    written = len(coordinator.committed)
    assert coordinator.ask("m1", 2) == HeartbeatAnswer(0, None, "m1", 2, 5000)
    assert len(coordinator.committed) == written


def test_members_share_partitions_and_have_their_target_at_once(coordinator: ShareCoordinator) -> None:
    """S26, S27: nothing is revoked before it is given to others."""
    coordinator.join("m1", "b")
    second, third = coordinator.join("m2", "b"), coordinator.join("m3", "b")
    assert (second.member_epoch, third.member_epoch) == (3, 4)
    assert [coordinator.ask("m1", 2).member_epoch, coordinator.ask("m2", 3).member_epoch] == [4, 4]
    held = [member.assigned[B] for member in coordinator.group.members.values()]
    assert sorted(map(len, held)) == [1, 1, 2]
    assert frozenset[int]().union(*held) == {0, 1}


def test_a_member_leaves_and_the_last_one_resets_the_assignment(coordinator: ShareCoordinator) -> None:
    """S18, S22."""
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    written = len(coordinator.committed)
    assert coordinator.ask("m1", -1) == HeartbeatAnswer(0, None, "m1", -1)
    assert record_types(coordinator, written) == [-14, -13, -10, 11]
    assert coordinator.ask("m2", 3).assignment == {A: ALL}
    written = len(coordinator.committed)
    coordinator.ask("m2", -1)
    assert record_types(coordinator, written) == [-14, -13, -10, 11, 12]
    assert (coordinator.group.state_name, coordinator.group.assigned_wall_ms) == ("Empty", 0)
    assert described(coordinator.shard) == coordinator.replayed()
    assert coordinator.ask("m2", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.join("m3", "a").assignment == {A: ALL}
    assert described(coordinator.shard) == coordinator.replayed()


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "error"),
    [
        ("m1", 0, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ("m1", 0, {"subscribed_topic_names": ()}, ErrorCode.INVALID_REQUEST),
        ("m1", -2, {}, ErrorCode.INVALID_REQUEST),
        ("m1", 2, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ("m1", 2, {"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("m1", -1, {"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("m9", 2, {}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("m9", 0, {"subscribed_topic_names": ("a",)}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("m1", 4, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m1", 1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m9", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_heartbeats(member_id: str, epoch: int, fields: dict[str, object], error: int) -> None:
    """S20-S22."""
    coordinator = ShareCoordinator({"a": 1}, {"group.share.max.size": "2"})
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    coordinator.ask("m1", 2)
    before = described(coordinator.shard)
    assert coordinator.ask(member_id, epoch, **fields).error_code == error
    assert described(coordinator.shard) == before


@pytest.mark.parametrize("append_error", [0, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_response_waits_for_the_commit_of_its_records(coordinator: ShareCoordinator, append_error: int) -> None:
    """S29: a member that has joined without a stored record would be unknown to a successor."""
    coordinator.join("m1", "b")
    responses: list[HeartbeatAnswer] = []
    coordinator.heartbeat(responses.append, "m2", 0, subscribed_topic_names=("b",))
    assert responses == []
    coordinator.append_error = append_error
    coordinator.run_once()
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if append_error else 0
    assert [each.error_code for each in responses] == [expected]


def test_a_member_that_missed_a_response_sends_its_previous_epoch(coordinator: ShareCoordinator) -> None:
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    first = coordinator.ask("m1", 2)
    assert coordinator.ask("m1", 2) == first
    assert coordinator.join("m1", "a")._replace(heartbeat_interval_ms=5000) == first, "it has its place again"


def test_a_changed_rack_is_stored_and_changes_no_epoch(coordinator: ShareCoordinator) -> None:
    """S24."""
    joined = coordinator.join("m1", "a")
    written = len(coordinator.committed)
    assert coordinator.ask("m1", joined.member_epoch, rack_id="r").member_epoch == joined.member_epoch
    assert record_types(coordinator, written) == [10]
    assert coordinator.group.epoch == joined.member_epoch
    assert coordinator.group.members["m1"].rack_id == "r"
    assert described(coordinator.shard) == coordinator.replayed()


def test_a_changed_subscription_is_given_up_at_once(coordinator: ShareCoordinator) -> None:
    """S23, S26: unknown topics are stored, and count once they exist."""
    coordinator.join("m1", "a", "b")
    changed = coordinator.ask("m1", 2, subscribed_topic_names=("b", "c"))
    assert changed.assignment == {B: frozenset({0, 1})}
    coordinator.topics.make("c", 1)
    coordinator.topics_changed()
    extended = coordinator.ask("m1", 3)
    assert extended.assignment == {B: frozenset({0, 1}), (3).to_bytes(16, "big"): frozenset({0})}
    assert coordinator.ask("m1", extended.member_epoch, subscribed_topic_names=()).assignment == {}


# ---- time ----------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed(coordinator: ShareCoordinator) -> None:
    """S28, S19."""
    coordinator.join("m1", "a")
    coordinator.advance_ms(30_000)
    coordinator.ask("m1", 2)
    coordinator.advance_ms(30_000)
    coordinator.replace()
    coordinator.advance_ms(44_000)
    assert "m1" in coordinator.group.members
    coordinator.advance_ms(2_000)
    assert coordinator.group.state_name == "Empty"
    assert [event.event for event in coordinator.events] == ["join", "expire"]


def test_an_assignment_stays_for_its_interval() -> None:
    """S25. S26: without the topics that the member no longer subscribes to."""
    coordinator = ShareCoordinator({"a": 4})
    coordinator.group_configs["share.assignment.interval.ms"] = "1000"
    coordinator.join("m1", "a")
    coordinator.join("m2", "a")
    assert coordinator.ask("m2", 2).assignment is None
    coordinator.advance_ms(1000)
    assigned = coordinator.ask("m2", 2)
    assert len((assigned.assignment or {})[A]) == 2
    assert coordinator.ask("m2", assigned.member_epoch, subscribed_topic_names=("b",)).assignment == {}


# ---- the state of partitions ---------------------------------------------------------------------------------------


def test_heartbeats_wait_for_an_initialization_and_a_slow_one_arrives_later(coordinator: ShareCoordinator) -> None:
    """S31, S32."""
    coordinator.states.is_slow = True
    responses: list[HeartbeatAnswer] = []
    coordinator.heartbeat(responses.append, "m1", 0, subscribed_topic_names=("b",))
    coordinator.heartbeat(responses.append, "m2", 0, subscribed_topic_names=("b",))
    coordinator.run_once()
    assert (responses, len(coordinator.states.initialized)) == ([], 1)
    coordinator.advance_ms(1000)
    assert [(each.member_id, each.assignment) for each in responses] == [("m1", {}), ("m2", {})]
    coordinator.states.answer_all()
    coordinator.run_once()
    assert coordinator.ask("m1", responses[0].member_epoch).assignment is not None


def test_an_initialization_is_repeated_while_its_owner_starts(coordinator: ShareCoordinator) -> None:
    coordinator.states.errors = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE), int(ErrorCode.NOT_COORDINATOR), 0]
    responses: list[HeartbeatAnswer] = []
    coordinator.heartbeat(responses.append, "m1", 0, subscribed_topic_names=("b",))
    for _ in range(3):
        coordinator.run_once()
        coordinator.advance_ms(50)
    assert [each.assignment for each in responses] == [{B: frozenset({0, 1})}]
    assert coordinator.states.initialized == [(B, (0, 1), -1)] * 3


def test_a_death_during_an_initialization_begins_it_again(coordinator: ShareCoordinator) -> None:
    """S30."""
    coordinator.states.is_slow = True
    coordinator.heartbeat(lambda _: None, "m1", 0, subscribed_topic_names=("b",))
    coordinator.run_once()
    coordinator.states.is_slow = False
    coordinator.replace()
    assert coordinator.group.initializing.keys() == {B}
    assert coordinator.ask("m1", 0, subscribed_topic_names=("b",)).assignment == {B: frozenset({0, 1})}
    assert len(coordinator.states.initialized) == 2


def test_an_initialization_without_an_outcome_is_repeated_after_an_interval(coordinator: ShareCoordinator) -> None:
    """S30."""
    coordinator.states.is_slow = True
    responses: list[HeartbeatAnswer] = []
    coordinator.heartbeat(responses.append, "m1", 0, subscribed_topic_names=("b",))
    begun = []
    for wait_ms in (1000, 28_000, 2000):
        coordinator.advance_ms(wait_ms)
        coordinator.heartbeat(responses.append, "m1", responses[-1].member_epoch)
        coordinator.run_once()
        begun.append(len(coordinator.states.initialized))
    assert begun == [1, 1, 2]


def test_new_partitions_of_a_known_topic_begin_at_their_first_record(coordinator: ShareCoordinator) -> None:
    """S30."""
    coordinator.join("m1", "b")
    coordinator.topics.make("b", 3)
    coordinator.topics_changed()
    assert coordinator.ask("m1", 2).assignment == {B: frozenset({0, 1, 2})}
    assert coordinator.states.initialized[1:] == [(B, (2,), 0)]


def test_deleted_topics_leave_the_group_with_their_state(coordinator: ShareCoordinator) -> None:
    """S33."""
    coordinator.join("m1", "a", "b")
    coordinator.topics.delete("b")
    coordinator.topics_changed()
    assert coordinator.states.deleted == [B]
    assert (coordinator.group.initialized.keys(), coordinator.group.deleting) == ({A}, {})
    assert coordinator.ask("m1", 2).assignment == {A: ALL}
    assert described(coordinator.shard) == coordinator.replayed()


def test_a_group_is_deleted_after_its_state(coordinator: ShareCoordinator) -> None:
    """S18, S110: a failed deletion is repeated by a later one, or by a load."""
    coordinator.join("m1", "a")
    coordinator.ask("m1", -1)
    coordinator.states.errors = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE), 0]
    assert coordinator.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.group.deleting == {A: "a"}
    coordinator.replace()
    assert coordinator.group.deleting == {}
    written = len(coordinator.committed)
    assert coordinator.delete() == 0
    assert record_types(coordinator, written) == [-12, -15, -11]
    assert coordinator.shard.groups == coordinator.replayed() == {}


def test_a_group_that_a_member_joins_during_its_deletion_stays(coordinator: ShareCoordinator) -> None:
    """S110."""
    coordinator.join("m1", "a")
    coordinator.ask("m1", -1)
    coordinator.states.is_slow = True
    errors: list[int] = []
    coordinator.protocol.delete(coordinator.shard, coordinator.group, errors.append)
    coordinator.run_once()
    coordinator.ask("m2", 0, subscribed_topic_names=("c",))
    coordinator.states.answer_all()
    coordinator.run_once()
    assert errors == [ErrorCode.NON_EMPTY_GROUP]
    assert set(coordinator.group.members) == {"m2"}


def test_a_failed_reset_does_not_delay_heartbeats(coordinator: ShareCoordinator) -> None:
    """S114."""
    coordinator.join("m1", "b")
    coordinator.ask("m1", -1)
    coordinator.states.errors = [int(ErrorCode.FENCED_STATE_EPOCH), 0]
    errors: list[int] = []
    coordinator.protocol.states.reset(coordinator.shard, coordinator.group, B, {0: 7}, errors.append)
    coordinator.run_once()
    assert errors == [ErrorCode.FENCED_STATE_EPOCH]
    assert coordinator.join("m1", "b").assignment == {B: frozenset({0, 1})}


# ---- the log -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replaced_coordinator_continues_where_its_predecessor_was(seed: int) -> None:
    """Random members, topics and deaths: the log describes the group, and everybody is assigned in the end."""
    course = random.Random(seed)
    coordinator = ShareCoordinator({"a": 4, "b": 2, "c": 1})
    epochs: dict[str, int] = {}
    for _ in range(60):
        member_id = f"m{course.randrange(6)}"
        chance = course.random()
        if chance < 0.1:
            coordinator.replace()
        elif chance < 0.2 and member_id in epochs:
            coordinator.ask(member_id, -1)
            del epochs[member_id]
        elif chance < 0.25:
            coordinator.topics.make("c", len(coordinator.topics.topic("c").partitions) + 1)  # type: ignore[union-attr]
            coordinator.topics_changed()
        elif member_id in epochs and chance < 0.7:
            epochs[member_id] = coordinator.ask(member_id, epochs[member_id]).member_epoch
        else:
            names = course.sample(["a", "b", "c", "x"], course.randrange(1, 4))
            response = coordinator.ask(member_id, epochs.get(member_id, 0), subscribed_topic_names=names)
            assert response.error_code == 0
            epochs[member_id] = response.member_epoch
        assert described(coordinator.shard) == coordinator.replayed()
    for _ in range(2):
        for member_id, epoch in epochs.items():
            epochs[member_id] = coordinator.ask(member_id, epoch).member_epoch
    wanted = {name for name in "abc" for member in coordinator.group.members.values() if name in member.topic_names}
    counts = {topic.topic_id: topic.partitions for name in wanted if (topic := coordinator.topics.topic(name))}
    held = {
        (topic_id, index)
        for member in coordinator.group.members.values()
        for topic_id, indexes in member.assigned.items()
        for index in indexes
    }
    assert held == {(topic_id, index) for topic_id, indexes in counts.items() for index in indexes}


def test_records_are_kafkas() -> None:
    """S16: by the definition of ShareGroupStatePartitionMetadata, version 0."""
    coordinator = ShareCoordinator({"a": 1})
    coordinator.join("m1", "a")
    key, value = coordinator.group.state_record()
    assert key == b"\x00\x0f" + len(GROUP).to_bytes(2, "big") + GROUP.encode()
    assert value == b"\x00\x00" + b"\x01" + b"\x02" + A + b"\x02a" + b"\x02" + bytes(4) + b"\x00" + b"\x01" + b"\x00"
