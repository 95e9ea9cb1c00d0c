"""The responses to a group of very many members are sent over several turns, which all remain short."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.server_log.slow_turns import SLOW_TURN_NS
from tests.support.call_clock import NS_A_CALL, CallClock, run_once
from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.transactional import answer_of, open_coordinator_topics, send

MEMBERS = 600
VERSION = 3


pytestmark = pytest.mark.stepped({}, handlers=1, settings={"group.initial.rebalance.delay.ms": "1000"}, clock=CallClock)


def join(member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": "group", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "member_id": member_id,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}],
    }  # fmt: skip


def sync(joined: Any, members: list[str]) -> dict[str, Any]:
    assignments = [{"member_id": member, "assignment": member.encode()} for member in members]
    return {
        "group_id": "group", "generation_id": joined.generation_id, "member_id": joined.member_id,
        "assignments": assignments if joined.leader == joined.member_id else [],
    }  # fmt: skip


def turn_until(broker: SteppedBroker, sent: list[Sent], pause_ms: int = 1) -> int:
    """Run all processes until every request has a response; return the longest turn of the handler, in ns."""
    longest = 0
    while not all(each.answers for each in sent):
        longest = max(longest, run_once(broker, 0) * NS_A_CALL)
        run_once(broker, 1)
        broker.drain()
        broker.clock.advance_ms(pause_ms)
    return longest


def test_hundreds_of_members_join_and_sync_in_short_runs(broker: SteppedBroker) -> None:
    """The handler dies while some members wait for their responses: its replacement sends them."""
    open_coordinator_topics(broker)
    clients = [broker.client() for _ in range(MEMBERS)]
    joins = [send(client, ApiKey.JOIN_GROUP, VERSION, join()) for client in clients]
    assert turn_until(broker, joins, pause_ms=20) < SLOW_TURN_NS
    joined = [answer_of(each) for each in joins]
    assert {(each.error_code, each.generation_id) for each in joined} == {(0, 1)}
    members = [each.member_id for each in joined]
    assert sorted(len(each.members) for each in joined) == [0] * (MEMBERS - 1) + [MEMBERS]

    syncs = [send(c, ApiKey.SYNC_GROUP, VERSION, sync(j, members)) for c, j in zip(clients, joined, strict=True)]
    while not any(each.answers for each in syncs):
        assert run_once(broker, 0) * NS_A_CALL < SLOW_TURN_NS
        broker.drain()
    assert not all(each.answers for each in syncs)
    broker.replace(0)
    assert turn_until(broker, syncs) < SLOW_TURN_NS
    assert [answer_of(each).assignment for each in syncs] == [member.encode() for member in members]
