"""Members of the classic protocol in consumer groups: they survive the conversion of their group in both directions."""

import pytest

from rotunda.broker.coordinator.classic.group import ClassicGroup, GroupState
from rotunda.broker.coordinator.consumer.assignment import overlaps
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import (
    encode_assignment,
)
from tests.support.groups.coordinator import GROUP, Coordinator, FakeTopics, described
from tests.support.groups.members import ClassicMember, leave
from tests.support.results import present

A = (1).to_bytes(16, "big")
ALL = frozenset(range(4))


def coordinator_with(**settings: str) -> Coordinator:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Coordinator({"group.initial.rebalance.delay.ms": "0", **named}, FakeTopics({"a": 4}))


def classic_group(coordinator: Coordinator) -> ClassicMember:
    """Return the only member of a stable classic group, which owns all partitions."""
    client = ClassicMember(coordinator, "c1")
    coordinator.classic.create(coordinator.shard, GROUP)
    client.send_join()
    coordinator.advance_ms(1)
    assert client.take_join().leader == client.member_id
    client.sync({client.member_id: encode_assignment(1, {"a": ALL})})
    assert client.owned == {"a": ALL}
    return client


def mixed_group(coordinator: Coordinator) -> ClassicMember:
    """Return the classic member of a group shared with "new" of the new protocol; each owns half."""
    client = classic_group(coordinator)
    assert coordinator.join("new", "a").assignment == {}
    for _ in range(3):
        client.follow()
    owned = present(
        coordinator.ask(member_id="new", member_epoch=coordinator.consumer_group.members["new"].epoch).assignment
    )
    assert len(owned[A]) == len(client.owned["a"]) == 2
    assert coordinator.consumer_group.state_name == "Stable"
    return client


def test_a_classic_group_becomes_a_consumer_group_and_its_member_keeps_its_partitions() -> None:
    coordinator = coordinator_with()
    client = mixed_group(coordinator)
    assert coordinator.consumer_group.members[client.member_id].classic is not None
    assert client.heartbeat() == 0
    assert described(coordinator.shard) == coordinator.replayed()
    validate = coordinator.consumer_group.validate_offset_commit
    codes = [validate(client.member_id, None, number, 8, transactional=False) for number in (client.generation, 1)]
    assert codes == [0, ErrorCode.ILLEGAL_GENERATION]


def test_partitions_pass_from_kind_to_kind_only_when_they_have_been_given_up() -> None:
    coordinator = coordinator_with()
    client = classic_group(coordinator)
    coordinator.join("new", "a")
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.joined().error_code == 0
    client.sync()
    assert len(client.owned["a"]) == 2
    assert coordinator.ask(member_id="new", member_epoch=2).assignment is None, "it has not reported their revocation"
    client.follow()
    received = coordinator.ask(member_id="new", member_epoch=2).assignment
    assert received == {A: ALL - client.owned["a"]}
    assert not overlaps(received, {A: client.owned["a"]})


def test_an_eager_member_is_served_too() -> None:
    """It gives up all its partitions before it joins."""
    coordinator = coordinator_with()
    client = classic_group(coordinator)
    coordinator.join("new", "a")
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    client.owned = {}
    assert client.joined().error_code == 0
    client.sync()
    assert len(client.owned["a"]) == 2
    assert coordinator.ask(member_id="new", member_epoch=2).assignment == {A: ALL - client.owned["a"]}
    assert client.heartbeat() == 0


def test_classic_members_join_a_consumer_group() -> None:
    coordinator = coordinator_with()
    coordinator.join("new", "a")
    client = ClassicMember(coordinator, "c2")
    asked = client.joined(needs_member_id=True)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    result = client.joined(member_id=asked.member_id)
    assert (result.error_code, result.members, result.protocol_name) == (0, (), "cooperative-sticky")
    assert client.sync().error_code == 0
    assert client.owned == {}
    kept = coordinator.ask(member_id="new", member_epoch=2, topic_partitions={A: ALL}).assignment
    assert client.heartbeat() == 0, "its partitions are not free yet"
    coordinator.ask(member_id="new", member_epoch=2, topic_partitions=kept)
    client.follow()
    assert kept is not None
    assert client.owned == {"a": ALL - kept[A]}


def test_a_classic_member_does_not_join_again_before_there_is_another_assignment() -> None:
    coordinator = coordinator_with(group_consumer_assignment_interval_ms="1000")
    coordinator.join("new", "a")
    client = ClassicMember(coordinator, "c2")
    asked = client.joined(needs_member_id=True)
    assert client.joined(member_id=asked.member_id).error_code == 0
    assert (client.sync().error_code, client.owned) == (0, {})
    assert client.heartbeat() == 0
    coordinator.advance_ms(1000)
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.consumer_group.assignment_epoch == 2
    assert client.joined().error_code == 0
    assert coordinator.consumer_group.assignment_epoch == 3


def test_the_group_is_classic_again_when_only_classic_members_are_left() -> None:
    coordinator = coordinator_with()
    client = mixed_group(coordinator)
    assert coordinator.ask(member_id="new", member_epoch=-1).error_code == 0
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    client.send_join()
    coordinator.advance_ms(1)
    assert client.take_join().leader == client.member_id
    client.sync({client.member_id: encode_assignment(1, {"a": ALL})})
    assert client.owned == {"a": ALL}
    coordinator.replace()
    assert isinstance(coordinator.shard.groups[GROUP], ClassicGroup)
    assert client.heartbeat() == 0


