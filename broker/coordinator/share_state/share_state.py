"""The share groups of one handler: the partitions of `__share_group_state` that it owns, and the groups in use.

Runs in handler processes. Must not know requests: `share_consumers` applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.coordinator.share_state.shard import ShareGroup, ShareStateShard
from rotunda.broker.partitions.share.share_window import DeliveryTerms
from rotunda.broker.protocol.coordinator_routing import SHARE_TOPIC, coordinator_partition

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
    from rotunda.broker.coordinator.group_coordinator import OpenNow
    from rotunda.broker.coordinator.locator import CoordinatorOwnership
    from rotunda.broker.coordinator.replay import Replayer
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.scheduling.timers import Timers

_NS_PER_MS = 1_000_000


class ShareStateCoordinator:
    """The stored state of this handler's share groups, and their windows."""

    def __init__(
        self, locator: CoordinatorOwnership, metadata: MetadataCache, clock: Clock, timers: Timers, open_now: OpenNow
    ) -> None:
        self._locator, self._metadata, self._clock, self._timers = locator, metadata, clock, timers
        self._open_now = open_now
        self._shards: dict[int, ShareStateShard] = {}

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Return the shard of a partition, to be loaded."""
        return ShareStateShard(log, self._loaded, self._updates_per_snapshot, self._clock.wall_ms)

    def close_partition(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def metadata_changed(self) -> None:
        """End the windows of deleted topics."""
        for group in self.groups():
            for place in list(group.windows):
                if self._metadata.topic_by_id(place.topic_id) is None:
                    group.drop(place)

    def groups(self) -> list[ShareGroup]:
        """Return the groups in use."""
        return [group for shard in self._shards.values() for group in shard.groups.values()]

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
            group = shard.groups[group_id] = ShareGroup(group_id, shard, self.terms_of, self._timers)
        return group

    def terms_of(self, group_id: str) -> DeliveryTerms:
        """Return the current settings of a group's deliveries."""
        config = self._metadata.share_group_config(group_id)
        return DeliveryTerms(
            config.share_record_lock_duration_ms * _NS_PER_MS,
            config.share_delivery_count_limit,
            config.share_partition_max_record_locks,
            config.share_renew_acknowledge_enable,
        )

    def _loaded(self, shard: ShareStateShard) -> None:
        self._shards[shard.partition] = shard

    def _updates_per_snapshot(self) -> int:
        return self._metadata.broker_config.share_coordinator_snapshot_update_records_per_snapshot
