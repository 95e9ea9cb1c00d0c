"""Members of KIP-848 groups and a coordinator for them, in one process and in time that stands still until told.

The coordinator is the real one over a log in memory: what a turn appends is committed when the turn ends, or lost if
the coordinator is killed before. A client does what Kafka's do: one request at a time, partitions are revoked before
others are taken, and what it owns is told when it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.config import load
from broker.coordinator.assignment import NO_PARTITIONS, Assignment, intersection, overlaps
from broker.coordinator.classic_protocol import ClassicProtocol
from broker.coordinator.consumer_group import ConsumerGroup
from broker.coordinator.consumer_group_heartbeat import Client
from broker.coordinator.consumer_protocol import ConsumerProtocol
from broker.coordinator.consumer_sessions import Cluster
from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.group_coordinator import REPLAYS
from broker.coordinator.group_events import GroupEvent
from broker.coordinator.group_shard import GroupShard
from broker.coordinator.timers import Timers
from broker.errors import ApiError
from broker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker.protocol.record_reader import iterate_records
from tests.support.fakes import FakeClock

GROUP = "readers"
CLIENT = Client("test", "localhost")


@dataclass(frozen=True)
class FakeTopic:
    """A topic, as far as a coordinator looks at it."""

    name: str
    topic_id: bytes
    partitions: Sequence[int]
    internal: bool = False


class FakeTopics:
    """The topics that there are."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.version = 1
        self._topics: dict[str, FakeTopic] = {}
        self._made = 0
        for name, count in counts.items():
            self.make(name, count)

    def make(self, name: str, count: int) -> bytes:
        """Make a topic, or give it more partitions; return its id."""
        self.version += 1
        known = self._topics.get(name)
        if known is None:
            self._made += 1
        topic_id = self._made.to_bytes(16, "big") if known is None else known.topic_id
        self._topics[name] = FakeTopic(name, topic_id, range(count))
        return topic_id

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.version += 1
        del self._topics[name]

    def topic(self, name: str) -> FakeTopic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> FakeTopic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def topics(self) -> list[FakeTopic]:
        return list(self._topics.values())


