"""The group coordinator: maps each group to its partition, and to the protocol of its kind.

Runs in handler processes, each for the groups that hash to its partitions of `__consumer_offsets`. Must not know how
groups work: see `classic`, `consumer` and `share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.classic.protocol import CLASSIC_TABLE, ClassicProtocol
from rotunda.broker.coordinator.consumer.protocol import ConsumerProtocol
from rotunda.broker.coordinator.consumer.replay import CONSUMER_TABLE
from rotunda.broker.coordinator.consumer.sessions import Cluster
from rotunda.broker.coordinator.consumer.topic_patterns import TopicPatterns
from rotunda.broker.coordinator.group import (
    CLASSIC,
    CONSUMER,
    SHARE,
    Group,
    JoinRequest,
    JoinResponse,
    JoinResult,
    LeaveResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
    SyncResult,
)
from rotunda.broker.coordinator.group_events import GroupEvents
from rotunda.broker.coordinator.group_memory import GROUP_BYTES, GroupMemory
from rotunda.broker.coordinator.group_protocol import GroupProtocol
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.offsets.offset_expiration import OffsetExpiration
from rotunda.broker.coordinator.offsets.offset_records import OFFSET_TABLE
from rotunda.broker.coordinator.records import RecordTable
from rotunda.broker.coordinator.share.protocol import ShareProtocol
from rotunda.broker.coordinator.share.replay import SHARE_TABLE
from rotunda.broker.coordinator.share.states import ShareEnvironment, ShareStates
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import GROUP_TOPIC, coordinator_partition
from rotunda.broker.scheduling.long_responses import AT_ONCE
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.coordinator_loader import Replayer
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.scheduling.timers import Timers

#: Returns a partition of an internal topic that this handler owns, after any pending open and load.
OpenNow = Callable[[str, int], "OwnedPartition | None"]

#: The record types of `__consumer_offsets`; add a table for another kind of group.
RECORDS: Final = RecordTable[GroupShard](OFFSET_TABLE, CLASSIC_TABLE, CONSUMER_TABLE, SHARE_TABLE)

_MOST_CACHED: Final = 8192

#: Longer ids are not cached, so that clients cannot fill the memory with them.
_LONGEST_CACHED: Final = 256

#: Longest group id in a key of `__consumer_offsets`.
_LONGEST_BYTES: Final = 2**15 - 1

_cached_partition_of = lru_cache(_MOST_CACHED)(coordinator_partition)


def _partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group. ApiError if its id is too long for a record. HOT."""
    if len(group_id) <= _LONGEST_CACHED:
        return _cached_partition_of(group_id, partitions)
    if len(group_id.encode()) > _LONGEST_BYTES:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group id of {len(group_id)} characters is too long")
    return coordinator_partition(group_id, partitions)


