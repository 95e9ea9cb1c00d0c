"""The share groups of one handler: the partitions of `__share_group_state` that it owns, and the groups in use.

Runs in handler processes. Must not know requests: `share_consumers` applies them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from rotunda.broker.coordinator.group_memory import GROUP_BYTES
from rotunda.broker.coordinator.share_state.dead_letters import DeadLetters
from rotunda.broker.coordinator.share_state.shard import ShareCounts, ShareGroup, ShareStateShard
from rotunda.broker.log.owner_tasks import DELETE_RECORDS
from rotunda.broker.metadata.features import SHARE_VERSION
from rotunda.broker.partitions.share.share_window import DeliveryTerms
from rotunda.broker.protocol.routing import SHARE_TOPIC, coordinator_partition

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_loader import Replayer
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
    from rotunda.broker.coordinator.group_coordinator import OpenNow
    from rotunda.broker.coordinator.group_memory import GroupMemory
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.scheduling.peer_tasks import TargetTasks
    from rotunda.broker.scheduling.timers import Timer, Timers

logger = logging.getLogger(__name__)

#: From this share.version on.
WITH_DEAD_LETTERS = 2

_NS_PER_MS = 1_000_000


class ShareStateCoordinator:
    """The stored state of this handler's share groups, and their windows."""

    def __init__(
        self,
        locator: CoordinatorLocator,
        partitions: PartitionManager,
        timers: Timers,
        open_now: OpenNow,
        tasks: TargetTasks,
        memory: GroupMemory,
    ) -> None:
        self._locator, self._partitions, self._timers = locator, partitions, timers
        self._metadata, self._clock = partitions.metadata, partitions.clock
        self._open_now, self._tasks = open_now, tasks
        #: The memory that windows share with groups.
        self.memory = memory
        #: Called after a partition was loaded.
        self.on_loaded: Callable[[], None] = lambda: None
        self._shards: dict[int, ShareStateShard] = {}
        self._prune_timer: Timer | None = None
        self._counts = ShareCounts()
        self.dead_letters = DeadLetters(partitions, tasks, timers, locator.controller)

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Return the shard of a partition, to be loaded."""
        row = self._partitions.row_of(SHARE_TOPIC, None, log.partition)
        log_end = partial(self._partitions.table.read_end, row)
        return ShareStateShard(log, self._loaded, self._updates_per_snapshot, self._clock.wall_ms, log_end)

    def close_partition(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def metadata_changed(self) -> None:
        """End the windows of deleted topics, or all sessions if share groups are turned off."""
        is_off = not self._metadata.finalized_features.get(SHARE_VERSION, 0)
        for group in self.groups():
            if is_off:
                self.leave(group)
            for place in list(group.windows):
                if self._metadata.topic_by_id(place.topic_id) is None:
                    group.drop(place)

    def shards(self) -> list[ShareStateShard]:
        """Return the loaded partitions."""
        return list(self._shards.values())

    def groups(self) -> list[ShareGroup]:
        """Return the groups in use."""
        return [group for shard in self._shards.values() for group in shard.groups.values()]

    def sizes(self) -> Iterator[int]:
        """Yield the memory of each stored state and each window in bytes."""
        for shard in self.shards():
            for group_id, states in list(shard.states.items()):
                yield GROUP_BYTES + 2 * len(group_id)
                for state in list(states.values()):
                    yield state.memory_bytes
        for group in self.groups():
            for window in list(group.windows.values()):
                yield window.memory_bytes

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        letters = self.dead_letters
        return {
            "share_locks_expired": self._counts.expired,
            "dead_letters": letters.records,
            "dead_letter_failures": letters.failures,
        }

    def gauges(self) -> dict[str, int]:
        """Return the current gauges, by metric name."""
        groups = self.groups()
        windows = [window for group in groups for window in group.windows.values()]
        return {
            "share_sessions": sum(len(group.sessions) for group in groups),
            "share_records_in_flight": sum(window.in_flight for window in windows),
        }

    def shard_of(self, group_id: str) -> ShareStateShard:
        """Return the shard of a group. Raises ApiError if this handler does not have it, or not yet."""
        partition = coordinator_partition(group_id, self._locator.counts.of(SHARE_TOPIC))
        if partition not in self._shards:
            self._open_now(SHARE_TOPIC, partition)
        shard = self._shards.get(partition)
        if shard is None or shard.has_failed:
            raise self._locator.absent(SHARE_TOPIC, group_id)
        return shard

    def group_of(self, group_id: str) -> ShareGroup:
        """Return a group for use. Raises ApiError as `shard_of`."""
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            send_letters = self.dead_letters.send
            group = ShareGroup(group_id, shard, self.terms_of, self._timers, send_letters, self._counts, self.memory)
            shard.groups[group_id] = group
        return group

    def leave(self, group: ShareGroup) -> None:
        """End a group's windows and sessions: they begin again with the stored state."""
        group.close()
        if group.shard.groups.get(group.group_id) is group:
            del group.shard.groups[group.group_id]

    def terms_of(self, group_id: str) -> DeliveryTerms:
        """Return the current settings of a group's deliveries."""
        config = self._metadata.share_group_config(group_id)
        return DeliveryTerms(
            config.share_record_lock_duration_ms * _NS_PER_MS,
            config.share_delivery_count_limit,
            config.share_partition_max_record_locks,
            config.share_renew_acknowledge_enable,
            bool(config.errors_deadletterqueue_topic_name.strip())
            and self._metadata.finalized_features.get(SHARE_VERSION, 0) >= WITH_DEAD_LETTERS,
        )

    def _loaded(self, shard: ShareStateShard) -> None:
        self._shards[shard.partition] = shard
        self.on_loaded()
        if self._prune_timer is None:
            self._prune_later()

    def _prune_later(self) -> None:
        interval_ms = self._metadata.broker_config.share_coordinator_state_topic_prune_interval_ms
        self._prune_timer = self._timers.after_ms(interval_ms, self._prune)

    def _prune(self) -> None:
        """Delete the records that snapshots replace: the topic is neither compacted nor subject to retention."""
        self._prune_later()
        for shard in self._shards.values():
            shard.refresh(self._metadata.broker_config.share_coordinator_cold_partition_snapshot_interval_ms)
            shard.when_committed(partial(self._prune_shard, shard))

    def _prune_shard(self, shard: ShareStateShard, error: int) -> None:
        if error or not shard.is_open:
            return
        row = self._partitions.row_of(SHARE_TOPIC, None, shard.partition)
        payload = DELETE_RECORDS.pack(row, shard.oldest_needed())
        # Not within the commit of that partition.
        self._timers.after_ms(
            0, lambda: self._tasks.ask(self._partitions.index, "delete_records", payload, _nobody_waits)
        )

    def _updates_per_snapshot(self) -> int:
        return self._metadata.broker_config.share_coordinator_snapshot_update_records_per_snapshot


def _nobody_waits(error: int, _: bytes) -> None:
    if error:
        logger.warning("cannot delete old records of %s: error %d", SHARE_TOPIC, error)
