"""Consumer groups with members that join, leave, report late and resubscribe, and coordinator deaths: invariants."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rotunda.broker.coordinator.consumer.assignment import union
from rotunda.broker.coordinator.consumer.member import MemberState
from rotunda.broker.coordinator.consumer.target_assignment import existing
from tests.support.groups.coordinator import Coordinator, FakeTopics, HeartbeatAnswer, described
from tests.support.groups.members import ConsumerMember, doubly_owned

SEEDS = [random.randrange(2**32) for _ in range(20)]

#: A subscription, by names or by a pattern.
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"subscribed_topic_names": ("a",)},
    {"subscribed_topic_names": ("a", "b")},
    {"subscribed_topic_names": ("a", "b", "later")},
    {"subscribed_topic_names": (), "subscribed_topic_regex": "[ab]|later.*"},
]


class Simulation:
    """One run: the seed determines every step."""

    def __init__(self, seed: int, *, deaths: bool) -> None:
        self.random = random.Random(seed)
        self.deaths = deaths
        self.topics = FakeTopics({"a": 5, "b": 3})
        self.coordinator = Coordinator(topics=self.topics)
        self.members: list[ConsumerMember] = []
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.same = self.random.choice((True, False))
        self.waiting: list[tuple[ConsumerMember, list[HeartbeatAnswer]]] = []

    def step(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (10, self.send),
            (10, self.run_once),
            (10, self.receive),
            (10, self.reconcile),
            (2, self.join),
            (1, self.leave),
            (1, self.crash),
            (1, self.come_back),
            (1, self.subscribe),
            (1, self.change_topics),
            (2, lambda: self.coordinator.advance_ms(self.random.randrange(500))),
            (3 if self.deaths else 0, self.die),
        ]
        weights = [weight for weight, _ in choices]
        self.random.choices([action for _, action in choices], weights)[0]()
        self.check()

    def alive(self) -> list[ConsumerMember]:
        return [member for member in self.members if not member.is_inactive]

    def idle(self) -> list[ConsumerMember]:
        return [member for member in self.alive() if member.request is None]

    def join(self) -> None:
        if len(self.alive()) < 5:
            number = len(self.members)
            instance = f"i{number}" if self.random.random() < 0.3 else None
            subscription = SUBSCRIPTIONS[0] if self.same else self.random.choice(SUBSCRIPTIONS)
            self.members.append(ConsumerMember(f"m{number}", subscription, instance))

    def subscribe(self) -> None:
        if not self.same and self.idle():
            self.random.choice(self.idle()).subscribe(self.random.choice(SUBSCRIPTIONS))

    def change_topics(self) -> None:
        name = self.random.choice(("a", "b", "later"))
        known = self.topics.topic(name)
        if known is None:
            self.topics.make(name, 4)
        elif self.random.random() < 0.3:
            self.topics.delete(name)
        else:
            self.topics.make(name, len(known.partitions) + 1)
        self.coordinator.topics_changed()

    def send(self) -> None:
        if self.idle():
            member = self.random.choice(self.idle())
            self._deliver(member, member.make_request())

    def _deliver(self, member: ConsumerMember, request: dict[str, Any]) -> None:
        responses: list[HeartbeatAnswer] = []
        self.waiting.append((member, responses))
        self.coordinator.heartbeat(responses.append, **request)

    def run_once(self) -> None:
        self.coordinator.run_once()
        assert described(self.coordinator.shard) == self.coordinator.replayed()

    def receive(self) -> None:
        responded = [each for each in self.waiting if each[1]]
        if responded:
            each = self.random.choice(responded)
            self.waiting.remove(each)
            if not each[0].is_inactive:
                each[0].take(each[1][0])

    def reconcile(self) -> None:
        if self.alive():
            self.random.choice(self.alive()).reconcile()

    def leave(self) -> None:
        if self.idle():
            member = self.random.choice(self.idle())
            if member.epoch > 0:
                member.is_inactive = True
                epoch = -1 if member.instance_id is None or self.random.random() < 0.5 else -2
                request = {"member_id": member.member_id, "member_epoch": epoch, "instance_id": member.instance_id}
                self._deliver(member, request)

    def come_back(self) -> None:
        """Start a static member again with another member id."""
        ended = [member for member in self.members if member.is_inactive and member.instance_id is not None]
        received = {member.instance_id for member in self.alive()}
        free = [member for member in ended if member.instance_id not in received]
        if free and len(self.alive()) < 5:
            old = self.random.choice(free)
            self.members.append(ConsumerMember(f"m{len(self.members)}", old.subscription, old.instance_id))

    def crash(self) -> None:
        if self.alive() and self.random.random() < 0.3:
            self.random.choice(self.alive()).is_inactive = True

    def die(self) -> None:
        """Kill the coordinator before or after the commit, with or without sent responses; then resend its requests."""
        if self.random.random() < 0.5:
            reported = self.coordinator.write()
            for tell in reported[: self.random.randrange(len(reported) + 1)]:
                tell()
        received = [each for each in self.waiting if each[1]]
        self.coordinator.replace()
        again: list[ConsumerMember] = []
        for member, responses in list(self.waiting):
            if (member, responses) not in received:
                self.waiting.remove((member, responses))
                again.append(member)
        for member in again:
            if member.request is not None:
                self._deliver(member, member.request)
        # Repeat some requests that already have a response: the second response is ignored. Joins are excluded: they
        # report that the member owns nothing, and Kafka accepts that at any time.
        for member, _ in received:
            if member.request is not None and member.request["member_epoch"] and self.random.random() < 0.7:
                self.coordinator.heartbeat(lambda _: None, **member.request)

    def check(self) -> None:
        assert not doubly_owned(self.members)
        group = self.coordinator.shard.groups.get("readers")
        if group is None:
            return
        group = self.coordinator.consumer_group
        held = [group.members[member_id].held for member_id in group.members]
        assert sum(len(each) for one in held for each in one.values()) == sum(
            len(each) for each in _all(held).values()
        ), "a partition belongs to two members"
        for member_id, member in group.members.items():
            if member.epoch > 0:
                assert member.epoch >= self.epochs.get(member_id, 0) or self.deaths
                self.epochs[member_id] = member.epoch
                assert member.epoch <= group.epoch
        assert group.epoch >= self.group_epoch or self.deaths
        self.group_epoch = group.epoch

    def settle(self) -> None:
        """Send heartbeats of all members until the group is stable; the sessions of departed members expire."""
        for _ in range(90):
            self.run_once()
            for member, responses in self.waiting:
                if responses and not member.is_inactive:
                    member.take(responses[0])
            self.waiting = [(member, responses) for member, responses in self.waiting if not responses]
            for member in self.idle():
                member.reconcile()
                self._deliver(member, member.make_request())
            self.coordinator.advance_ms(1_000)
            self.check()
        self.run_once()
        group = self.coordinator.consumer_group if self.alive() else None
        if group is None:
            return
        assert group.state_name == "Stable"
        for member in self.alive():
            known = group.members[member.member_id]
            assert known.state is MemberState.STABLE
            assert member.owned == known.assigned == group.target[member.member_id]
        assert len(group.members) == len(self.alive())
        wanted = existing(self.topics, frozenset[str]().union(*map(group.topic_names, group.subscriptions())))
        assert {topic: frozenset(range(count)) for topic, count in wanted.items()} == _all(
            [member.owned for member in self.alive()]
        )


def _all(assignments: list[Any]) -> Any:
    found: Any = {}
    for each in assignments:
        found = union(found, each)
    return found


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_no_partition_has_two_owners_and_everybody_gets_its_share(seed: int) -> None:
    simulation = Simulation(seed, deaths=False)
    for _ in range(300):
        simulation.step()
    simulation.settle()


@pytest.mark.parametrize("seed", SEEDS[10:])
def test_nor_when_the_coordinator_dies_at_any_moment(seed: int) -> None:
    simulation = Simulation(seed, deaths=True)
    for _ in range(300):
        simulation.step()
    simulation.settle()
