"""A heartbeat in a group of many members and topics: its cost grows with their sum, not with their product."""

from __future__ import annotations

import pytest

from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.heartbeat import Client
from rotunda.broker.coordinator.consumer.target_assignment import ASSIGNORS
from rotunda.broker.coordinator.consumer.update import Environment, GroupUpdate
from tests.support.call_clock import CallClock
from tests.support.groups.coordinator import FakeTopic, FakeTopics, heartbeat_request

MEMBERS = TOPICS = 150


class CountingTopics(FakeTopics):
    """Counts the topic lookups by name."""

    looked_up = 0

    def topic(self, name: str) -> FakeTopic | None:
        self.looked_up += 1
        return super().topic(name)


def join(group: ConsumerGroup, environment: Environment, number: int) -> None:
    # Each request has its own names.
    names = tuple(f"topic-{topic}" for topic in range(TOPICS))
    request = heartbeat_request(member_id=f"member-{number}", rebalance_timeout_ms=60_000, subscribed_topic_names=names)
    update = GroupUpdate(group, environment)
    update.heartbeat(update.member_for(request), request, Client("client", "host"), {})


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_join_of_a_wide_group_needs_no_step_for_each_topic_of_each_member(assignor: str) -> None:
    environment = Environment(FakeTopics({f"topic-{topic}": 1 for topic in range(TOPICS)}), (assignor,), 1)
    group = ConsumerGroup("group")
    for number in range(MEMBERS):
        join(group, environment, number)
    assert {id(member.topic_names) for member in group.members.values()} == {id(group.members["member-0"].topic_names)}
    calls = CallClock().counting(lambda: join(group, environment, MEMBERS))
    assert calls < MEMBERS * TOPICS // 2
    group.rebuild_derived_state()
    assert len({id(member.topic_names) for member in group.members.values()}) == 1


def test_a_heartbeat_looks_each_topic_of_a_subscription_up_once() -> None:
    topics = CountingTopics({f"topic-{topic}": 1 for topic in range(TOPICS)})
    environment = Environment(topics, ("uniform",), 1)
    group = ConsumerGroup("group")
    for number in range(3):
        join(group, environment, number)
        assert topics.looked_up == TOPICS
        topics.looked_up = 0
