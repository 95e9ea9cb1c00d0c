"""A group's members are described with the addresses that they come from, as Kafka writes them (I15, I69)."""

from __future__ import annotations

import os
import signal
from typing import Any

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.groups.members import subscription_bytes
from tests.support.wire_client import WireClient

CLASSIC, CONSUMER = "classic-members", "consumer-members"


def open_group_topic(wire: WireClient) -> None:
    def found() -> bool:
        return not ask(wire, ApiKey.FIND_COORDINATOR, 2, {"key": CLASSIC, "key_type": 0}).error_code

    wait_until(found, "a coordinator")


def join_classic(wire: WireClient) -> None:
    fields = {
        "group_id": CLASSIC,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription_bytes(0, "topic")}],
    }
    joined = ask(wire, ApiKey.JOIN_GROUP, 3, fields)
    assert joined.error_code == 0
    who = {"group_id": CLASSIC, "generation_id": joined.generation_id, "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": b""}]
    assert ask(wire, ApiKey.SYNC_GROUP, 3, {**who, "assignments": given}).error_code == 0


def join_consumer(wire: WireClient, member_id: str) -> None:
    fields = {
        "group_id": CONSUMER,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ["topic"],
        "topic_partitions": [],
    }
    assert ask(wire, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields).error_code == 0


def beat(wire: WireClient, member_id: str) -> Any:
    """Send a heartbeat that says nothing new, in the epoch that the member is in."""
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


def kill_handlers(broker: BrokerProcess) -> None:
    """SIGKILL every handler and return once others run in their places."""
    before = {row["pid"] for row in broker.processes("handler")}
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        rows = broker.processes("handler")
        return all(row["pid"] not in before and row["state"] == "running" for row in rows)

    wait_until(replaced, "handlers replaced")


def test_members_are_described_by_their_addresses_and_stay_so(broker: BrokerProcess, wire: WireClient) -> None:
    open_group_topic(wire)
    with (
        WireClient(broker.port, source_host="127.0.0.2") as second,
        WireClient(broker.port, source_host="127.0.0.3") as third,
        WireClient(broker.port, source_host="127.0.0.4") as fourth,
    ):
        join_classic(second)
        join_consumer(third, "three")
        join_consumer(wire, "one")
        expected = {"one": "/127.0.0.1", "three": "/127.0.0.3"}
        assert (classic_hosts(wire), consumer_hosts(wire)) == (["/127.0.0.2"], expected)
        kill_handlers(broker)
        assert (classic_hosts(wire), consumer_hosts(wire)) == (["/127.0.0.2"], expected)
        # The replacement knows the open connections too; and a member that comes from elsewhere has moved.
        assert beat(third, "three").error_code == 0
        assert consumer_hosts(wire) == expected
        assert beat(fourth, "three").error_code == 0
        assert consumer_hosts(wire) == {**expected, "three": "/127.0.0.4"}
        kill_handlers(broker)
        assert consumer_hosts(wire) == {**expected, "three": "/127.0.0.4"}
