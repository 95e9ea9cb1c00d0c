"""The coordinators of one handler and their partitions of the internal topics.

Runs in handler processes. When the handler opens a partition of an internal topic, this module loads it, a large one in
slices, and then coordinates its ids; when the partition is deleted, their state is dropped. Once per loop pass, due
timers run and the pass's records are staged, just before the commit; many offset commits share a window
(`CommitBatcher`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from rotunda.broker.coordinator.coordinator_loader import Replayer, replay_partition
from rotunda.broker.coordinator.coordinator_log import CommitBatcher, CoordinatorLog
from rotunda.broker.coordinator.group_coordinator import GroupCoordinator
from rotunda.broker.coordinator.group_events import GroupEventFeed
from rotunda.broker.coordinator.group_memory import GroupMemory, shard_sizes
from rotunda.broker.coordinator.locator import CoordinatorLocator
from rotunda.broker.coordinator.share_state.dead_letters import DeadLetterTasks
from rotunda.broker.coordinator.share_state.share_consumers import ShareConsumers
from rotunda.broker.coordinator.share_state.share_state import ShareStateCoordinator
from rotunda.broker.coordinator.share_state.share_state_rpc import ShareStateRpc, ShareStateTasks
from rotunda.broker.coordinator.transaction.admin import TransactionAdmin
from rotunda.broker.coordinator.transaction.coordinator import TransactionCoordinator
from rotunda.broker.coordinator.transaction.rpc import TransactionRpc, TransactionTasks
from rotunda.broker.ipc.connection_id import GENERATION_MASK, generation_of, processor_of
from rotunda.broker.protocol.routing import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from rotunda.broker.scheduling.timers import Timers
from rotunda.broker.steps import Steps
from rotunda.broker.text_table import counted
from rotunda.shm.tables.process_slots import PROCESSOR

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.log.log_reader import End
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
    from rotunda.broker.partitions.transaction_messages import Marker
    from rotunda.broker.scheduling.peer_tasks import TargetTasks

logger = logging.getLogger(__name__)

#: Retry interval for a partition that cannot be loaded.
RETRY_MS = 1000

#: Load steps that run at once when a partition is opened: enough for most partitions.
STEPS_AT_ONCE = 8


class Coordinator(Protocol):
    """The common interface of the coordinators, whose state is organized by partition."""

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Start coordinating a partition; the caller feeds all records of its log to the returned replayer."""

    def close_partition(self, partition: int) -> None:
        """Stop coordinating a deleted partition."""

    def metadata_changed(self) -> None:
        """Handle a change of topics or settings."""


