"""One partition of `__consumer_offsets` and the coordinators of both kinds of groups, with a clock under test control.

The coordinator is the real one over a log in memory: appended records are committed by `run_once`, or lost if
the coordinator is replaced before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from rotunda.broker.config.broker_config import load
from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.classic.protocol import ClassicProtocol
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.heartbeat import Client
from rotunda.broker.coordinator.consumer.protocol import ConsumerProtocol
from rotunda.broker.coordinator.consumer.sessions import Cluster
from rotunda.broker.coordinator.consumer.topic_patterns import NO_MATCHES, TopicPatterns
from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
from rotunda.broker.coordinator.group import CLASSIC, CONSUMER, Committer
from rotunda.broker.coordinator.group_coordinator import RECORDS
from rotunda.broker.coordinator.group_events import GroupEvent
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.offsets.commits import commit_offsets
from rotunda.broker.coordinator.records import Record
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.codec import read, write
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.scheduling.timers import Timers
from rotunda.broker.steps import Steps, finished
from tests.support.fakes import FakeClock

GROUP = "readers"
CLIENT = Client("test", "localhost")


class HeartbeatAnswer(NamedTuple):
    """A ConsumerGroupHeartbeat or ShareGroupHeartbeat response; ``assignment``: partitions by topic id."""

    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, frozenset[int]] | None = None


def heartbeat_answer(response: Mapping[str, Any], message: str = "ConsumerGroupHeartbeatResponse") -> HeartbeatAnswer:
    """Return a response of the coordinator, decoded from its bytes."""
    body = write(message, 1, response)
    answer = read(message, 1, body, 0, len(body))
    topics = None if answer.assignment is None else answer.assignment.topic_partitions
    return HeartbeatAnswer(
        answer.error_code,
        answer.error_message,
        answer.member_id,
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        None if topics is None else {each.topic_id: frozenset(each.partitions) for each in topics},
    )


def heartbeat_request(**fields: Any) -> Any:
    """Return a ConsumerGroupHeartbeat to the group `GROUP`; ``topic_partitions``: partitions by topic id."""
    if owned := fields.get("topic_partitions"):
        topics = [{"topic_id": topic_id, "partitions": sorted(each)} for topic_id, each in owned.items()]
        fields["topic_partitions"] = topics
    elif owned is not None:
        fields["topic_partitions"] = []
    body = write("ConsumerGroupHeartbeatRequest", 1, {"group_id": GROUP, **fields})
    return read("ConsumerGroupHeartbeatRequest", 1, body, 0, len(body))


def commit_part(partition: int, offset: int, metadata: str | None = None) -> Any:
    """Return a partition of an OffsetCommit."""
    topics = [
        {"partitions": [{"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}]}
    ]
    body = write("OffsetCommitRequest", 9, {"topics": topics})
    return read("OffsetCommitRequest", 9, body, 0, len(body)).topics[0].partitions[0]


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
        """Create a topic, or add partitions to it; return its id."""
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

    def topic_names(self) -> frozenset[str]:
        return frozenset(self._topics)


class Coordinator:
    """A coordinator of one partition, which may be replaced at any time."""

    def __init__(self, settings: Mapping[str, str] | None = None, topics: FakeTopics | None = None) -> None:
        self.topics = topics or FakeTopics({})
        self.clock = FakeClock(monotonic_ns=1_000_000_000)
        #: The events of groups.
        self.published: list[GroupEvent] = []
        #: Records that outlive a coordinator.
        self.committed: list[Record] = []
        self.group_configs: dict[str, dict[str, str]] = {}
        self._config = load(None, dict(settings or {}), {})
        self._start()

    @property
    def events(self) -> list[tuple[str, str]]:
        """Return the events, with their groups."""
        return [(event.event, event.member_id) for event in self.published]

    @property
    def group(self) -> ClassicGroup:
        """The classic group of these tests."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def consumer_group(self) -> ConsumerGroup:
        """The group of these tests when it is one of the new protocol."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # ---- time, and writes ------------------------------------------------------------------------------------------

    def write(self) -> list[Callable[[], None]]:
        """Write the appended records; return their callbacks, which a dead coordinator never runs."""
        self.log.flush()
        staged, self._staged = self._staged, []
        for batch, _ in staged:
            for record in iterate_records(batch):
                self.committed.append((record.key or b"", record.value))
        return [lambda answer=answer: answer(0, 0, -1) for _, answer in staged]  # type: ignore[misc]

    def run_once(self, error: int = 0) -> None:
        """Process deadlines and commit the appended records; with ``error``, fail the commit."""
        self.timers.run_due(self.clock.monotonic_ns())
        if error:
            self.log.flush()
            staged, self._staged = self._staged, []
            for _, answer in staged:
                answer(error, -1, -1)
        while tellings := self.write():
            for tell in tellings:
                tell()

    def advance_ms(self, ms: int) -> None:
        """Advance the clock, with a turn at the end."""
        self.clock.advance_ms(ms)
        self.run_once()

    def replace(self) -> None:
        """Replace the coordinator with one that starts from the committed records."""
        self.shard.close()
        self._start()

    def replayed(self) -> dict[str, Any]:
        """Return the consumer groups of a coordinator that replays the log now."""
        return described(self._replayed_shard())

    def replayed_group(self) -> ConsumerGroup:
        """Return the consumer group of these tests in a coordinator that replays the log now."""
        group = self._replayed_shard().groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def _replayed_shard(self) -> GroupShard:
        shard = GroupShard(self.log, RECORDS, self._loaded)
        for record in self.committed:
            _take(shard, record)
        return shard

    def commit(self, committer: Committer) -> int:
        """Commit an offset of a partition that exists; return the error."""
        body = write("OffsetCommitRequest", 9, {"topics": [{"name": "topic", "partitions": [{"committed_offset": 5}]}]})
        topics = read("OffsetCommitRequest", 9, body, 0, len(body)).topics
        topic = SimpleNamespace(name="topic", topic_id=bytes(16), partitions=[SimpleNamespace(row=0)])
        groups: Any = SimpleNamespace(
            shard_of=lambda _: self.shard,
            protocols={CLASSIC: self.classic, CONSUMER: self.protocol},
            metadata=SimpleNamespace(topic=lambda _: topic, topic_by_id=lambda _: topic, broker_config=self._config),
            clock=self.clock,
        )
        return commit_offsets(groups, committer, topics).error

    # ---- requests of the new protocol --------------------------------------------------------------------------------

    def heartbeat(self, answer: Callable[[HeartbeatAnswer], None], *, version: int = 1, **fields: Any) -> None:
        """Process a heartbeat, as the handler does."""
        request = heartbeat_request(**fields)
        response = self.protocol.try_steady_heartbeat(self.shard, request, CLIENT)
        if response is not None:
            answer(heartbeat_answer(response))
            return
        try:
            needed = self.protocol.needed_patterns(self.shard, request, version)
            matches = finished(self.patterns.resolve(None, needed)) if needed else NO_MATCHES
            self.protocol.consumer_heartbeat(
                self.shard, request, CLIENT, matches, lambda response: answer(heartbeat_answer(response))
            )
        except ApiError as error:
            answer(HeartbeatAnswer(error.code, error.message))

    def ask(self, *, version: int = 1, **fields: Any) -> HeartbeatAnswer:
        """Process a heartbeat and commit its records; return the response."""
        answers: list[HeartbeatAnswer] = []
        self.heartbeat(answers.append, version=version, **fields)
        self.run_once()
        return answers[0]

    def join(self, member_id: str, /, *topics: str, **fields: Any) -> HeartbeatAnswer:
        """Have a member join that subscribes to topics by name."""
        said = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": {}}
        return self.ask(**{"member_id": member_id, "subscribed_topic_names": topics, **said, **fields})

    def topics_changed(self) -> None:
        """Notify the coordinator that topics have changed."""
        self.protocol.metadata_changed([self.shard])

    def _start(self) -> None:
        self._staged: list[tuple[memoryview, Callable[[int, int, int], None]]] = []
        self.timers = Timers(self.clock.monotonic_ns)
        cluster = Cluster(
            self.topics, lambda: self._config, lambda name: self.group_configs.get(name, {}), self.clock.wall_ms
        )
        self.patterns = TopicPatterns(self.topics, None, self.clock.monotonic_ns)
        self.classic = ClassicProtocol(lambda: self._config, self.timers, self.clock.wall_ms, self.published.append)
        self.protocol = ConsumerProtocol(cluster, self.timers, self.classic.adopt, self.published.append)
        self.log = CoordinatorLog("__consumer_offsets", 0, self._stage, self.clock.wall_ms)
        self.shard = GroupShard(self.log, RECORDS, self._loaded)
        for record in self.committed:
            _take(self.shard, record)
        finished(self.shard.loaded())

    def _loaded(self, shard: GroupShard) -> Steps[None]:
        for group in list(shard.groups.values()):
            (self.classic if group.kind == CLASSIC else self.protocol).loaded(shard, group)
        yield

    def _stage(self, batch: memoryview, answer: Callable[[int, int, int], None]) -> None:
        self._staged.append((memoryview(bytes(batch)), answer))


def described(shard: GroupShard) -> dict[str, Any]:
    """Return everything that the log records about the groups of a partition."""
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


def _take(shard: GroupShard, record: Record) -> None:
    """Replay all records of a log into a shard at once."""
    steps = shard.replay(*record, -1)
    if steps is not None:
        finished(steps)