def test_events_of_a_group_that_is_migrated_and_back() -> None:
    """The group is never empty, and each rebalance ends once, under the group's kind at that time."""
    coordinator = coordinator_with()
    client = mixed_group(coordinator)
    over = [(event.kind, event.event) for event in coordinator.published if event.event != "join"]
    assert over == [
        ("classic", "rebalance"), ("classic", "stable"), ("consumer", "rebalance"), ("consumer", "stable"),
    ]  # fmt: skip
    coordinator.published.clear()
    coordinator.ask(member_id="new", member_epoch=-1)
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    client.send_join()
    coordinator.advance_ms(1)
    client.take_join()
    client.sync({client.member_id: encode_assignment(1, {"a": ALL})})
    back = [(event.kind, event.event, event.members) for event in coordinator.published]
    assert back == [("classic", "rebalance", 1), ("classic", "leave", 1), ("classic", "stable", 1)]
    assert [event.duration_ms for event in coordinator.published] == [None, None, 1]


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False)],
)
def test_the_policy_determines_the_migration(policy: str, upgrades: bool, downgrades: bool) -> None:
    coordinator = coordinator_with(group_consumer_migration_policy=policy)
    client = classic_group(coordinator)
    joined = coordinator.join("new", "a").error_code
    assert joined == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    assert isinstance(coordinator.shard.groups[GROUP], ClassicGroup) != upgrades
    client.leave()
    if not upgrades:
        coordinator.join("new", "a")
    old = ClassicMember(coordinator, "c3")
    old.joined()
    coordinator.ask(member_id="new", member_epoch=-1)
    assert isinstance(coordinator.shard.groups[GROUP], ClassicGroup) == downgrades


def test_groups_of_others_than_consumers_do_not_change_over() -> None:
    coordinator = coordinator_with()
    coordinator.classic.create(coordinator.shard, GROUP)
    client = ClassicMember(coordinator, "c1")
    client.send_join(protocol_type="connect", protocols=(("default", b"\x00"),))
    coordinator.advance_ms(1)
    assert coordinator.join("new", "a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(coordinator.shard.groups[GROUP], ClassicGroup)


def test_members_that_wait_for_the_old_group_have_to_join_the_other() -> None:
    coordinator = coordinator_with()
    classic_group(coordinator)
    second = ClassicMember(coordinator, "c2")
    second.send_join()
    assert not second.joins
    coordinator.join("new", "a")
    assert [result.error_code for result in second.joins] == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_static_member_keeps_its_partitions_in_the_other_protocol_and_back() -> None:
    coordinator = coordinator_with()
    coordinator.join("other", "a")
    old = ClassicMember(coordinator, "c1", instance_id="one")
    assert old.joined().error_code == 0
    old.sync()
    target = coordinator.consumer_group.target[old.member_id]
    coordinator.join("new", "a", instance_id="one")
    assert coordinator.consumer_group.target["new"] == target
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    again = ClassicMember(coordinator, "c1", instance_id="one")
    assert again.joined().error_code == 0
    assert coordinator.consumer_group.target[again.member_id] == target
    assert again.leave() == [0]
    assert described(coordinator.shard) == coordinator.replayed()


def test_a_classic_member_that_does_not_follow_is_forgotten() -> None:
    coordinator = coordinator_with()
    client = mixed_group(coordinator)
    coordinator.topics.make("a", 5)
    coordinator.topics_changed()
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(5):
        coordinator.advance_ms(5_000)
        coordinator.ask(member_id="new", member_epoch=coordinator.consumer_group.members["new"].epoch)
        if client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID:
            break
    assert set(coordinator.consumer_group.members) == {"new"}


def test_its_own_session_timeout_holds_for_a_classic_member() -> None:
    coordinator = coordinator_with()
    mixed_group(coordinator)
    coordinator.advance_ms(10_001)
    assert set(coordinator.consumer_group.members) == {"new"}


def test_requests_that_a_classic_member_may_not_send() -> None:
    coordinator = coordinator_with(group_consumer_max_size="2")
    client = mixed_group(coordinator)
    assert client.sync(generation=1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert client.sync(protocol_name="range").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.sync(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.sync(member_id="new").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ClassicMember(coordinator, "c9").joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.joined(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.joined(protocols=(("range", b"\xff"),)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = ClassicMember(coordinator, "c8")
    stranger.member_id = "stranger"
    assert stranger.leave() == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_administrator_removes_members_of_either_protocol() -> None:
    """`Admin.removeMembersFromConsumerGroup` sends LeaveGroup for members of either protocol."""
    coordinator = coordinator_with()
    client = mixed_group(coordinator)
    coordinator.join("static", "a", instance_id="one")
    fenced, unknown = int(ErrorCode.FENCED_INSTANCE_ID), int(ErrorCode.UNKNOWN_MEMBER_ID)
    assert leave(coordinator, ("new", None), ("other", "one")) == [0, fenced]
    assert leave(coordinator, ("", "one"), ("", "two"), ("new", None)) == [0, unknown, unknown]
    assert set(coordinator.consumer_group.members) == {client.member_id}
    for _ in range(3):
        client.follow()
    assert client.owned == {"a": ALL}
    assert described(coordinator.shard) == coordinator.replayed()
