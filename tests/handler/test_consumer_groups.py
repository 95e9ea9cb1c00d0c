"""KIP-848's consumer groups by their requests: two handlers, run and killed by the test."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.groups.requests import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    call,
    groups_of,
    joining,
)
from tests.support.stepped_broker import Client, SteppedBroker
from tests.support.transactional import answer_of, send

HEARTBEAT, DESCRIBE = 68, 69
SEED = random.randrange(2**32)


def heartbeat(broker: SteppedBroker, client: Client, version: int = 1, **values: Any) -> Any:
    return call(broker, client, HEARTBEAT, version, values)


def partitions_of(assignment: Any) -> set[int]:
    return {each for topic in assignment.topic_partitions for each in topic.partitions}


def join(broker: SteppedBroker, group_id: str, member_id: str, **fields: Any) -> Any:
    answer = heartbeat(broker, broker.client(), **joining(group_id, member_id, **fields))
    assert int(answer.error_code) == 0
    return answer


def described(broker: SteppedBroker, *group_ids: str, version: int = 1) -> dict[str, Any]:
    values = {"group_ids": list(group_ids), "include_authorized_operations": True}
    answer = call(broker, broker.client(), DESCRIBE, version, values)
    return {group.group_id: group for group in answer.groups}


@pytest.mark.parametrize("version", range(2))
def test_a_member_joins_reports_and_leaves(broker: SteppedBroker, version: int) -> None:
    """I68."""
    client = broker.client()
    joined = heartbeat(broker, client, version, **joining("group", "m" if version else ""))
    assert (int(joined.error_code), joined.member_epoch) == (0, 2)
    assert partitions_of(joined.assignment) == {0, 1, 2, 3}
    assert joined.member_id
    who = {"group_id": "group", "member_id": joined.member_id}
    steady = heartbeat(broker, client, version, **who, member_epoch=2)
    assert (int(steady.error_code), steady.member_epoch, steady.assignment) == (0, 2, None)
    assert int(heartbeat(broker, client, version, **who, member_epoch=9).error_code) == 110
    assert int(heartbeat(broker, client, version, **who, member_epoch=-1).error_code) == 0
    assert int(heartbeat(broker, client, version, **who, member_epoch=2).error_code) == 25
    assert int(heartbeat(broker, client, version, group_id="none", member_id="m", member_epoch=1).error_code) == 69


def test_a_generated_id_is_the_same_when_the_request_is_resent_to_a_replacement(broker: SteppedBroker) -> None:
    client = broker.client()
    sent = send(client, HEARTBEAT, 0, joining("group", ""))
    # It dies after the change is written and before the response is read.
    broker.run_once(sent.target)
    broker.replace(sent.target)
    broker.settle()
    [member] = described(broker, "group")["group"].members
    assert member.member_id == answer_of(sent).member_id


@pytest.mark.parametrize("version", range(2))
def test_groups_of_all_handlers_are_described(broker: SteppedBroker, version: int) -> None:
    """I69."""
    groups = [groups_of(broker, owner, 1)[0] for owner in range(2)]
    for group in groups:
        join(broker, group, "m", instance_id="i", rack_id="r", server_assignor="range")
    classic = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0"}]}
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
    call(broker, broker.client(), JOIN_GROUP, 3, {"group_id": "classic", **classic, **timeouts})
    found = described(broker, *groups, "nowhere", "classic", version=version)
    assert list(found) == [*groups, "nowhere", "classic"]
    for group in groups:
        got = found[group]
        assert (int(got.error_code), got.group_state, got.assignor_name) == (0, "Stable", "range")
        assert (got.group_epoch, got.assignment_epoch) == (2, 2)
        [member] = got.members
        assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
        assert tuple(member.subscribed_topic_names) == ("topic",)
        assert partitions_of(member.assignment) == partitions_of(member.target_assignment) == {0, 1, 2, 3}
        assert {topic.topic_name for topic in member.assignment.topic_partitions} == {"topic"}
        assert member.member_type == (1 if version else -1)
        assert got.authorized_operations > 0
    assert [(int(found[name].error_code), found[name].error_message) for name in ("nowhere", "classic")] == [
        (69, "Group nowhere not found."),
        (69, "Group classic is not a consumer group."),
    ]


def test_other_apis_see_these_groups_too(broker: SteppedBroker) -> None:
    join(broker, "group", "m")
    listed = call(broker, broker.client(), LIST_GROUPS, 5, {"types_filter": ["consumer"]}).groups
    assert [(group.group_id, group.group_type, group.group_state) for group in listed] == [
        ("group", "consumer", "Stable")
    ]
    [rejected] = call(broker, broker.client(), DESCRIBE_GROUPS, 6, {"groups": ["group"]}).groups
    assert int(rejected.error_code) == 69
    deleting = {"groups_names": ["group"]}
    assert int(call(broker, broker.client(), DELETE_GROUPS, 2, deleting).results[0].error_code) == 68
    heartbeat(broker, broker.client(), group_id="group", member_id="m", member_epoch=-1)
    assert int(call(broker, broker.client(), DELETE_GROUPS, 2, deleting).results[0].error_code) == 0
    assert int(described(broker, "group")["group"].error_code) == 69
    for owner in range(2):
        broker.replace(owner)
    assert int(described(broker, "group")["group"].error_code) == 69


def test_offsets_are_for_members_of_the_epoch(broker: SteppedBroker) -> None:
    join(broker, "group", "m")

    def commit(epoch: int, version: int = 9) -> int:
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        values = {
            "group_id": "group",
            "member_id": "m",
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": "topic", "partitions": [part]}],
        }
        answer = call(broker, broker.client(), OFFSET_COMMIT, version, values)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(epoch: int) -> tuple[int, int]:
        asked = {"group_id": "group", "member_id": "m", "member_epoch": epoch}
        topics = {"topics": [{"name": "topic", "partition_indexes": [0]}]}
        [group] = call(broker, broker.client(), OFFSET_FETCH, 9, {"groups": [{**asked, **topics}]}).groups
        return int(group.error_code), group.topics[0].partitions[0].committed_offset if group.topics else -1

    assert [commit(2), commit(1), commit(3), commit(2, 8)] == [0, 113, 113, 35]
    assert [fetch(2), fetch(1)[0]] == [(0, 5), 113]
    # V06: a second member raises the epoch, and the first still has the partition since epoch 2.
    join(broker, "group", "m2")
    revoking = heartbeat(broker, broker.client(), group_id="group", member_id="m", member_epoch=2)
    kept = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in revoking.assignment.topic_partitions]
    assert 0 in partitions_of(revoking.assignment)
    revoked = {"group_id": "group", "member_id": "m", "member_epoch": 2, "topic_partitions": kept}
    assert heartbeat(broker, broker.client(), **revoked).member_epoch == 3
    assert [commit(2), commit(1), commit(3)] == [0, 113, 0]


@pytest.mark.parametrize("broker", [{"group.coordinator.rebalance.protocols": "classic"}], indirect=True)
def test_without_the_protocol_it_is_rejected(broker: SteppedBroker) -> None:
    assert int(heartbeat(broker, broker.client(), **joining("group", "m")).error_code) == 35
    assert int(described(broker, "group")["group"].error_code) == 35


@pytest.mark.parametrize("broker", [{"max.partitions": "64"}], indirect=True)
def test_a_step_happens_once_for_a_death_at_any_line(broker: SteppedBroker) -> None:
    """A heartbeat that moves partitions is completed as without the death, and the group remains consistent."""
    chance = random.Random(SEED)
    line, deaths = 1, 0
    for number in range(10_000):
        owner = _take_step(broker, f"group-{number}", line)
        if owner is None:
            break
        deaths += 1
        line += chance.randrange(1, 60)
        broker.forget_clients()
    assert deaths > 10, SEED


def _take_step(broker: SteppedBroker, group: str, line: int) -> int | None:
    """Move partitions from m1 to m2 while the coordinator dies; return its handler, or None if it survived."""
    join(broker, group, "m1")
    join(broker, group, "m2")
    first, second = broker.client(), broker.client()
    topic_id = broker.parts(0).metadata.topic("topic").topic_id  # type: ignore[union-attr]

    def owned(*partitions: int) -> list[dict[str, Any]]:
        return [{"topic_id": topic_id, "partitions": list(partitions)}]

    told = heartbeat(broker, first, group_id=group, member_id="m1", member_epoch=2, topic_partitions=owned(0, 1, 2, 3))
    kept = partitions_of(told.assignment)
    sent = send(
        first,
        HEARTBEAT,
        1,
        {"group_id": group, "member_id": "m1", "member_epoch": 2, "topic_partitions": owned(*kept)},
    )
    died = broker.replaced_at_line(sent.target, line)
    broker.settle()
    answer = answer_of(sent)
    assert int(answer.error_code) == 0
    for _ in range(2):
        if answer.member_epoch < 3:
            answer = heartbeat(broker, first, group_id=group, member_id="m1", member_epoch=answer.member_epoch)
    assert answer.member_epoch == 3, (SEED, line)
    for _ in range(2):
        taken = heartbeat(broker, second, group_id=group, member_id="m2", member_epoch=3)
    got = {member.member_id: partitions_of(member.assignment) for member in described(broker, group)[group].members}
    assert got == {"m1": kept, "m2": {0, 1, 2, 3} - kept}, (SEED, line)
    assert int(taken.error_code) == 0
    return sent.target if died else None
