"""Share groups as librdkafka speaks them: members that share partitions, and redelivery."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until

BROKER_SETTINGS = {"group.share.heartbeat.interval.ms": 100, "group.share.min.heartbeat.interval.ms": 100}

Make = Callable[..., ShareConsumer]


@pytest.fixture
def members(broker: BrokerProcess) -> Iterator[Make]:
    """Make share consumers, which are closed afterwards."""
    made: list[ShareConsumer] = []

    def make(group: str, *topics: str, **settings: Any) -> ShareConsumer:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": group}
        member = ShareConsumer(config | {name.replace("_", "."): value for name, value in settings.items()})
        member.subscribe(list(topics))
        made.append(member)
        return member

    yield make
    for member in made:
        member.close()


@pytest.fixture
def group(admin: AdminClient) -> str:
    """Return a group that no other test uses, which reads from the beginning."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    set_configs(admin, ResourceType.GROUP, name, {"share.auto.offset.reset": "earliest"})
    return name


@pytest.fixture
def topic(admin: AdminClient, broker: BrokerProcess) -> str:
    """Return a topic of 2 partitions with the numbers from 0 to 99."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(deadline_s())
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in range(100):
        producer.produce(name, str(value).encode(), partition=value % 2)
    assert producer.flush(deadline_s()) == 0
    return name


def read(members: list[ShareConsumer], count: int) -> list[list[int]]:
    """Return the numbers that each member has read, once there are as many altogether."""
    found: list[list[int]] = [[] for _ in members]

    def have_enough() -> bool:
        for member, values in zip(members, found, strict=True):
            values += [int(message.value() or b"") for message in member.poll(0.2) if message.error() is None]
        return sum(map(len, found)) >= count

    wait_until(have_enough, f"{count} records to be read")
    return found


def test_members_share_the_records_of_a_topic(topic: str, group: str, members: Make) -> None:
    """S7B: no record is delivered twice."""
    made = [members(group, topic) for _ in range(3)]
    found = read(made, 100)
    assert sorted(value for values in found for value in values) == list(range(100))
    for member in made:
        assert set(member.commit_sync(deadline_s()).values()) <= {None}


def test_a_released_record_is_delivered_again_and_a_rejected_one_is_not(
    topic: str, group: str, members: Make, broker: BrokerProcess
) -> None:
    """S123 by group: the deliveries and what became of them are in the metrics."""
    member = members(group, topic, share_acknowledgement_mode="explicit")
    seen: list[int] = []

    def have_seen_all() -> bool:
        for message in member.poll(0.2):
            value = int(message.value() or b"")
            is_first = value not in seen
            seen.append(value)
            released = AcknowledgeType.RELEASE if value % 2 else AcknowledgeType.REJECT
            member.acknowledge(message, released if is_first else AcknowledgeType.ACCEPT)
        return len(seen) >= 150

    wait_until(have_seen_all, "50 records to be delivered again")
    assert sorted(seen) == sorted([*range(100), *range(1, 100, 2)])
    member.commit_sync(deadline_s())
    whose = f'{{group="{group}",topic="{topic}"}}'
    expected = {"delivered": 150, "redelivered": 50, "accepted": 50, "released": 50, "rejected": 50}
    lines = {f"rotunda_share_group_{name}_total{whose} {count}" for name, count in expected.items()}
    lines |= {f"rotunda_group_lag_records{whose} 0", f"rotunda_share_group_records_in_flight{whose} 0"}
    printed: set[str] = set()

    def are_all_printed() -> bool:
        printed.update(broker.command("metrics").stdout.splitlines())
        return lines <= printed

    wait_until(are_all_printed, f"these lines: {lines}")
