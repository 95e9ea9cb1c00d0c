"""Groups with real members in the request log: rebalances with cause and length, and their lag."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import subscriber
from tests.support.request_log import Start, rows
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

PROTOCOLS = ("classic", "consumer")


def produce(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("read", str(number).encode(), partition=0)
    assert producer.flush(deadline_s()) == 0


def member(broker: BrokerProcess, group: str, protocol: str = "classic") -> Consumer:
    consumer = subscriber(broker.bootstrap, group, ["read"], group_protocol=protocol)
    wait_until(lambda: consumer.poll(0.1) is None or consumer.assignment(), "the assignment")
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the assignment")
    return consumer


def told(broker: BrokerProcess, group: str, *events: str) -> list[dict[str, Any]]:
    """Return the rows of a group about some events, in the order of their times."""
    found = [row for row in rows(broker, "groups") if row["group"] == group and row["event"] in events]
    return sorted(found, key=lambda row: row["time"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_have_a_cause_a_length_and_members(start: Start, protocol: str) -> None:
    broker = start()
    with WireClient(broker.port) as client:
        create_topic(client, "read", 2)
    began = time.time()
    first = member(broker, "team", protocol)
    wait_until(lambda: told(broker, "team", "stable"), "the first rebalance")
    second = subscriber(broker.bootstrap, "team", ["read"], group_protocol=protocol)

    def shared() -> bool:
        for consumer in (first, second):
            consumer.poll(0.05)
        return [len(consumer.assignment()) for consumer in (first, second)] == [1, 1]

    wait_until(shared, "one partition for each")
    for consumer in (second, first):
        consumer.close()
    wait_until(lambda: told(broker, "team", "empty"), "the end")
    elapsed_us = (time.time() - began) * 1e6
    events = told(broker, "team", "rebalance", "stable", "empty")
    assert {(row["kind"], row["reason"] is not None) for row in events} == {(protocol, True)}
    ends = [row for row in events if row["event"] != "rebalance"]
    assert (events[0]["event"], ends[-1]["event"], ends[-1]["members"]) == ("rebalance", "empty", 0)
    assert max(row["members"] for row in ends) == 2
    assert all(0 <= row["durationUs"] <= elapsed_us for row in ends)
    generations = [row["generation"] for row in ends]
    assert generations == sorted(set(generations))
    assert all(row["durationUs"] is None for row in events if row["event"] == "rebalance")
    joins = told(broker, "team", "join")
    assert {row["members"] for row in joins} == {1, 2}
    assert {row["topic"] for row in joins} == {None}