class GroupCoordinator:
    """The groups of one handler."""

    def __init__(  # noqa: PLR0913 - the parts of a handler that it uses
        self,
        locator: CoordinatorLocator,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        open_now: OpenNow,
        events: GroupEvents,
        share_states: ShareStates,
        memory: GroupMemory,
    ) -> None:
        self._locator = locator
        self.metadata, self.clock = metadata, clock
        self._timers = timers
        self._open_now = open_now
        self._shards: dict[int, GroupShard] = {}
        self.expiration = OffsetExpiration(metadata, clock, timers)
        self.memory = memory
        self.classic = ClassicProtocol(lambda: metadata.broker_config, timers, clock.wall_ms, events)
        cluster = Cluster(metadata, lambda: metadata.broker_config, metadata.group_configs, clock.wall_ms)
        self.topic_patterns = TopicPatterns(metadata, metadata.authorizer, clock.monotonic_ns)
        self.consumers = ConsumerProtocol(cluster, timers, self.classic.adopt, events)
        environment = ShareEnvironment(
            metadata, lambda: metadata.broker_config, metadata.share_group_config, clock.wall_ms
        )
        self.shares = ShareProtocol(environment, timers, share_states, events)
        #: By kind of group.
        self.protocols: Mapping[str, GroupProtocol] = {
            CLASSIC: self.classic,
            CONSUMER: self.consumers,
            SHARE: self.shares,
        }

    # ---- partitions ----------------------------------------------------------------------------------------------

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Return the shard of a partition, to be loaded."""
        return GroupShard(log, RECORDS, self._loaded, self.memory.admit)

    def close_partition(self, partition: int) -> None:
        """Stop coordinating the groups of a partition; parked requests get NOT_COORDINATOR."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()
            self._timers.in_steps(self._release(shard))

    def _release(self, shard: GroupShard) -> Steps[None]:
        """Free the groups of a closed partition in steps."""
        released = 0
        while shard.groups:
            _, group = shard.groups.popitem()
            self.protocols[group.kind].closed(shard, group)
            released += 1 + len(group.members)
            if released >= AT_ONCE:
                yield
                released = 0
        yield from shard.offsets.release()

    def metadata_changed(self) -> None:
        shards = list(self._shards.values())
        for protocol in self.protocols.values():
            protocol.metadata_changed(shards)
        self.expiration.metadata_changed(shards)

    def transaction_ended(self, partition: int, producer_id: int, commit: bool) -> None:
        """Commit or drop the offsets of a transaction after its marker is written to a partition."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.end_transaction(producer_id, commit=commit)

    # ---- groups --------------------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard of a group. Raises ApiError if this handler does not serve it now. HOT."""
        shard = self._shards.get(_partition_of(group_id, self._locator.counts.groups))
        if shard is None or shard.has_failed:
            return self._opened_now(group_id)
        if shard.offsets.searches:
            self.expiration.forget_deleted_topics_of(shard, group_id)
        return shard

    def _opened_now(self, group_id: str) -> GroupShard:
        """Return the shard of a group after any pending open of its partition. Raises ApiError as `shard_of`."""
        partition = _partition_of(group_id, self._locator.counts.groups)
        is_owned = self._open_now(GROUP_TOPIC, partition) is not None
        shard = self._shards.get(partition) if is_owned else None
        if shard is None or shard.has_failed:
            raise self._locator.absent(GROUP_TOPIC, group_id)
        return shard

    def find(self, group_id: str) -> Group | None:
        """Return a group, or None. Raises ApiError as `shard_of`."""
        return self.shard_of(group_id).groups.get(group_id)

    def shards(self) -> Iterator[GroupShard]:
        yield from self._shards.values()

    def groups(self) -> Iterator[Group]:
        for shard in self._shards.values():
            yield from shard.groups.values()

    # ---- members of the classic protocol -------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, respond: JoinResponse) -> None:
        """Handle a JoinGroup; the first one creates the group. Raises ApiError as `shard_of`."""
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is not None and (group.kind != CONSUMER or not group.is_empty):
            self.protocols[group.kind].join(shard, group, request, respond)
        elif request.member_id:
            respond(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        elif group is None and not shard.admit(group_id, GROUP_BYTES):
            respond(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        else:
            created = self.classic.create(shard, group_id, () if group is None else group.tombstones())
            self.classic.join(shard, created, request, respond)

    def sync(self, group_id: str, request: SyncRequest, respond: SyncResponse) -> None:
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None or group.is_empty:
            respond(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self.protocols[group.kind].sync(shard, group, request, respond)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return the error of a member's heartbeat. Raises ApiError as `shard_of`. HOT."""
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self.protocols[group.kind].heartbeat(shard, group, member_id, instance_id, generation)

    def leave(self, group_id: str, members: Sequence[LeavingMember], respond: LeaveResponse) -> None:
        shard = self.shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            respond([ErrorCode.UNKNOWN_MEMBER_ID] * len(members))
        else:
            self.protocols[group.kind].leave(shard, group, members, respond)

    def _loaded(self, shard: GroupShard) -> Steps[None]:
        """Start the groups of a loaded partition. Markers written meanwhile reach the shard."""
        self._shards[shard.partition] = shard
        started = 0
        for group in list(shard.groups.values()):
            self.protocols[group.kind].loaded(shard, group)
            started += 1 + len(group.members)
            if started >= AT_ONCE:
                yield
                started = 0
        yield from self.expiration.loaded(shard)
        self.memory.count_soon()
