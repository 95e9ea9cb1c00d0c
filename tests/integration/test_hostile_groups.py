"""An enormous group at a running broker: no member notices the death of its handler."""

from __future__ import annotations

import struct
from contextlib import ExitStack

from tests.support.broker_process import BrokerProcess
from tests.support.groups.requests import Member, await_coordinators
from tests.support.wire_client import WireClient

#: All members join within it, even if one pauses for a moment: one generation has them all.
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 3000}

MEMBERS = 300

#: The log messages of our own faults.
FAULTS = ("Traceback", "a failed request", "fault in", "cannot send the response", "its response failed", "it failed")


def nothing_of_ours_failed(broker: BrokerProcess, position: int) -> None:
    found = [line for line in broker.log_since(position) if any(text in line for text in FAULTS)]
    assert not found, found[:20]


def test_a_group_of_hundreds_with_large_metadata_rebalances_and_survives_its_handler(broker: BrokerProcess) -> None:
    """Responses and records of megabytes: larger than a ring, and than any message that a client may produce."""
    position = broker.log_bytes()
    with ExitStack() as stack:
        members = [
            Member(
                stack.enter_context(WireClient(broker.port)),
                "crowd", metadata=bytes(8 * 1024), session_ms=60_000, asks_for_id=False,
            )
            for _ in range(MEMBERS)
        ]  # fmt: skip
        await_coordinators(members[0].link.wire)
        joins = [member.join_request() for member in members]
        joined = [member.answer(sent) for member, sent in zip(members, joins, strict=True)]
        assert {int(each.error_code) for each in joined} == {0}
        assert len({each.generation_id for each in joined}) == 1
        (leader,) = {each.leader for each in joined}
        assert max(len(each.members) for each in joined) == MEMBERS
        for member, each in zip(members, joined, strict=True):
            member.member_id, member.generation = each.member_id, each.generation_id
        share = struct.Struct(">i8192x")
        shares = {member.member_id: share.pack(number) for number, member in enumerate(members)}
        syncs = [member.sync_request(shares if member.member_id == leader else {}) for member in members]
        synced = [member.answer(sent).assignment for member, sent in zip(members, syncs, strict=True)]
        assert [share.unpack(each)[0] for each in synced] == list(range(MEMBERS))
        broker.kill("handler", wait=False)
        assert [member.heartbeat() for member in members] == [0] * MEMBERS
    nothing_of_ours_failed(broker, position)
