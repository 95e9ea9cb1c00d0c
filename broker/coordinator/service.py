"""The coordinators of one handler and the partitions of the internal topics under them.

Runs in handler processes. When the handler opens a partition of `__consumer_offsets` or `__transaction_state`, it reads
it back, a large one in slices, and from then on coordinates the ids in it; when the partition goes, so does what was
known of them. Once a turn the deadlines that have passed are seen to and the turn's records are staged, just
before the commit; many commits of offsets wait for each other (`commit_batcher`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from broker.apis.groups.group_tasks import register_group_tasks
from broker.coordinator.commit_batcher import AppendLinger
from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.group_event_feed import GroupEventFeed
from broker.coordinator.replay import Replayer, replay_partition
from broker.coordinator.timers import Timers
from broker.coordinator.transaction.admin import TransactionAdmin
from broker.coordinator.transaction.coordinator import TransactionCoordinator
from broker.coordinator.transaction.rpc import AppendMarker, TransactionRpc
from broker.protocol.coordinator_routing import GROUP_TOPIC, TRANSACTION_TOPIC, coordinator_partition
from broker.protocol.routing import owner_of_coordinator
from broker.protocol.steps import Steps

if TYPE_CHECKING:
    from broker.handler.broker_state import BrokerState
    from broker.log.log_reader import End
    from broker.partitions.owned_partition import Answer, OwnedPartition

logger = logging.getLogger(__name__)

#: A partition that cannot be read back is tried again after this.
RETRY_MS = 1000

#: So many steps of reading a partition back are taken when it is opened: most are read to their end with them.
STEPS_AT_ONCE = 8

AppendOwn = Callable[["OwnedPartition", memoryview, "Answer"], None]


class Coordinator(Protocol):
    """What the two coordinators have in common: they keep what they know by partition."""

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Begin to coordinate the ids of a partition; what is returned is told all that its log holds."""

    def close_partition(self, partition: int) -> None:
        """Forget the ids of a partition; who waits for an answer is told that the coordinator has gone."""

    def metadata_changed(self) -> None:
        """Take note that topics or settings have changed."""


