"""The expiration of offsets: at once for deleted topics, otherwise after their retention.

Runs in the handler that coordinates the groups. The retention of an offset follows Kafka's rules (KIP-211): it starts
when the last member leaves, or with the commit if members are unknown. A group without members and offsets is deleted
as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.group import Group
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.offsets.offset_records import offset_key
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, OFFSETS_AT_ONCE, CommittedOffset
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

_MS_PER_MINUTE: Final = 60_000

#: Steps to delete a group's offsets of deleted topics while a request to the group waits: some milliseconds.
STEPS_AT_ONCE: Final = 8


class Pace:
    """Bounds the groups and offsets checked between two steps."""

    def __init__(self) -> None:
        self._left = OFFSETS_AT_ONCE

    def is_over(self, looked_at: int) -> bool:
        """Return whether a step is due after this many more groups and offsets."""
        self._left -= looked_at
        if self._left > 0:
            return False
        self._left = OFFSETS_AT_ONCE
        return True


class OffsetExpiration:
    """Deletes expired offsets of one handler's groups."""

    def __init__(self, metadata: MetadataCache, clock: Clock, timers: Timers) -> None:
        self._metadata = metadata
        self._clock = clock
        self._timers = timers

    def loaded(self, shard: GroupShard) -> Steps[None]:
        """Start the expiration of a loaded partition."""
        yield from self._forget_deleted_topics(shard)
        self._expire_again(shard)

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Delete the offsets of deleted topics in steps; those of a requested group are deleted at once."""
        for shard in shards:
            shard.offsets.searches += 1
            self._timers.in_steps(self._search(shard))

    def forget_deleted_topics_of(self, shard: GroupShard, group_id: str) -> None:
        """Delete a group's offsets of deleted topics. Raises ApiError if there are too many to wait for.

        The search continues to delete them meanwhile, and each request deletes some.
        """
        steps = self._forget_topics_of(shard, group_id, Pace())
        if len(list(islice(steps, STEPS_AT_ONCE))) == STEPS_AT_ONCE:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def expire(self, shard: GroupShard) -> Steps[None]:
        """Delete the offsets whose retention is over, and empty groups without offsets."""
        retention_ms = self._metadata.broker_config.offsets_retention_minutes * _MS_PER_MINUTE
        now_ms = self._clock.wall_ms()
        expired = 0
        pace = Pace()
        for group in list(shard.groups.values()):
            if pace.is_over(1):
                yield
            if not shard.is_open or shard.groups.get(group.group_id) is not group:
                continue
            expired += yield from expire_offsets(shard, group, (now_ms, retention_ms), pace)
            # The group may have changed since the last step.
            is_there = shard.is_open and shard.groups.get(group.group_id) is group
            if is_there and group.expires and group.is_empty and not shard.offsets.has_any(group.group_id):
                logger.info("Deleting group %s: empty, no committed offsets", group.group_id)
                del shard.groups[group.group_id]
                shard.append(group.tombstones(), nobody_waits)
        if expired:
            logger.info("deleted %d expired offsets of partition %d", expired, shard.partition)

    def _expire_again(self, shard: GroupShard) -> None:
        def due() -> None:
            if shard.is_open:
                self._timers.in_steps(self.expire(shard))
                self._expire_again(shard)

        interval_ms = self._metadata.broker_config.offsets_retention_check_interval_ms
        self._timers.after_ms(interval_ms, due)

    def _id_of(self, topic_name: str) -> bytes:
        topic = self._metadata.topic(topic_name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def _search(self, shard: GroupShard) -> Steps[None]:
        yield from self._forget_deleted_topics(shard)
        shard.offsets.searches -= 1

    def _forget_deleted_topics(self, shard: GroupShard) -> Steps[None]:
        """Check the offsets of topics that may be deleted, group by group."""
        offsets = shard.offsets
        yield from offsets.settle_all()
        doubtful: dict[str, bytes] = {}
        groups: dict[str, None] = {}
        pace = Pace()
        for name in offsets.topics():
            topic_id, readers = self._id_of(name), 0
            if not self._is_known(shard, name, topic_id):
                doubtful[name] = topic_id
                readers = len(names := offsets.readers_of(name))
                groups.update(dict.fromkeys(names))
            if pace.is_over(1 + readers):
                yield
        for group_id in groups:
            if pace.is_over(1):
                yield
            yield from self._forget_topics_of(shard, group_id, pace)
        for name, topic_id in doubtful.items():
            # A topic that was created or deleted since has its own search.
            if topic_id != ZERO_TOPIC_ID and self._id_of(name) == topic_id and offsets.readers_of(name):
                offsets.topic_ids[name] = topic_id

    def _forget_topics_of(self, shard: GroupShard, group_id: str, pace: Pace) -> Steps[None]:
        for name, places in shard.offsets.places_of(group_id).items():
            topic_id = self._id_of(name)
            if self._is_known(shard, name, topic_id):
                continue
            for some in _pieces(sorted(places)):
                if pace.is_over(len(some)):
                    yield
                # The shard may have changed. A topic that was created or deleted since has its own search.
                if not shard.is_open or self._id_of(name) != topic_id:
                    break
                stale = [index for index in some if _is_of_another(shard, group_id, (name, index), topic_id)]
                records = [delete_offset(shard, group_id, name, index) for index in stale]
                if records:
                    shard.append(records, nobody_waits)

    def _is_known(self, shard: GroupShard, name: str, topic_id: bytes) -> bool:
        """Return whether all offsets of a topic are known to be of the topic with this id."""
        return topic_id != ZERO_TOPIC_ID and shard.offsets.topic_ids.get(name) == topic_id


def _pieces(partitions: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield partitions in chunks that one step can check."""
    for first in range(0, len(partitions), OFFSETS_AT_ONCE):
        yield partitions[first : first + OFFSETS_AT_ONCE]


