"""Sends the lags of a handler's groups, and the deliveries of its share groups, to the request log's dataset groups.

Runs in handler processes, between two loop passes. Groups are processed in rounds, a few at a time. A topic of a group
has a row only when its lag has changed since the process started: an idle broker sends no rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.group import SHARE
from rotunda.broker.coordinator.group_events import MOST_CHARACTERS
from rotunda.broker.coordinator.share_state.shard import ShareStateShard
from rotunda.broker.partitions.committed_lag import CommittedLag, committed_lag
from rotunda.shm.recorder_layout import DELIVERIES, LAG

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.coordinator.group_coordinator import GroupCoordinator
    from rotunda.broker.coordinator.group_events import GroupEventFeed
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
    from rotunda.broker.coordinator.share_state.share_state import ShareStateCoordinator
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

#: Columns of the request log for counts with names of two words.
_COLUMNS: Final = {"locks_expired": "locksExpired", "dead_letters": "deadLetters"}

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
        share_states: ShareStateCoordinator,
    ) -> None:
        self._groups = groups
        self._metadata = metadata
        self._table = table
        self._feed = feed
        self._times = times
        self._clock = clock
        self._share_states = share_states
        self._next_ns = 0
        #: The remaining groups of the current round; None between two rounds.
        self._left: list[tuple[GroupShard | ShareStateShard, str]] | None = None
        #: By group and topic: from the last round, and from this one.
        self._last: dict[tuple[str, str], Known] = {}
        self._known: dict[tuple[str, str], Known] = {}
        self._last_counts: dict[tuple[str, str], Counter[str]] = {}
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    def run_once(self, now_ns: int) -> None:
        """Continue a round, or start one if it is due. An error loses rows but has no other effect."""
        interval_ns = self._feed.interval_ns
        if not interval_ns or now_ns < self._next_ns or not self._feed.is_used:
            return
        try:
            self._send_some(now_ns, interval_ns)
        except Exception:
            logger.exception("cannot send the lags of groups to the request log")
            self._left = None
            self._next_ns = now_ns + FAULT_PAUSE_NS

    def _send_some(self, now_ns: int, interval_ns: int) -> None:
        if self._left is None:
            shards = self._groups.shards()
            self._left = [(shard, group_id) for shard in shards for group_id in shard.groups]
            self._left += [(shard, group_id) for shard in self._share_states.shards() for group_id in shard.states]
            self._began_ns = now_ns
        rows: list[dict[str, Any]] = []
        self._times.begin()
        while self._left and len(rows) < MOST_ROWS and self._feed.fill < FULLEST:
            shard, group_id = self._left.pop()
            if isinstance(shard, ShareStateShard):
                rows += self._share_rows(shard, group_id)
            elif group_id in shard.groups:
                rows += self._rows(shard, shard.groups[group_id])
            if self._clock.monotonic_ns() - now_ns >= MOST_NS:
                break
        if rows:
            self._feed.send(rows)
        if not self._left:
            self._times.end()
            self._left = None
            self._last, self._known = self._known, {}
            self._last_counts, self._counts = self._counts, {}
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

    def _share_rows(self, shard: ShareStateShard, group_id: str) -> list[dict[str, Any]]:
        """Return the rows due for the deliveries of a share group, and for its lag."""
        time_us = self._clock.wall_ms() * 1000
        lags: dict[str, dict[int, CommittedLag]] = {}
        ended: Counter[str] = Counter()
        delivered: dict[str, Counter[str]] = {}
        for place, state in shard.states.get(group_id, {}).items():
            info = self._metadata.topic_by_id(place.topic_id)
            if info is None:
                continue
            if state.counts.delivered:
                delivered.setdefault(info.name, Counter()).update(asdict(state.counts))
            lag = committed_lag(self._metadata, self._table, info.name, place.partition, state.start_offset)
            if state.start_offset >= 0 and lag is not None and lag.oldest is not None:
                lags.setdefault(info.name, {})[place.partition] = lag
                ended[info.name] += max(0, state.complete_count)
        found: list[dict[str, Any]] = []
        base = {"time": time_us, "group": group_id[:MOST_CHARACTERS], "kind": SHARE}
        for topic, counts in delivered.items():
            self._counts[group_id, topic] = counts
            grown = counts - self._last_counts.get((group_id, topic), Counter())
            if grown:
                columns = {_COLUMNS.get(name, name): grown[name] for name in counts}
                found.append({**base, "event": DELIVERIES, "topic": topic, **columns})
        for topic, of_topic in lags.items():
            unread = sum(lag.records or 0 for lag in of_topic.values())
            known = max(0, unread - ended[topic]), sum(lag.oldest or 0 for lag in of_topic.values())
            self._known[group_id, topic] = known
            if self._last.get((group_id, topic)) != known:
                partition, age_us = self._oldest(topic, of_topic) if known[0] else (None, 0)
                lag_of = {"durationUs": age_us, "topic": topic, "partition": partition, "records": known[0]}
                found.append({**base, "event": LAG, **lag_of})
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
