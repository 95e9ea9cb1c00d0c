"""One partition of `__consumer_offsets` and the coordinator of share groups, with a clock under test control.

The coordinator is the real one over a log in memory, as in `tests.support.groups.coordinator`; the owner of the state
of partitions is a fake, which answers at once or when it is let.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rotunda.broker.config.broker_config import load
from rotunda.broker.config.share_group_config import ShareGroupConfig
from rotunda.broker.coordinator.consumer.heartbeat import Client
from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
from rotunda.broker.coordinator.group_events import GroupEvent
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.records import Record, RecordTable
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.protocol import ShareProtocol, validate
from rotunda.broker.coordinator.share.replay import SHARE_TABLE
from rotunda.broker.coordinator.share.states import ShareEnvironment
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.codec import read, write
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.scheduling.timers import Timers
from rotunda.broker.steps import Steps, finished
from tests.support.fakes import FakeClock
from tests.support.groups.coordinator import FakeTopics, HeartbeatAnswer, heartbeat_answer

GROUP = "workers"
CLIENT = Client("test", "/127.0.0.1")

_RECORDS = RecordTable[GroupShard](SHARE_TABLE)


def _decoded(response: Mapping[str, Any]) -> HeartbeatAnswer:
    return heartbeat_answer(response, "ShareGroupHeartbeatResponse")


class FakeStates:
    """The owner of the state of partitions: its calls, and their outcome."""

    def __init__(self) -> None:
        #: (topic id, partitions, start offset) of each initialization.
        self.initialized: list[tuple[bytes, tuple[int, ...], int]] = []
        self.deleted: list[bytes] = []
        #: The outcome of the next calls; the last one stays.
        self.errors = [0]
        #: Whether calls are answered by `answer_all` alone.
        self.is_slow = False
        self._waiting: list[Callable[[], None]] = []

    def initialize(
        self,
        group_id: str,
        topic_id: bytes,
        partitions: Sequence[int],
        state_epoch: int,
        start_offset: int,
        done: Callable[[int], None],
    ) -> None:
        del group_id, state_epoch
        self.initialized.append((topic_id, tuple(partitions), start_offset))
        self._end(done)

    def delete(self, group_id: str, topic_ids: Sequence[bytes], done: Callable[[int], None]) -> None:
        del group_id
        self.deleted += topic_ids
        self._end(done)

    def answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()

    def _end(self, done: Callable[[int], None]) -> None:
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        self._waiting.append(lambda: done(error))
        if not self.is_slow:
            self.answer_all()


class ShareCoordinator:
    """A coordinator of one partition, which may be replaced at any time."""

    def __init__(self, topics: Mapping[str, int], settings: Mapping[str, str] | None = None) -> None:
        self.topics = FakeTopics(topics)
        self.clock = FakeClock(monotonic_ns=1_000_000_000)
        self.events: list[GroupEvent] = []
        #: The outcome of appends.
        self.append_error = 0
        #: Records that outlive a coordinator.
        self.committed: list[Record] = []
        self.group_configs: dict[str, str] = {}
        self.states = FakeStates()
        self._config = load(None, dict(settings or {}), {})
        self._start()

    @property
    def group(self) -> ShareGroup:
        """The group of these tests."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def run_once(self) -> None:
        """Process deadlines and commit the appended records."""
        self.timers.run_due(self.clock.monotonic_ns())
        while self.log.flush():
            staged, self._staged = self._staged, []
            for batch, answer in staged:
                if not self.append_error:
                    self.committed += [(record.key or b"", record.value) for record in iterate_records(batch)]
                answer(self.append_error, 0, -1)

    def advance_ms(self, ms: int) -> None:
        """Advance the clock, with a turn at the end."""
        self.clock.advance_ms(ms)
        self.run_once()

    def replace(self) -> None:
        """Replace the coordinator with one that starts from the committed records."""
        self.shard.close()
        self._start()
        self.run_once()

    def replayed(self) -> dict[str, Any]:
        """Return the groups of a coordinator that replays the log now."""
        shard = GroupShard(self.log, _RECORDS, self._loaded)
        for record in self.committed:
            shard.replay(*record, -1)
        return described(shard)

    def heartbeat(self, answer: Callable[[HeartbeatAnswer], None], member_id: str, epoch: int, **fields: Any) -> None:
        """Process a heartbeat, as the handler does."""
        said = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **fields}
        body = write("ShareGroupHeartbeatRequest", 1, said)
        request = read("ShareGroupHeartbeatRequest", 1, body, 0, len(body))
        response = self.protocol.try_steady_heartbeat(self.shard, request, CLIENT)
        if response is not None:
            answer(_decoded(response))
            return
        try:
            validate(request)
            self.protocol.share_heartbeat(self.shard, request, CLIENT, lambda each: answer(_decoded(each)))
        except ApiError as error:
            answer(HeartbeatAnswer(error.code, error.message))

    def ask(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """Process a heartbeat and commit its records; return the response."""
        answers: list[HeartbeatAnswer] = []
        self.heartbeat(answers.append, member_id, epoch, **fields)
        self.run_once()
        return answers[0]

    def join(self, member_id: str, *topics: str, **fields: Any) -> HeartbeatAnswer:
        """Have a member join that subscribes to topics."""
        return self.ask(member_id, 0, subscribed_topic_names=topics, **fields)

    def delete(self) -> int:
        """Delete the group; return the error."""
        errors: list[int] = []
        self.protocol.delete(self.shard, self.group, errors.append)
        self.run_once()
        return errors[0]

    def topics_changed(self) -> None:
        """Notify the coordinator that topics have changed."""
        self.protocol.metadata_changed([self.shard])
        self.run_once()

    def _start(self) -> None:
        self._staged: list[tuple[memoryview, Callable[[int, int, int], None]]] = []
        self.timers = Timers(self.clock.monotonic_ns)
        environment = ShareEnvironment(
            self.topics,
            lambda: self._config,
            lambda _: ShareGroupConfig.resolve(self.group_configs, self._config),
            self.clock.wall_ms,
        )
        self.protocol = ShareProtocol(environment, self.timers, self.states, self.events.append)
        self.log = CoordinatorLog("__consumer_offsets", 0, self._stage, self.clock.wall_ms)
        self.shard = GroupShard(self.log, _RECORDS, self._loaded)
        for record in self.committed:
            self.shard.replay(*record, -1)
        finished(self.shard.loaded())

    def _loaded(self, shard: GroupShard) -> Steps[None]:
        for group in list(shard.groups.values()):
            self.protocol.loaded(shard, group)
        yield

    def _stage(self, batch: memoryview, answer: Callable[[int, int, int], None]) -> None:
        self._staged.append((memoryview(bytes(batch)), answer))


def described(shard: GroupShard) -> dict[str, Any]:
    """Return everything that the log records about the groups of a partition."""
    return {
        group_id: (
            group.epoch,
            group.assignment_epoch,
            group.assigned_wall_ms,
            group.metadata_hash,
            group.members,
            {member_id: target for member_id, target in group.target.items() if target},
            group.initialized,
            group.initializing,
            group.deleting,
        )
        for group_id, group in shard.groups.items()
        if isinstance(group, ShareGroup)
    }