def delete_offsets(shard: GroupShard, group_id: str) -> list[Record]:
    """Delete all offsets of a group; return the records."""
    return [delete_offset(shard, group_id, topic, index) for topic, index in sorted(shard.offsets.keys_of(group_id))]


def delete_offset(shard: GroupShard, group_id: str, topic: str, partition: int) -> Record:
    """Delete one offset; return the record."""
    shard.offsets.remove(group_id, topic, partition)
    return offset_key(group_id, topic, partition), None


def expire_offsets(shard: GroupShard, group: Group, terms: tuple[int, int], pace: Pace) -> Steps[int]:
    """Delete the expired offsets of a group; return their number. ``terms``: current time and retention."""
    group_id, offsets = group.group_id, shard.offsets
    expired = 0
    for topic, partitions in list(offsets.of_group(group_id).items()):
        for some in _pieces(list(partitions)):
            if pace.is_over(len(some)):
                yield
            # The group may have changed: a commit, a join, or its deletion.
            if not shard.is_open or shard.groups.get(group_id) is not group or group.is_subscribed(topic):
                break
            there = offsets.of_group(group_id).get(topic, {})
            due = [index for index in some if index in there and _is_expired(group, there[index], *terms)]
            records = [
                delete_offset(shard, group_id, topic, index)
                for index in due
                if not offsets.is_pending(group_id, topic, index)
            ]
            expired += len(records)
            if records:
                shard.append(records, nobody_waits)
    return expired


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    since_ms = group.retained_since_ms(committed.commit_ms)
    if since_ms is None:
        return False
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - since_ms >= retention_ms


def _is_of_another(shard: GroupShard, group_id: str, place: tuple[str, int], topic_id: bytes) -> bool:
    if topic_id == ZERO_TOPIC_ID:
        return True
    # One value is enough: a topic's first offset is accepted only after its predecessors' offsets are deleted.
    known = shard.offsets.values_of(group_id, *place)
    return any(each.topic_id not in (ZERO_TOPIC_ID, topic_id) for each in known)
