"""The expiration of offsets: those of deleted topics go at once, others when their retention is over.

Runs in the handler that coordinates the groups. How long an offset is kept, and since when that counts, are Kafka's
rules (KIP-211): since the last member left, or since the commit where members are not known. A group that has neither
members nor offsets left goes as well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.coordinator.group import Group
from broker.coordinator.group_records import encode_offset_key
from broker.coordinator.group_shard import GroupShard, nobody_waits
from broker.coordinator.offsets.offsets import GROUPS_AT_ONCE, NO_EXPIRY, CommittedOffset
from broker.protocol.primitives import ZERO_TOPIC_ID
from broker.protocol.steps import Steps
from broker.scheduling.long_answers import AT_ONCE

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.coordinator.coordinator_log import Record
    from broker.metadata.metadata_cache import MetadataCache
    from broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

_MS_PER_MINUTE: Final = 60_000


class OffsetExpiration:
    """Looks after the offsets of one handler's groups."""

    def __init__(self, metadata: MetadataCache, clock: Clock, timers: Timers) -> None:
        self._metadata = metadata
        self._clock = clock
        self._timers = timers

    def loaded(self, shard: GroupShard) -> Steps[None]:
        """Look after a partition from now on."""
        yield from self._forget_deleted_topics(shard)
        self._expire_again(shard)

    def metadata_changed(self, shards: Sequence[GroupShard]) -> None:
        """Delete the offsets of topics that are gone, in slices; those of a group that is asked for go at once."""
        for shard in shards:
            shard.offsets.searches += 1
            self._timers.in_steps(self._search(shard))

    def forget_deleted_topics_of(self, shard: GroupShard, group_id: str) -> None:
        """Delete a group's offsets of topics that are gone."""
        for name in {topic for topic, _ in shard.offsets.keys_of(group_id)}:
            topic_id = self._id_of(name)
            if topic_id == ZERO_TOPIC_ID or shard.offsets.topic_ids.get(name) != topic_id:
                _forget_topic(shard, group_id, name, topic_id)

    def expire(self, shard: GroupShard) -> Steps[None]:
        """Delete the offsets whose retention is over, and the groups that are left without any."""
        retention_ms = self._metadata.broker_config.offsets_retention_minutes * _MS_PER_MINUTE
        now_ms = self._clock.wall_ms()
        expired = 0
        for number, group in enumerate(list(shard.groups.values()), 1):
            if not number % AT_ONCE:
                yield
            if not shard.is_open or shard.groups.get(group.group_id) is not group:
                continue
            records = expired_offsets(shard, group, now_ms, retention_ms)
            expired += len(records)
            if group.is_empty and not shard.offsets.has_any(group.group_id):
                logger.info("Group %s is empty and has no offsets: it goes", group.group_id)
                records += group.tombstones()
                del shard.groups[group.group_id]
            if records:
                shard.append(records, nobody_waits)
        if expired:
            logger.info("%d offsets of partition %d have expired", expired, shard.partition)

    def _expire_again(self, shard: GroupShard) -> None:
        def due() -> None:
            if shard.is_open:
                self._timers.in_steps(self.expire(shard))
                self._expire_again(shard)

        interval_ms = self._metadata.broker_config.offsets_retention_check_interval_ms
        self._timers.after_ms(interval_ms, due)

    def _id_of(self, topic_name: str) -> bytes:
        """Return the id of a topic, all zero if there is none."""
        topic = self._metadata.topic(topic_name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def _search(self, shard: GroupShard) -> Steps[None]:
        yield from self._forget_deleted_topics(shard)
        shard.offsets.searches -= 1

    def _forget_deleted_topics(self, shard: GroupShard) -> Steps[None]:
        offsets = shard.offsets
        yield from offsets.settle_all()
        for name in offsets.topics():
            topic_id = self._id_of(name)
            if topic_id != ZERO_TOPIC_ID and offsets.topic_ids.get(name) == topic_id:
                continue
            for number, group_id in enumerate(offsets.readers_of(name), 1):
                if not number % GROUPS_AT_ONCE:
                    yield
                if not shard.is_open or self._id_of(name) != topic_id:
                    # The topic was made or deleted since: that change has a search of its own.
                    break
                _forget_topic(shard, group_id, name, topic_id)
            else:
                if topic_id == ZERO_TOPIC_ID:
                    offsets.forget_topic(name)
                else:
                    offsets.topic_ids[name] = topic_id


def delete_offsets(shard: GroupShard, group_id: str) -> list[Record]:
    """Forget all offsets of a group; return the records that say so."""
    return [delete_offset(shard, group_id, topic, index) for topic, index in sorted(shard.offsets.keys_of(group_id))]


def delete_offset(shard: GroupShard, group_id: str, topic: str, partition: int) -> Record:
    """Forget one offset; return the record that says so."""
    shard.offsets.remove(group_id, topic, partition)
    return encode_offset_key(group_id, topic, partition), None


def expired_offsets(shard: GroupShard, group: Group, now_ms: int, retention_ms: int) -> list[Record]:
    """Forget the offsets of a group whose retention is over; return the records that say so."""
    group_id = group.group_id
    return [
        delete_offset(shard, group_id, topic, partition)
        for topic, partitions in list(shard.offsets.of_group(group_id).items())
        if not group.is_subscribed(topic)
        for partition, committed in list(partitions.items())
        if _is_expired(group, committed, now_ms, retention_ms)
        and not shard.offsets.is_pending(group_id, topic, partition)
    ]


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    since_ms = group.retained_since_ms(committed.commit_ms)
    if since_ms is None:
        return False
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - since_ms >= retention_ms


def _forget_topic(shard: GroupShard, group_id: str, name: str, topic_id: bytes) -> None:
    """Delete a group's offsets of a topic unless they are of the topic with this id."""
    records = [
        delete_offset(shard, group_id, name, partition)
        for topic, partition in sorted(shard.offsets.keys_of(group_id))
        if topic == name and _is_of_another(shard, group_id, (name, partition), topic_id)
    ]
    if records:
        shard.append(records, nobody_waits)


def _is_of_another(shard: GroupShard, group_id: str, place: tuple[str, int], topic_id: bytes) -> bool:
    if topic_id == ZERO_TOPIC_ID:
        return True
    # One value speaks for all: a topic's first offset is taken after those of its predecessors have been deleted.
    known = shard.offsets.values_of(group_id, *place)
    return any(each.topic_id not in (ZERO_TOPIC_ID, topic_id) for each in known)
