"""A group's members are described with their client addresses, in Kafka's format (I15, I69)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.described_requests import ask
from tests.support.groups.requests import Member, await_coordinators, joining
from tests.support.wire_client import WireClient

CLASSIC, CONSUMER = "classic-members", "consumer-members"


def beat(wire: WireClient, member_id: str) -> Any:
    """Send a heartbeat without changes, in the member's present epoch."""
    [group] = ask(wire, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": [CONSUMER]}).groups
    [member] = [each for each in group.members if each.member_id == member_id]
    fields = {"group_id": CONSUMER, "member_id": member_id, "member_epoch": member.member_epoch}
    return ask(wire, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**fields, "rebalance_timeout_ms": -1})


def classic_hosts(wire: WireClient) -> list[str]:
    [group] = ask(wire, ApiKey.DESCRIBE_GROUPS, 5, {"groups": [CLASSIC]}).groups
    return [member.client_host for member in group.members]


def consumer_hosts(wire: WireClient) -> dict[str, str]:
    [group] = ask(wire, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": [CONSUMER]}).groups
    return {member.member_id: member.client_host for member in group.members}


def test_members_are_described_by_their_addresses_and_stay_so(broker: BrokerProcess, wire: WireClient) -> None:
    await_coordinators(wire)
    with (
        WireClient(broker.port, source_host="127.0.0.2") as second,
        WireClient(broker.port, source_host="127.0.0.3") as third,
        WireClient(broker.port, source_host="127.0.0.4") as fourth,
    ):
        Member(second, CLASSIC).join()
        for connection, name in ((third, "three"), (wire, "one")):
            assert ask(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining(CONSUMER, name)).error_code == 0
        expected = {"one": "/127.0.0.1", "three": "/127.0.0.3"}
        assert (classic_hosts(wire), consumer_hosts(wire)) == (["/127.0.0.2"], expected)
        broker.kill("handler")
        assert (classic_hosts(wire), consumer_hosts(wire)) == (["/127.0.0.2"], expected)
        # The replacement has the open connections too; a member with another address has moved.
        assert beat(third, "three").error_code == 0
        assert consumer_hosts(wire) == expected
        assert beat(fourth, "three").error_code == 0
        assert consumer_hosts(wire) == {**expected, "three": "/127.0.0.4"}
        broker.kill("handler")
        assert consumer_hosts(wire) == {**expected, "three": "/127.0.0.4"}