class Coordinators:
    """Owned by the request loop of one handler; API functions reach it as ``context.broker.coordinators``."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._counts = state.heritage.coordinators
        self._append_own: AppendOwn = _cannot_append
        self._answer_commits: Callable[[list[Any], int], None] = _cannot_answer
        self._logs: dict[tuple[str, int], CoordinatorLog] = {}
        #: Partitions that are being read back, with what is left of that.
        self._loading: dict[tuple[str, int], Steps[None]] = {}
        self._dirty: list[CoordinatorLog] = []
        self.linger = AppendLinger(lambda: state.metadata.broker_config.group_coordinator_append_linger_ms)
        self._failed: set[tuple[str, int]] = set()
        self.timers = Timers(state.clock.monotonic_ns)
        #: The one way to the request log's dataset groups: its ring has one end.
        self.group_feed = GroupEventFeed(state.heritage, state.index)
        self.groups = GroupCoordinator(state, self.timers, self.group_feed)
        self.transaction_desk = TransactionRpc(state)
        self.transaction_admin = TransactionAdmin(state)
        register_group_tasks(state)
        self.transactions = TransactionCoordinator(state, self.timers, self.transaction_desk)
        self._by_topic: dict[str, Coordinator] = {GROUP_TOPIC: self.groups, TRANSACTION_TOPIC: self.transactions}

    def connect(
        self, append_own: AppendOwn, append_marker: AppendMarker, answer_commits: Callable[[list[Any], int], None]
    ) -> None:
        """Say what stages the batches that coordinators write, and the markers that end transactions.

        ``answer_commits`` answers commits of offsets that were written as repeated ones, all with one error code.
        """
        self._append_own = append_own
        self._answer_commits = answer_commits
        self.transaction_desk.connect(append_marker)

    def counters(self) -> dict[str, int]:
        """Return what has been counted since the start, by metric name."""
        return {
            "group_state_refusals": self.groups.memory.refusals,
            "transaction_state_refusals": self.transactions.refusals,
        }

    def gauges(self) -> dict[str, int]:
        """Return what the ids that are coordinated here take now, by metric name."""
        return {
            "group_state_bytes": self.groups.memory.used_bytes,
            "transaction_state_bytes": self.transactions.used_bytes,
        }

    def owner_of(self, topic: str, name: str) -> int:
        """Return the handler that coordinates a group (`GROUP_TOPIC`) or transactional id (`TRANSACTION_TOPIC`)."""
        partition = coordinator_partition(name, self._counts.of(topic))
        return owner_of_coordinator(topic, partition, self._state.heritage.handlers)

    def partition_opened(self, topic: str, partition: int, owned: OwnedPartition) -> None:
        """Coordinate the ids of a partition, if it is one of an internal topic, once it has been read back."""
        if topic not in self._by_topic:
            return
        place = (topic, partition)

        def append(batch: memoryview, answer: Answer) -> None:
            self._append_own(owned, batch, answer)

        def answer_commits(committers: list[Any], error: int) -> None:
            # Partitions are opened before `connect` says who answers.
            self._answer_commits(committers, error)

        log = CoordinatorLog(topic, partition, append, self._state.clock.wall_ms)
        log.on_failure = lambda: self._failed.add(place)
        log.on_dirty = self._note_dirty
        log.answer_commits = answer_commits
        self._logs[place] = log
        steps = self._loading[place] = self._load(place, owned, log)
        if len(list(islice(steps, STEPS_AT_ONCE))) == STEPS_AT_ONCE:
            self.timers.in_steps(steps)

    def is_loading(self, topic: str, partition: int | None = None) -> bool:
        """Return whether a partition of an internal topic, or any of them, is being read back."""
        if partition is None:
            return any(place[0] == topic for place in self._loading)
        return (topic, partition) in self._loading

    def _load(self, place: tuple[str, int], owned: OwnedPartition, log: CoordinatorLog) -> Steps[None]:
        """Read a partition back."""
        topic, partition = place
        coordinator, source = self._by_topic[topic], owned.log
        replayer = coordinator.open_partition(log)

        def end_now() -> End:
            return source.log_end_offset, source.segment_base, source.position

        try:
            replayed = yield from replay_partition(source.directory, source.log_start_offset, end_now, replayer)
        except OSError as error:
            logger.error("%s-%d cannot be read, so none of its ids is coordinated yet: %s", topic, partition, error)
            del self._loading[place], self._logs[place]
            coordinator.close_partition(partition)
            self.timers.after_ms(RETRY_MS, partial(self._open_again, place))
            return
        del self._loading[place]
        if replayed.records:
            logger.info("read %d records of %s-%d", replayed.records, topic, partition)
        if replayed.first_left_out is not None:
            offset, reason = replayed.first_left_out
            logger.warning(
                "%s-%d holds records that no coordinator has written: %d were left out, the first at offset %d: %s",
                topic,
                partition,
                replayed.left_out,
                offset,
                reason,
            )

    def partition_closed(self, topic: str, partition: int) -> None:
        """Forget the ids of a partition that has been deleted."""
        coordinator = self._by_topic.get(topic)
        log = self._logs.pop((topic, partition), None)
        loading = self._loading.pop((topic, partition), None)
        if loading is not None:
            loading.close()
        if coordinator is not None and log is not None:
            self._dirty = [each for each in self._dirty if each is not log]
            coordinator.close_partition(partition)

    def metadata_changed(self) -> None:
        """Take note that topics or settings have changed."""
        for coordinator in self._by_topic.values():
            coordinator.metadata_changed()

    def turn(self, now_ns: int) -> None:
        """See to deadlines, then stage what this turn has written. Called once a turn, before its commit."""
        if self._failed:
            self._reload_failed()
        self.timers.run_due(now_ns)
        self.linger.turn(now_ns)
        self.flush()

    def flush(self) -> bool:
        """Stage what coordinators have written since and what must not wait longer; False if there is nothing."""
        if not self._dirty:
            return False
        if self.linger.is_over:
            due, self._dirty = self._dirty, []
        else:
            due = [log for log in self._dirty if log.is_urgent]
            self._dirty = [log for log in self._dirty if not log.is_urgent]
        for log in due:
            log.flush()
        return bool(due)

    def stop_waiting(self) -> None:
        """Let the next `flush` stage everything."""
        self.linger.is_over = True

    def next_deadline_ns(self) -> int | None:
        """Return when `turn` is needed next, or None."""
        if self._failed:
            return 0
        deadline_ns = self.timers.next_deadline_ns()
        if not self._dirty:
            return deadline_ns
        return self.linger.end_ns if deadline_ns is None else min(deadline_ns, self.linger.end_ns)

    def _note_dirty(self, log: CoordinatorLog) -> None:
        self._dirty.append(log)

    def _reload_failed(self) -> None:
        """Read partitions back whose records could not be written: memory had run ahead of the log."""
        failed, self._failed = self._failed, set()
        for place in failed:
            self.partition_closed(*place)
            self._open_again(place)

    def _open_again(self, place: tuple[str, int]) -> None:
        """Read a partition that is still this handler's, unless it has been read by now."""
        info = self._state.metadata.partition(*place)
        owned = None if info is None else self._state.owned.get(info.row)
        if owned is not None and place not in self._logs:
            self.partition_opened(*place, owned)


def _cannot_append(owned: OwnedPartition, batch: memoryview, answer: Answer) -> None:
    raise RuntimeError(f"nothing can be appended to row {owned.row} before the request loop stands: {batch} {answer}")


def _cannot_answer(committers: list[Any], error: int) -> None:
    raise RuntimeError(f"nobody can be answered before the request loop stands: {committers} {error}")