class FakeCoordinator:
    """A coordinator of one partition, which may be killed at any time."""

    def __init__(self, topics: FakeTopics, settings: Mapping[str, str] | None = None) -> None:
        self.topics = topics
        self.clock = FakeClock()
        #: What happened to groups.
        self.told: list[GroupEvent] = []
        #: Kept over the death of a coordinator.
        self.committed: list[tuple[bytes, bytes | None]] = []
        self.group_configs: dict[str, dict[str, str]] = {}
        self._config = load(None, {"ephemeral": "true", **(settings or {})}, {})
        self._staged: list[tuple[memoryview, Callable[[int, int, int], None]]] = []
        self._start()

    def heartbeat(
        self, answer: Callable[[ConsumerGroupHeartbeatResponse], None], *, version: int = 1, **fields: Any
    ) -> None:
        """Take a heartbeat, as the handler does."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        response = self.protocol.try_steady_heartbeat(self.shard, request, CLIENT)
        if response is not None:
            answer(response)
            return
        try:
            self.protocol.consumer_heartbeat(self.shard, request, version, CLIENT, answer)
        except ApiError as error:
            answer(ConsumerGroupHeartbeatResponse(error.code, error.message))

    def ask(self, *, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Take a heartbeat and commit what it did; return the answer."""
        answers: list[ConsumerGroupHeartbeatResponse] = []
        self.heartbeat(answers.append, version=version, **fields)
        self.commit()
        return answers[0]

    def join(self, member_id: str, /, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Have a member join that subscribes to topics by name."""
        said = {
            "member_id": member_id,
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": topics,
            "topic_partitions": {},
        }
        return self.ask(**{**said, **fields})

    def write(self) -> list[Callable[[], None]]:
        """Write what has been appended; return what tells of it, which the dead do not get to."""
        self.log.flush()
        told, self._staged = self._staged, []
        for batch, _ in told:
            self.committed += [(record.key or b"", record.value) for record in iterate_records(batch)]
        return [lambda answer=answer: answer(0, 0, -1) for _, answer in told]  # type: ignore[misc]

    def commit(self) -> None:
        """End the turn: what was appended is committed and told."""
        for tell in self.write():
            tell()

    def fail(self) -> None:
        """End the turn with an error instead."""
        self.log.flush()
        told, self._staged = self._staged, []
        for _, answer in told:
            answer(56, -1, -1)

    def die(self) -> None:
        """Lose what is not written, and begin anew from what is."""
        self.shard.close()
        self._staged.clear()
        self._start()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, and what is due happen and be committed."""
        self.clock.advance_ms(milliseconds)
        self.timers.run_due(self.clock.monotonic_ns())
        self.commit()

    def topics_changed(self) -> None:
        """Tell the coordinator that topics have changed."""
        self.protocol.metadata_changed([self.shard])

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        """Return a group."""
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def replayed(self) -> dict[str, Any]:
        """Return what a coordinator would know that reads the log now."""
        shard = GroupShard(self.log, REPLAYS, lambda _: None)
        for key, value in self.committed:
            shard.replay(key, value, -1, 0)
        return described(shard)

    def _start(self) -> None:
        self.timers = Timers(self.clock.monotonic_ns)
        cluster = Cluster(
            self.topics, lambda: self._config, lambda name: self.group_configs.get(name, {}), self.clock.wall_ms
        )
        self.classic = ClassicProtocol(lambda: self._config, self.timers, self.clock.wall_ms, self.told.append)
        self.protocol = ConsumerProtocol(cluster, self.timers, self.classic.adopt, self.told.append)
        self.log = CoordinatorLog("__consumer_offsets", 0, self._stage, self.clock.wall_ms)
        self.shard = GroupShard(self.log, REPLAYS, self._loaded)
        for key, value in self.committed:
            self.shard.replay(key, value, -1, 0)
        self.shard.loaded()

    def _loaded(self, shard: GroupShard) -> None:
        self.classic.loaded(shard)
        self.protocol.loaded(shard)

    def _stage(self, batch: memoryview, answer: Callable[[int, int, int], None]) -> None:
        self._staged.append((batch, answer))


def described(shard: GroupShard) -> dict[str, Any]:
    """Return all that the log says of the groups of a partition."""
    return {
        group_id: (
            group.epoch,
            group.assignment_epoch,
            group.metadata_hash,
            group.members,
            {member_id: target for member_id, target in group.target.items() if target},
            group.regexes,
        )
        for group_id, group in shard.groups.items()
        if isinstance(group, ConsumerGroup)
    }


class FakeMember:
    """A consumer: what it knows and owns, and its one request under way."""

    def __init__(self, member_id: str, subscription: Mapping[str, Any], instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription = dict(subscription)
        self.epoch = 0
        #: What it owns: no one else may.
        self.owned: Assignment = NO_PARTITIONS
        #: What it was told to own; it revokes first, and takes the rest with the next step.
        self.told: Assignment | None = None
        self.is_gone = False
        self.request: dict[str, Any] | None = None
        self.errors: list[int] = []
        self._said: Assignment | None = None
        self._full = True

    def make_request(self) -> dict[str, Any]:
        """Return the next heartbeat, and have it under way."""
        assert self.request is None
        request: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        if self.instance_id is not None:
            request["instance_id"] = self.instance_id
        if self.epoch == 0 or self._full:
            request.update(self.subscription, rebalance_timeout_ms=60_000, topic_partitions=self.owned)
        elif self._said != self.owned:
            request["topic_partitions"] = self.owned
        self._said = self.owned
        self._full = False
        self.request = request
        return request

    def subscribe(self, subscription: Mapping[str, Any]) -> None:
        """Subscribe anew: the next heartbeat says so."""
        self.subscription = dict(subscription)
        self._full = True

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Take the answer to the request under way."""
        self.request = None
        if response.error_code:
            self.errors.append(response.error_code)
            self.epoch, self.owned, self.told, self._full = 0, NO_PARTITIONS, None, True
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = response.assignment

    def reconcile(self) -> None:
        """Take one step: revoke what it was told to give up, or else take what it was told to have."""
        if self.told is None:
            return
        kept = intersection(self.owned, self.told)
        if kept != self.owned:
            self.owned = kept
        else:
            self.owned, self.told = self.told, None


def doubly_owned(members: Sequence[FakeMember]) -> list[tuple[str, str]]:
    """Return pairs of members that own a partition both."""
    alive = [member for member in members if not member.is_gone]
    return [
        (left.member_id, right.member_id)
        for place, left in enumerate(alive)
        for right in alive[place + 1 :]
        if overlaps(left.owned, right.owned)
    ]