class Coordinators:
    """The coordinators of one handler; API functions access them as ``context.broker.coordinators``."""

    def __init__(
        self,
        context: ProcessContext,
        partitions: PartitionManager,
        clock: Clock,
        tasks: TargetTasks,
        create_topics: Callable[[Sequence[str]], None],
        appends: PartitionAppender,
        send_commits: Callable[[list[Any], int], None],
    ) -> None:
        """Use ``send_commits`` to send the responses to repeated commits, all with one error code."""
        metadata = partitions.metadata
        self._partitions = partitions
        self._clock = clock
        self._appends = appends
        self._send_commits = send_commits
        self.logs: dict[tuple[str, int], CoordinatorLog] = {}
        #: Partitions being loaded, with the remaining steps.
        self.loading: dict[tuple[str, int], Steps[None]] = {}
        self._dirty: list[CoordinatorLog] = []
        self.linger = CommitBatcher(lambda: metadata.broker_config.group_coordinator_append_linger_ms)
        self._failed: set[tuple[str, int]] = set()
        #: All deadlines of this handler, including those of responses parked elsewhere.
        self.timers = Timers(clock.monotonic_ns)
        self.locator = CoordinatorLocator(
            partitions.index,
            context.handlers,
            context.controller,
            context.coordinators,
            metadata,
            create_topics,
            self.loading,
        )
        #: The only feed to the request log's dataset groups: its ring has one writer.
        self.group_feed = GroupEventFeed(context, partitions.index)
        self.share_rpc = ShareStateRpc(tasks, self.locator)
        self.group_memory = GroupMemory(self._group_memory_limit_bytes, self._group_sizes, self.timers)
        self.groups = self._group_coordinator(metadata)
        self.transaction_rpc = TransactionRpc(tasks, self.locator, partitions)
        self.transactions = TransactionCoordinator(
            self.locator, metadata, clock, self.timers, self.open_now, self.transaction_rpc
        )
        self.transaction_admin = TransactionAdmin(tasks, self.locator, self.transactions, partitions, clock)
        self.share_states = ShareStateCoordinator(
            self.locator, partitions, self.timers, self.open_now, tasks, self.group_memory
        )
        self.share_consumers = ShareConsumers(
            self.share_states, metadata, partial(_has_ended, context), self.timers, context.handlers
        )
        self._by_topic: dict[str, Coordinator] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
            SHARE_TOPIC: self.share_states,
        }
        ShareStateTasks(tasks, self.share_states)
        DeadLetterTasks(tasks, self.open_now, appends)
        self._tasks = TransactionTasks(tasks, self.groups, self.transactions, self.open_now, appends, self.flush)
        self.follow_partitions()

    def write_own_marker(self, marker: Marker) -> None:
        """Write a marker into a partition of this handler; after a failure, rely on the next attempt."""
        self._tasks.write_own_marker(marker, lambda _: None)

    def counters(self) -> dict[str, int]:
        return {
            "group_state_refusals": self.group_memory.rejections,
            "transaction_state_refusals": self.transactions.rejections,
            **self.share_states.counters(),
            **self.share_consumers.counters(),
        }

    def gauges(self) -> dict[str, int]:
        return {
            "group_state_bytes": self.group_memory.used_bytes,
            "transaction_state_bytes": self.transactions.used_bytes,
            **self.share_states.gauges(),
        }

    def _group_coordinator(self, metadata: MetadataCache) -> GroupCoordinator:
        return GroupCoordinator(
            self.locator,
            metadata,
            self._clock,
            self.timers,
            self.open_now,
            self.group_feed,
            self.share_rpc,
            self.group_memory,
        )

    def _group_memory_limit_bytes(self) -> int:
        """Return this handler's share of the limit, proportional to its partitions."""
        counts = self.locator.counts
        groups, states = len(list(self.groups.shards())), len(self.share_states.shards())
        owned = max(groups / counts.of(GROUP_TOPIC), states / counts.of(SHARE_TOPIC))
        return int(self._partitions.metadata.broker_config.group_state_max_bytes * owned)

    def _group_sizes(self) -> Iterator[int]:
        yield from shard_sizes(self.groups.shards())
        yield from self.share_states.sizes()

    def follow_partitions(self) -> None:
        """Start coordinating newly opened partitions, and stop for closed ones."""
        events = self._partitions.events
        while events:
            topic, partition, owned = events.popleft()
            try:
                if owned is None:
                    self.close_partition(topic, partition)
                else:
                    self._partition_opened(topic, partition, owned)
            except Exception:
                logger.exception("cannot open or close the coordinator of %s-%d", topic, partition)

    def open_now(self, topic: str, partition: int) -> OwnedPartition | None:
        """Return a partition that this handler owns, after any pending open, with its coordination started."""
        owned = self._partitions.own(topic, partition)
        self.follow_partitions()
        return owned

    def _partition_opened(
        self, topic: str, partition: int, owned: OwnedPartition, at_once: int = STEPS_AT_ONCE
    ) -> None:
        """Start loading and coordinating a partition, if its topic is internal."""
        if topic not in self._by_topic:
            return
        place = (topic, partition)
        log = CoordinatorLog(topic, partition, partial(self._appends.append_own, owned), self._clock.wall_ms)
        log.on_failure = lambda: self._failed.add(place)
        log.on_dirty = self._note_dirty
        log.send_commits = self._send_commits
        self.logs[place] = log
        level = logging.INFO if at_once else logging.DEBUG
        steps = self.loading[place] = self._load(place, owned, log, level)
        if len(list(islice(steps, at_once))) == at_once:
            self.timers.in_steps(steps)

    def _load(self, place: tuple[str, int], owned: OwnedPartition, log: CoordinatorLog, level: int) -> Steps[None]:
        topic, partition = place
        coordinator, source = self._by_topic[topic], owned.log
        replayer = coordinator.open_partition(log)

        def end_now() -> End:
            return source.log_end_offset, source.segment_base, source.position

        try:
            replayed = yield from replay_partition(source.directory, source.log_start_offset, end_now, replayer)
        except OSError as error:
            logger.error("cannot load the coordinator partition %s-%d, retrying: %s", topic, partition, error)
            del self.loading[place], self.logs[place]
            coordinator.close_partition(partition)
            self.timers.after_ms(RETRY_MS, partial(self._open_again, place))
            return
        del self.loading[place]
        if replayed.records:
            logger.log(level, "read %s of %s-%d", counted(replayed.records, "record"), topic, partition)
        if replayed.first_left_out is not None:
            offset, reason = replayed.first_left_out
            logger.warning(
                "%s-%d: skipped %s, the first at offset %d: %s",
                topic,
                partition,
                counted(replayed.left_out, "invalid record"),
                offset,
                reason,
            )

    def close_partition(self, topic: str, partition: int) -> None:
        """Stop coordinating a deleted partition."""
        coordinator = self._by_topic.get(topic)
        log = self.logs.pop((topic, partition), None)
        loading = self.loading.pop((topic, partition), None)
        if loading is not None:
            loading.close()
        if coordinator is not None and log is not None:
            self._dirty = [each for each in self._dirty if each is not log]
            coordinator.close_partition(partition)

    def metadata_changed(self) -> None:
        for coordinator in self._by_topic.values():
            coordinator.metadata_changed()

    def run_once(self, now_ns: int) -> None:
        """Run due timers, then stage this loop pass's records. Called once per pass, before its commit."""
        if self._failed:
            self._reload_failed()
        self.timers.run_due(now_ns)
        self.linger.run_once(now_ns)
        self.flush()

    def flush(self) -> bool:
        """Stage the records that are due; False if there are none."""
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
        """Make the next `flush` stage all records."""
        self.linger.is_over = True

    def next_deadline_ns(self) -> int | None:
        """Return the next deadline at which `run_once` must run, or None."""
        if self._failed:
            return 0
        deadline_ns = self.timers.next_deadline_ns()
        if not self._dirty:
            return deadline_ns
        return self.linger.end_ns if deadline_ns is None else min(deadline_ns, self.linger.end_ns)

    def _note_dirty(self, log: CoordinatorLog) -> None:
        self._dirty.append(log)

    def _reload_failed(self) -> None:
        """Load partitions again after failed writes: memory was ahead of the log."""
        failed, self._failed = self._failed, set()
        for place in failed:
            self.close_partition(*place)
            # In slices: a full disk fails the writes to all of them at once. Requests get COORDINATOR_LOAD_IN_PROGRESS.
            self.loading[place] = _not_begun()
            self.timers.after_ms(0, partial(self._open_again, place))

    def _open_again(self, place: tuple[str, int]) -> None:
        """Load a partition again if this handler still owns it and it is not loaded yet."""
        owned = self.open_now(*place)
        if owned is None:
            self.loading.pop(place, None)
        elif place not in self.logs:
            self._partition_opened(*place, owned, at_once=0)


def _has_ended(context: ProcessContext, connection_id: int) -> bool:
    """Return whether a connection is closed, also by the death of its processor."""
    generation = context.slots.generation(PROCESSOR, processor_of(connection_id))
    is_of_another = generation & GENERATION_MASK != generation_of(connection_id)
    return is_of_another or context.client_hosts.has_ended(connection_id)


def _not_begun() -> Steps[None]:
    """Yield as a placeholder for a partition that will be loaded later; these steps never run."""
    yield
