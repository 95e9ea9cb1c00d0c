"""Members of both protocols join, leave and report in one group with coordinator deaths: invariants."""

from __future__ import annotations

import random

import pytest

from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.coordinator import Coordinator, FakeTopics, described
from tests.support.groups.members import ClassicMember, ConsumerMember
from tests.support.results import present

SEEDS = [random.randrange(2**32) for _ in range(8)]
TOPIC = (1).to_bytes(16, "big")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.migration.policy": "upgrade"}


class Classic:
    """A classic consumer that runs its steps one at a time: join, sync, heartbeat."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.client = ClassicMember(coordinator, name)
        self.next = self.join

    @property
    def owned(self) -> frozenset[int]:
        return self.client.owned.get("a", frozenset())

    def join(self) -> None:
        if self.client.joined().error_code:
            self.begin_anew()
        else:
            self.next = self.sync

    def sync(self) -> None:
        before = self.owned
        error = self.client.sync().error_code
        if error and error != ErrorCode.REBALANCE_IN_PROGRESS:
            self.begin_anew()
        else:
            # A cooperative consumer joins again after it has revoked partitions.
            self.next = self.join if error or before - self.owned else self.report

    def report(self) -> None:
        error = self.client.heartbeat()
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif error:
            self.begin_anew()

    def begin_anew(self) -> None:
        self.client.member_id, self.client.generation, self.client.owned = "", -1, {}
        self.next = self.join


class Simulation:
    """One run: the seed determines every step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(SETTINGS, FakeTopics({"a": 4}))
        self.made = 0
        self.members = [self.member()]
        self.classics: list[Classic] = []
        self.heartbeat(self.members[0])

    def member(self) -> ConsumerMember:
        self.made += 1
        return ConsumerMember(f"m{self.made}", {"subscribed_topic_names": ("a",)})

    def heartbeat(self, member: ConsumerMember) -> None:
        member.take(self.coordinator.ask(**member.make_request()))

    def step(self) -> None:
        actions = (self.report, self.reconcile, self.classic_step, self.come, self.leave, self.die, self.grow)
        self.random.choices(actions, (6, 4, 8, 2, 1, 1, 1))[0]()
        self.check()

    def report(self) -> None:
        self.heartbeat(self.random.choice(self.members))

    def reconcile(self) -> None:
        self.random.choice(self.members).reconcile()

    def classic_step(self) -> None:
        if self.classics:
            self.random.choice(self.classics).next()

    def come(self) -> None:
        if self.random.random() < 0.5 and len(self.members) < 3:
            self.members.append(self.member())
        elif len(self.classics) < 3:
            self.made += 1
            self.classics.append(Classic(self.coordinator, f"c{self.made}"))

    def leave(self) -> None:
        if self.classics and self.random.random() < 0.5:
            classic = self.classics.pop(self.random.randrange(len(self.classics)))
            if classic.client.member_id:
                classic.client.leave()
        elif len(self.members) > 1:
            member = self.members.pop()
            if member.epoch > 0:
                self.coordinator.ask(member_id=member.member_id, member_epoch=-1)

    def die(self) -> None:
        self.coordinator.replace()

    def grow(self) -> None:
        topic = present(self.coordinator.topics.topic("a"))
        self.coordinator.topics.make("a", min(len(topic.partitions) + 1, 9))
        self.coordinator.topics_changed()

    def owned(self) -> list[frozenset[int]]:
        return [member.owned.get(TOPIC, frozenset()) for member in self.members] + [
            each.owned for each in self.classics
        ]

    def check(self) -> None:
        owned = self.owned()
        assert len(frozenset[int]().union(*owned)) == sum(map(len, owned)), "a partition has two owners"

    def settle(self) -> None:
        for _ in range(90):
            for member in self.members:
                member.reconcile()
                self.heartbeat(member)
            for classic in self.classics:
                classic.next()
                self.check()
            self.coordinator.advance_ms(1_000)
        assert described(self.coordinator.shard) == self.coordinator.replayed()
        assert self.coordinator.consumer_group.state_name == "Stable"
        owned, topic = self.owned(), self.coordinator.topics.topic("a")
        assert topic is not None
        assert frozenset[int]().union(*owned) == frozenset(topic.partitions)
        assert max(map(len, owned)) - min(map(len, owned)) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_both_protocols_share_without_doubles(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(300):
        simulation.step()
    simulation.settle()
