"""The fast path of heartbeats and commits writes the same rows to the request log as the general path."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from rotunda.broker.handler.group_fast_path import GroupFastPath
from rotunda.broker.protocol import codec
from tests.support.coordinator_requests import COMMIT, PARTITION
from tests.support.groups.requests import HEARTBEAT, OFFSET_COMMIT, Member, groups_of
from tests.support.stepped_broker import Sent, SteppedBroker


def answered(broker: SteppedBroker, api_key: int, version: int, values: dict[str, Any]) -> Sent:
    frame = codec.encode_request(api_key, version, 0, "test", values)[4:]
    sent = broker.client().send_frame(api_key, version, frame)
    broker.settle()
    return sent


@pytest.mark.parametrize("version", range(2, 10))
def test_both_ways_answer_alike(broker: SteppedBroker, version: int) -> None:
    member = Member(broker, groups_of(broker, 0, 1)[0])
    member.join()
    good = COMMIT | {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
    }
    bad_part = good | {"topics": [{"name": "topic", "partitions": [PARTITION, PARTITION | {"partition_index": 9}]}]}
    beat = {"group_id": member.group_id, "generation_id": member.generation, "member_id": member.member_id}
    requests = [
        (OFFSET_COMMIT, version, good),
        (OFFSET_COMMIT, version, bad_part),
        (OFFSET_COMMIT, version, good | {"generation_id_or_member_epoch": 99}),
        (OFFSET_COMMIT, version, good | {"topics": [{"name": "nowhere", "partitions": [PARTITION]}]}),
        (HEARTBEAT, version % 5, beat),
        (HEARTBEAT, version % 5, beat | {"generation_id": 99}),
        (HEARTBEAT, version % 5, beat | {"group_id": ""}),
    ]
    short = [answered(broker, *request).answer for request in requests]
    for handler in broker.handlers:
        if handler is not None:
            path: GroupFastPath = handler._groups
            path.ways = MappingProxyType({})
    assert short == [answered(broker, *request).answer for request in requests]
    assert [each.error_code for each in short] == [0, 3, 22, 3, 0, 22, 24]


def test_only_what_members_say_is_remembered(broker: SteppedBroker) -> None:
    """A non-member could fill the cache with arbitrary ids."""
    member = Member(broker, groups_of(broker, 0, 1)[0])
    member.join()
    beat = {"group_id": member.group_id, "generation_id": member.generation, "member_id": member.member_id}
    path: GroupFastPath = broker.handler(0)._groups
    path._heartbeats.clear()
    for number in range(20):
        for other in ({"group_id": f"other{number}"}, {"member_id": f"other{number}"}, {"generation_id": number + 90}):
            answered(broker, HEARTBEAT, 4, beat | other)
    assert not len(path._heartbeats)
    for _ in range(2):
        assert answered(broker, HEARTBEAT, 4, beat).answer.error_code == 0
    # Each was sent on a separate connection.
    assert len(path._heartbeats) == 2
