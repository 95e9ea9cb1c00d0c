"""Sends the lags of a handler's groups to the request log's dataset groups.

Runs in handler processes, between two loop passes. Groups are processed in rounds, a few at a time. A topic of a group
has a row only when its lag has changed since the process started: an idle broker sends no rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.group_events import MOST_CHARACTERS
from rotunda.broker.partitions.committed_lag import CommittedLag, committed_lag
from rotunda.shm.recorder_layout import LAG

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.coordinator.group_coordinator import GroupCoordinator
    from rotunda.broker.coordinator.group_events import GroupEventFeed
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.lag_age import LagAges
    from rotunda.shm.tables.partitions import PartitionTable

logger = logging.getLogger(__name__)

#: Limits of one call: rows sent, and time spent on groups without a change.
MOST_ROWS: Final = 50
MOST_NS: Final = 2_000_000

#: Pause above this ring fill: events of groups have priority.
FULLEST: Final = 0.5

#: Pause after an error.
FAULT_PAUSE_NS: Final = 60_000_000_000

#: The lag of a topic: the number of unread offsets, and the sum of its first unread offsets.
Known = tuple[int, int]


class GroupLags:
    """The lags sent by one handler, and the values sent last."""

    def __init__(
        self,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        table: PartitionTable,
        feed: GroupEventFeed,
        times: LagAges,
        clock: Clock,
    ) -> None:
        self._groups = groups
        self._metadata = metadata
        self._table = table
        self._feed = feed
        self._times = times
        self._clock = clock
        self._next_ns = 0
        #: The remaining groups of the current round; None between two rounds.
        self._left: list[tuple[GroupShard, str]] | None = None
        #: By group and topic: from the last round, and from this one.
        self._last: dict[tuple[str, str], Known] = {}
        self._known: dict[tuple[str, str], Known] = {}

    def run_once(self, now_ns: int) -> None:
        """Continue a round, or start one if it is due. An error loses rows but has no other effect."""
        interval_ns = self._feed.interval_ns
        if not interval_ns or now_ns < self._next_ns or not self._feed.is_used:
            return
        try:
            self._go_on(now_ns, interval_ns)
        except Exception:
            logger.exception("cannot send the lags of groups to the request log")
            self._left = None
            self._next_ns = now_ns + FAULT_PAUSE_NS

    def _go_on(self, now_ns: int, interval_ns: int) -> None:
        if self._left is None:
            shards = self._groups.shards()
            self._left = [(shard, group_id) for shard in shards for group_id in shard.groups]
            self._began_ns = now_ns
        rows: list[dict[str, Any]] = []
        self._times.begin()
        while self._left and len(rows) < MOST_ROWS and self._feed.fill < FULLEST:
            shard, group_id = self._left.pop()
            group = shard.groups.get(group_id)
            if group is not None:
                rows += self._rows(shard, group)
            if self._clock.monotonic_ns() - now_ns >= MOST_NS:
                break
        if rows:
            self._feed.send(rows)
        if not self._left:
            self._times.end()
            self._left = None
            self._last, self._known = self._known, {}
            self._next_ns = self._began_ns + interval_ns

    def _rows(self, shard: GroupShard, group: Group) -> list[dict[str, Any]]:
        """Return the rows due for a group, all of one instant."""
        time_us = self._clock.wall_ms() * 1000
        found = []
        for topic, committed in shard.offsets.of_group(group.group_id).items():
            lags = self._lags(topic, committed)
            if not lags:
                continue
            key = group.group_id, topic
            known = sum(lag.records or 0 for lag in lags.values()), sum(lag.oldest or 0 for lag in lags.values())
            self._known[key] = known
            if self._last.get(key) == known:
                continue
            partition, age_us = self._oldest(topic, lags)
            found.append(
                {
                    "time": time_us,
                    "group": group.group_id[:MOST_CHARACTERS],
                    "event": LAG,
                    "kind": group.kind,
                    "generation": group.generation,
                    "members": len(group.members),
                    "durationUs": age_us,
                    "topic": topic,
                    "partition": partition,
                    "records": known[0],
                }
            )
        return found

    def _lags(self, topic: str, committed: Mapping[int, CommittedOffset]) -> dict[int, CommittedLag]:
        """Return the partitions of a topic whose lag is known."""
        metadata, table = self._metadata, self._table
        found = {
            partition: committed_lag(metadata, table, topic, partition, each.offset)
            for partition, each in committed.items()
        }
        return {index: lag for index, lag in sorted(found.items()) if lag is not None and lag.oldest is not None}

    def _oldest(self, topic: str, lags: dict[int, CommittedLag]) -> tuple[int | None, int | None]:
        """Return the partition with the largest lag, and the age of the oldest unread record in microseconds."""
        unread = {index: lag for index, lag in lags.items() if lag.records}
        if not unread:
            return None, 0
        ages_s = [self._times.age_s((topic, index, lag.row), lag.oldest or 0, lag.end) for index, lag in unread.items()]
        age_s = max((age for age in ages_s if age is not None), default=None)
        most = max(unread, key=lambda index: unread[index].records or 0)
        return most, None if age_s is None else int(age_s * 1e6)
